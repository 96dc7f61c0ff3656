use super::*;

/// Local times around changes of the clock: the zone, the time, how the moment is shown in the
/// zone, and the moment. Made with Python's `zoneinfo`, which reads the same zone data by itself:
///
/// ```python
/// datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(timezone.utc)
/// ```
#[rustfmt::skip]
const LOCAL_TIMES: [(&str, &str, &str, i64); 52] = [
    ("Europe/Berlin", "2025-03-30 01:59:59", "2025-03-30T01:59:59.000+01:00", 1_743_296_399_000),
    ("Europe/Berlin", "2025-03-30 02:00", "2025-03-30T03:00:00.000+02:00", 1_743_296_400_000),
    ("Europe/Berlin", "2025-03-30 02:30", "2025-03-30T03:30:00.000+02:00", 1_743_298_200_000),
    ("Europe/Berlin", "2025-03-30 02:59:59", "2025-03-30T03:59:59.000+02:00", 1_743_299_999_000),
    ("Europe/Berlin", "2025-03-30 03:00", "2025-03-30T03:00:00.000+02:00", 1_743_296_400_000),
    ("Europe/Berlin", "2025-10-26 01:59:59", "2025-10-26T01:59:59.000+02:00", 1_761_436_799_000),
    ("Europe/Berlin", "2025-10-26 02:00", "2025-10-26T02:00:00.000+02:00", 1_761_436_800_000),
    ("Europe/Berlin", "2025-10-26 02:30", "2025-10-26T02:30:00.000+02:00", 1_761_438_600_000),
    ("Europe/Berlin", "2025-10-26 02:59:59", "2025-10-26T02:59:59.000+02:00", 1_761_440_399_000),
    ("Europe/Berlin", "2025-10-26 03:00", "2025-10-26T03:00:00.000+01:00", 1_761_444_000_000),
    ("America/New_York", "2025-03-09 01:59", "2025-03-09T01:59:00.000-05:00", 1_741_503_540_000),
    ("America/New_York", "2025-03-09 02:00", "2025-03-09T03:00:00.000-04:00", 1_741_503_600_000),
    ("America/New_York", "2025-03-09 02:59:59", "2025-03-09T03:59:59.000-04:00", 1_741_507_199_000),
    ("America/New_York", "2025-03-09 03:00", "2025-03-09T03:00:00.000-04:00", 1_741_503_600_000),
    ("America/New_York", "2025-11-02 00:59", "2025-11-02T00:59:00.000-04:00", 1_762_059_540_000),
    ("America/New_York", "2025-11-02 01:00", "2025-11-02T01:00:00.000-04:00", 1_762_059_600_000),
    ("America/New_York", "2025-11-02 01:59:59", "2025-11-02T01:59:59.000-04:00", 1_762_063_199_000),
    ("America/New_York", "2025-11-02 02:00", "2025-11-02T02:00:00.000-05:00", 1_762_066_800_000),
    ("Australia/Lord_Howe", "2025-10-05 01:59", "2025-10-05T01:59:00.000+10:30", 1_759_591_740_000),
    ("Australia/Lord_Howe", "2025-10-05 02:00", "2025-10-05T02:30:00.000+11:00", 1_759_591_800_000),
    ("Australia/Lord_Howe", "2025-10-05 02:15", "2025-10-05T02:45:00.000+11:00", 1_759_592_700_000),
    ("Australia/Lord_Howe", "2025-10-05 02:29", "2025-10-05T02:59:00.000+11:00", 1_759_593_540_000),
    ("Australia/Lord_Howe", "2025-10-05 02:30", "2025-10-05T02:30:00.000+11:00", 1_759_591_800_000),
    ("Australia/Lord_Howe", "2025-04-06 01:29", "2025-04-06T01:29:00.000+11:00", 1_743_863_340_000),
    ("Australia/Lord_Howe", "2025-04-06 01:30", "2025-04-06T01:30:00.000+11:00", 1_743_863_400_000),
    ("Australia/Lord_Howe", "2025-04-06 01:45", "2025-04-06T01:45:00.000+11:00", 1_743_864_300_000),
    ("Australia/Lord_Howe", "2025-04-06 02:00", "2025-04-06T02:00:00.000+10:30", 1_743_867_000_000),
    ("Asia/Kathmandu", "2025-11-23 20:00", "2025-11-23T20:00:00.000+05:45", 1_763_907_300_000),
    ("Asia/Kathmandu", "1985-12-31 23:59:59", "1985-12-31T23:59:59.000+05:30", 504_901_799_000),
    ("Asia/Kathmandu", "1986-01-01 00:00", "1986-01-01T00:15:00.000+05:45", 504_901_800_000),
    ("Asia/Kathmandu", "1986-01-01 00:10", "1986-01-01T00:25:00.000+05:45", 504_902_400_000),
    ("Asia/Kathmandu", "1986-01-01 00:15", "1986-01-01T00:15:00.000+05:45", 504_901_800_000),
    ("Asia/Shanghai", "2025-11-23 20:00", "2025-11-23T20:00:00.000+08:00", 1_763_899_200_000),
    ("Pacific/Apia", "2011-12-29 23:59:59", "2011-12-29T23:59:59.000-10:00", 1_325_239_199_000),
    ("Pacific/Apia", "2011-12-30 00:00", "2011-12-31T00:00:00.000+14:00", 1_325_239_200_000),
    ("Pacific/Apia", "2011-12-30 12:00", "2011-12-31T12:00:00.000+14:00", 1_325_282_400_000),
    ("Pacific/Apia", "2011-12-30 23:59:59", "2011-12-31T23:59:59.000+14:00", 1_325_325_599_000),
    ("Pacific/Apia", "2011-12-31 00:00", "2011-12-31T00:00:00.000+14:00", 1_325_239_200_000),
    ("Africa/Casablanca", "2025-02-23 01:59", "2025-02-23T01:59:00.000+01:00", 1_740_272_340_000),
    ("Africa/Casablanca", "2025-02-23 02:00", "2025-02-23T02:00:00.000+01:00", 1_740_272_400_000),
    ("Africa/Casablanca", "2025-02-23 02:30", "2025-02-23T02:30:00.000+01:00", 1_740_274_200_000),
    ("Africa/Casablanca", "2025-02-23 03:00", "2025-02-23T03:00:00.000+00:00", 1_740_279_600_000),
    ("Africa/Casablanca", "2025-04-06 01:59", "2025-04-06T01:59:00.000+00:00", 1_743_904_740_000),
    ("Africa/Casablanca", "2025-04-06 02:00", "2025-04-06T03:00:00.000+01:00", 1_743_904_800_000),
    ("Africa/Casablanca", "2025-04-06 02:30", "2025-04-06T03:30:00.000+01:00", 1_743_906_600_000),
    ("Africa/Casablanca", "2025-04-06 03:00", "2025-04-06T03:00:00.000+01:00", 1_743_904_800_000),
    ("Europe/Dublin", "2025-03-30 01:30", "2025-03-30T02:30:00.000+01:00", 1_743_298_200_000),
    ("Europe/Dublin", "2025-10-26 01:30", "2025-10-26T01:30:00.000+01:00", 1_761_438_600_000),
    ("America/St_Johns", "2025-03-09 02:30", "2025-03-09T03:30:00.000-02:30", 1_741_500_000_000),
    ("Antarctica/Troll", "2025-03-30 01:30", "2025-03-30T03:30:00.000+02:00", 1_743_298_200_000),
    ("Antarctica/Troll", "2025-10-26 01:30", "2025-10-26T01:30:00.000+02:00", 1_761_435_000_000),
    ("Antarctica/Troll", "2025-10-26 02:30", "2025-10-26T02:30:00.000+02:00", 1_761_438_600_000),
];

#[test]
fn a_local_time_becomes_a_moment_as_another_library_has_it() {
    for (zone, text, shown, millis) in LOCAL_TIMES {
        let expected = WrittenTime { moment: UnixMillis(millis), zone: Zone::named(zone).unwrap() };
        assert_eq!(read(text, Some(zone)).as_ref(), Ok(&expected), "{text} in {zone}");
        assert_eq!(
            read(&format!("{text}[{zone}]"), None).as_ref(),
            Ok(&expected),
            "{text}[{zone}]"
        );
        assert_eq!(expected.zone.rfc3339(expected.moment), shown);
        // With the offset, a repeated time is not ambiguous.
        assert_eq!(read(shown, Some(zone)).as_ref(), Ok(&expected), "{shown} in {zone}");
    }
}

fn millis(text: &str, zone: Option<&str>) -> Option<i64> {
    read(text, zone).ok().map(|time| time.moment.0)
}

#[test]
fn a_time_with_an_offset_is_read_as_rfc_3339_says() {
    // The examples of RFC 3339, section 5.8, and the same in Unix time by `date -u -d`.
    let check =
        |text: &str, expected: i64| assert_eq!(millis(text, None), Some(expected), "{text}");
    check("1985-04-12T23:20:50.52Z", 482_196_050_520);
    check("1996-12-19T16:39:57-08:00", 851_042_397_000);
    check("1996-12-20T00:39:57Z", 851_042_397_000);
    check("1990-12-31T23:59:60Z", 662_688_000_000);
    check("1990-12-31T15:59:60-08:00", 662_688_000_000);
    check("1937-01-01T12:00:27.87+00:20", -1_041_337_172_130);
    // Small letters, and a space, are allowed by section 5.6.
    check("1996-12-20t00:39:57z", 851_042_397_000);
    check("1996-12-20 00:39:57Z", 851_042_397_000);
    // Beyond it, the seconds may be absent.
    check("1996-12-20T00:39Z", 851_042_340_000);
    check("1996-12-19 16:39-08:00", 851_042_340_000);
    check("2026-11-23T20:00:00+23:59", 1_795_377_660_000);
    check("0000-01-01T00:00:00Z", -62_167_219_200_000);
}

/// RFC 3339, section 4.3: the time in UTC is known, and the local offset is not. RFC 9557, section
/// 2, says the same of `Z`.
#[test]
fn an_unknown_offset_is_utc_and_agrees_with_every_zone() {
    let (utc, berlin) = (Zone::UTC, Zone::named("Europe/Berlin").unwrap());
    for text in ["2025-07-01T10:00:00Z", "2025-07-01T10:00:00z", "2025-07-01T10:00:00-00:00"] {
        let expected = |zone: &Zone| {
            Ok(WrittenTime { moment: UnixMillis(1_751_364_000_000), zone: zone.clone() })
        };
        assert_eq!(read(text, None), expected(&utc));
        assert_eq!(read(text, Some("Europe/Berlin")), expected(&berlin));
        assert_eq!(read(&format!("{text}[!Europe/Berlin]"), None), expected(&berlin));
        assert_eq!(
            read(&format!("{text}[Europe/Berlin]"), Some("europe/berlin")),
            expected(&berlin)
        );
    }
    assert_eq!(berlin.rfc3339(UnixMillis(1_751_364_000_000)), "2025-07-01T12:00:00.000+02:00");
    // An offset of zero is known, and is not that of Berlin.
    assert!(read("2025-07-01T10:00:00+00:00[Europe/Berlin]", None).is_err());
}

#[test]
fn a_fraction_of_a_millisecond_is_rounded_up() {
    let check = |fraction: &str, expected: i64| {
        let text = format!("1970-01-01T00:00:01{fraction}Z");
        assert_eq!(millis(&text, None), Some(expected), "{text}");
    };
    check("", 1_000);
    check(".0", 1_000);
    check(".000000000000", 1_000);
    check(".5", 1_500);
    check(".05", 1_050);
    check(".005", 1_005);
    check(".0050", 1_005);
    check(".005000000000000001", 1_006);
    check(".0001", 1_001);
    check(".999", 1_999);
    check(".9990000001", 2_000);
    check(".9999", 2_000);
    assert_eq!(millis("1969-12-31T23:59:59.9999Z", None), Some(0));
    assert_eq!(millis("1969-12-31T23:59:59.9985Z", None), Some(-1));
}

#[test]
fn an_offset_chooses_one_of_a_repeated_local_time() {
    let check =
        |text: &str, expected: Option<i64>| assert_eq!(millis(text, None), expected, "{text}");
    check("2025-10-26T02:30[Europe/Berlin]", Some(1_761_438_600_000));
    check("2025-10-26T02:30+02:00[Europe/Berlin]", Some(1_761_438_600_000));
    check("2025-10-26T02:30+01:00[Europe/Berlin]", Some(1_761_442_200_000));
    check("2025-10-26T02:30+00:00[Europe/Berlin]", None);
    // A time in a gap has no right offset.
    check("2025-03-30T02:30+01:00[Europe/Berlin]", None);
    check("2025-03-30T02:30+02:00[Europe/Berlin]", None);
}

#[test]
fn the_zone_that_was_asked_for_is_known() {
    let check = |text: &str, zone: Option<&str>, expected: &str| {
        assert_eq!(
            read(text, zone).map(|time| time.zone.name()).as_deref(),
            Ok(expected),
            "{text}"
        );
    };
    check("2026-11-23 20:00", Some("asia/shanghai"), "Asia/Shanghai");
    check("2026-11-23 20:00", Some("+08:00"), "+08:00");
    check("2026-11-23 20:00[+08:00]", None, "+08:00");
    check("2026-11-23 20:00+08:00", None, "+08:00");
    check("2026-11-23 20:00+08:00", Some("Asia/Shanghai"), "Asia/Shanghai");
    check("2026-11-23 20:00Z", None, "UTC");
    check("2026-11-23 20:00[UTC]", None, "UTC");
    check("2026-11-23 20:00[!Asia/Shanghai][u-ca=hebrew][_x=a-B1]", None, "Asia/Shanghai");
    check("2026-11-23 20:00+08:00[u-ca=iso8601]", None, "+08:00");
}

#[test]
fn what_is_wrong_is_said() {
    let check = |text: &str, zone: Option<&str>, starts: &str| {
        let says = match read(text, zone) {
            Err(InvalidTime::Time(says)) => format!("at: {says}"),
            Err(InvalidTime::Zone(says)) => format!("zone: {says}"),
            Ok(time) => format!("{time:?}"),
        };
        assert!(says.starts_with(starts), "{text} in {zone:?}: {says}");
    };
    let shanghai = Some("Asia/Shanghai");
    let malformed = "at: expected a time such as \"2026-11-23T20:00:00+08:00\" or";
    for text in [
        "",
        "tomorrow",
        "1795236367",
        "2026-11-23",
        "2026-11-23T20",
        "20261123T200000Z",
        "2026-11-23T20:00:00,5Z",
        "2026-11-23T20:00:00.Z",
        "2026-11-23T20:00.5Z",
        "2026-11-23  20:00Z",
        "2026-11-23_20:00Z",
        " 2026-11-23 20:00Z",
        "2026-11-23 20:00 Z",
        "2026-11-23 20:00Z ",
        "2026-11-23T20:00:00+0800",
        "2026-11-23T20:00:00+8:00",
        "2026-11-23T20:00:00+24:00",
        "2026-11-23T20:00:00+08:60",
        "2026-11-23T20:00:00\u{2212}08:00",
        "2026-11-23T20:00:00+08:00:00",
        "2026-11-23T20:00:00UTC",
        "12026-11-23T20:00:00Z",
        "+012026-11-23T20:00:00Z",
        "-002026-11-23T20:00:00Z",
        "226-11-23T20:00:00Z",
        "٢٠٢٦-11-23T20:00:00Z",
        "2026-11-23 20:00[]",
        "2026-11-23 20:00[!]",
        "2026-11-23 20:00[Asia/Shanghai",
        "2026-11-23 20:00[Asia/Shanghai]x",
        "2026-11-23 20:00[Asia/Shanghai][Asia/Shanghai]",
        "2026-11-23 20:00Z[u-ca=hebrew][Asia/Shanghai]",
        "2026-11-23 20:00Z[u-ca=]",
        "2026-11-23 20:00Z[=hebrew]",
        "2026-11-23 20:00Z[U-CA=hebrew]",
        "2026-11-23 20:00Z[u-ca=hebrew-]",
    ] {
        check(text, None, malformed);
        check(text, shanghai, malformed);
    }
    for text in [
        "2026-02-29T00:00Z",
        "2026-13-01T00:00Z",
        "2026-00-01T00:00Z",
        "2026-01-00T00:00Z",
        "2026-11-23T24:00Z",
        "2026-11-23T23:60Z",
        "2026-11-23T23:59:61Z",
    ] {
        check(text, None, "at: expected a date and a time that exist, got \"2026-");
    }
    let no_zone =
        "at: expected a local time to have a zone, got \"2026-11-23 20:00\"; add an offset";
    check("2026-11-23 20:00", None, no_zone);
    check("2026-11-23 20:00[u-ca=hebrew]", None, "at: expected a local time to have a zone");
    check(
        "2026-11-23 20:00[Europe/Berlin]",
        shanghai,
        "zone: expected Europe/Berlin, as in the time, got Asia/Shanghai",
    );
    check("2026-11-23 20:00[+08:00]", shanghai, "zone: expected +08:00, as in the time, got Asia/");
    check(
        "2026-11-23T20:00+07:00",
        shanghai,
        "at: expected the offset of Asia/Shanghai at that time, +08:00, got +07:00",
    );
    check("2026-11-23T20:00+00:00", shanghai, "at: expected the offset of Asia/Shanghai at that");
    check("2026-11-23 20:00[Mars/Olympus]", None, "at: expected an offset such as \"+08:00\" or a");
    check("2026-11-23 20:00", Some("CST"), "zone: expected an offset such as \"+08:00\" or a name");
    check("2026-11-23 20:00", Some(""), "zone: expected an offset such as");
    for tag in ["[!u-ca=hebrew]", "[!u-ca=iso8601]", "[!_x=1]"] {
        let text = format!("2026-11-23T20:00:00Z[Asia/Shanghai]{tag}");
        check(&text, None, &format!("at: expected no critical tag but a zone, got \"{tag}\""));
    }
    check(&"2".repeat(129), None, "at: expected at most 128 bytes, got 129");
    check("2026-11-23 20:00", Some(&"x".repeat(65)), "zone: expected at most 64 bytes, got 65");
}

#[test]
fn a_leap_second_is_the_midnight_after_it_and_stands_nowhere_else() {
    let check =
        |text: &str, expected: Option<i64>| assert_eq!(millis(text, None), expected, "{text}");
    check("2016-12-31T23:59:60Z", Some(1_483_228_800_000));
    check("2016-12-31T23:59:60.25Z", Some(1_483_228_800_250));
    check("2017-01-01T07:59:60+08:00", Some(1_483_228_800_000));
    check("2017-01-01T07:59:60[Asia/Shanghai]", Some(1_483_228_800_000));
    check("2016-06-30T23:59:60Z", Some(1_467_331_200_000));
    check("2016-12-31T23:59:60+08:00", None);
    check("2016-12-30T23:59:60Z", None);
    check("2016-12-31T22:59:60Z", None);
    check("2016-12-31T23:58:60Z", None);
}

#[test]
fn the_years_reach_from_0000_to_9999() {
    let check =
        |text: &str, expected: Option<i64>| assert_eq!(millis(text, None), expected, "{text}");
    check("0000-01-01T00:00Z", Some(-62_167_219_200_000));
    check("9999-12-30T21:59:59.999Z", Some(253_402_207_199_999));
    let says = read("9999-12-31T23:59:59Z", None).unwrap_err();
    let expected = "expected a time before 9999-12-30T22:00:00Z, got \"9999-12-31T23:59:59Z\"";
    assert_eq!(says, InvalidTime::Time(expected.into()));
}
