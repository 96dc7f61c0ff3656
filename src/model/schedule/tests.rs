//! What is read, what is refused, and how the limits of a rule act.

use std::time::Duration;

use super::{LocalCursor, Nominal, Recurrence, Rule};
use crate::model::clock::UnixMillis;
use crate::model::zone::Zone;

const HOUR: Duration = Duration::from_secs(3600);

fn moment(text: &str) -> UnixMillis {
    UnixMillis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn rule<'a>(cron: &'a str, zone: &'a str) -> Rule<'a> {
    Rule {
        cron: Some(cron),
        every: None,
        zone,
        start: None,
        end: None,
        anchor: moment("2026-11-25T10:00:00Z"),
    }
}

fn every(every: Duration) -> Rule<'static> {
    Rule { cron: None, every: Some(every), ..rule("", "UTC") }
}

fn parse(rule: &Rule<'_>) -> Recurrence {
    Recurrence::parse(rule).unwrap()
}

fn shown(recurrence: &Recurrence, nominal: Option<Nominal>) -> String {
    nominal.map_or("none".into(), |nominal| recurrence.shown(nominal.moment))
}

#[test]
fn an_expression_reads_as_in_cron() {
    // In UTC, after Wednesday 2026-11-25T10:00:00Z.
    let check = |cron: &str, expected: &str| {
        let recurrence = parse(&rule(cron, "UTC"));
        let first = recurrence.first_after(moment("2026-11-25T10:00:00Z"));
        assert_eq!(shown(&recurrence, first), format!("{expected}+00:00"), "{cron}");
    };
    check("* * * * *", "2026-11-25T10:01:00");
    check("* * * * * *", "2026-11-25T10:00:01");
    check("*/7 * * * * *", "2026-11-25T10:00:07");
    check("5/20 * * * *", "2026-11-25T10:05:00");
    check("10-40/15 * * * *", "2026-11-25T10:10:00");
    check("0 12 * * *", "2026-11-25T12:00:00");
    check("0 9 * * 1-5", "2026-11-26T09:00:00");
    check("0 9 * * MON", "2026-11-30T09:00:00");
    check("0 9 * * sun", "2026-11-29T09:00:00");
    check("0 9 * * 7", "2026-11-29T09:00:00");
    check("0 9 * * 0", "2026-11-29T09:00:00");
    check("0 9 * * FRI-SUN", "2026-11-27T09:00:00");
    check("0 9 * * 6-7", "2026-11-28T09:00:00");
    check("0 9 1 JAN *", "2027-01-01T09:00:00");
    check("0 9 1 feb,MAR ?", "2027-02-01T09:00:00");
    check("0 9 L * *", "2026-11-30T09:00:00");
    check("0 9 L 2 *", "2027-02-28T09:00:00");
    check("0 9 1,L * *", "2026-11-30T09:00:00");
    // Day and weekday: "or" if both are restricted, "and" if one has `*`.
    check("0 9 13 * FRI", "2026-11-27T09:00:00");
    check("0 9 */2 * FRI", "2026-11-27T09:00:00");
    check("0 9 */13 * FRI", "2026-11-27T09:00:00");
    check("0 9 */31 * FRI", "2027-01-01T09:00:00");
    check("0 0 30 2 MON", "2027-02-01T00:00:00");
    check("0 0 29 2 *", "2028-02-29T00:00:00");
    check("  0   0 1 1 *  ", "2027-01-01T00:00:00");
    check("@yearly", "2027-01-01T00:00:00");
    check("@Monthly", "2026-12-01T00:00:00");
    check("@weekly", "2026-11-29T00:00:00");
    check("@daily", "2026-11-26T00:00:00");
    check("@hourly", "2026-11-25T11:00:00");
}

#[test]
fn a_leap_day_is_found_over_2100() {
    let recurrence = parse(&rule("0 0 29 2 *", "UTC"));
    let first = recurrence.first_after(moment("2096-02-29T00:00:00Z"));
    assert_eq!(shown(&recurrence, first), "2104-02-29T00:00:00+00:00");
    // A Monday that is the first of February, also over 2100.
    let recurrence = parse(&rule("0 0 */31 2 MON", "UTC"));
    let first = recurrence.first_after(moment("2094-02-02T00:00:00Z"));
    assert_eq!(shown(&recurrence, first), "2100-02-01T00:00:00+00:00");
}

#[test]
fn an_invalid_expression_is_refused_with_a_sentence() {
    let check = |cron: &str, says: &str| {
        let refused = Recurrence::parse(&rule(cron, "UTC")).unwrap_err().to_string();
        assert_eq!(refused, says, "{cron}");
    };
    let fields = "cron: expected five fields (minute, hour, day of month, month, weekday) or six \
                  (second first), got";
    check("", &format!("{fields} 0"));
    check("* * * *", &format!("{fields} 4"));
    check("0 0 0 1 1 ? 2026", &format!("{fields} 7"));
    check(&"*,".repeat(200), "cron: expected at most 256 bytes, got 400");
    check("60 * * * *", "cron: expected * or numbers from 0 to 59 as the minute, got 60");
    check("* 24 * * *", "cron: expected * or numbers from 0 to 23 as the hour, got 24");
    check(
        "0 0 0 * *",
        "cron: expected *, numbers from 1 to 31, or L as the day of the month, got 0",
    );
    check(
        "0 0 * 13 *",
        "cron: expected *, numbers from 1 to 12, or names from JAN to DEC as the month, got 13",
    );
    check(
        "0 0 * * FUN",
        "cron: expected *, numbers from 0 to 7, or names from SUN to SAT as the weekday, got \
         \"FUN\"",
    );
    check("-1 * * * *", "cron: expected * or numbers from 0 to 59 as the minute, got \"\"");
    check("? * * * *", &foreign("?", "the minute"));
    check("5,,6 * * * *", "cron: expected * or numbers from 0 to 59 as the minute, got \"\"");
    check(
        "0 22-2 * * *",
        "cron: expected a range that grows as the hour, got \"22-2\"; write two ranges with a \
         comma between them",
    );
    check("*/0 * * * *", "cron: expected a step from 1 to 59 as the minute, got \"0\"");
    check("*/90 * * * *", "cron: expected a step from 1 to 59 as the minute, got \"90\"");
    check("0 0 15W * *", &foreign("15W", "the day of the month"));
    check("0 0 * * 5L", &foreign("5L", "the weekday"));
    check("0 0 * * L", &foreign("L", "the weekday"));
    check("0 0 * * 5#2", &foreign("5#2", "the weekday"));
    check("H * * * *", &foreign("H", "the minute"));
    check(
        "@reboot",
        "cron: expected @yearly, @monthly, @weekly, @daily or @hourly, got \"@reboot\"; for a \
         fixed distance use every",
    );
    let never = "cron: expected an expression that fires, got one whose days no month has";
    check("0 0 30 2 *", never);
    check("0 0 31 2,4,6,9,11 *", never);
}

fn foreign(given: &str, field: &str) -> String {
    format!(
        "cron: {given:?} as {field} is not supported; expected numbers, names, *, ranges, steps \
         and lists, and L only as the last day of the month"
    )
}

#[test]
fn an_invalid_rule_is_refused_with_a_sentence() {
    let check = |rule: &Rule<'_>, says: &str| {
        let refused = Recurrence::parse(rule).unwrap_err();
        assert_eq!(refused.to_string(), says);
    };
    let daily = rule("@daily", "UTC");
    check(
        &Rule { cron: None, ..daily.clone() },
        "cron: expected either cron or every, got neither",
    );
    check(
        &Rule { every: Some(HOUR), ..daily.clone() },
        "cron: expected either cron or every, got both",
    );
    check(&every(Duration::from_millis(999)), "every: expected 1s to 366d, got 999 ms");
    check(&every(HOUR * 24 * 367), "every: expected 1s to 366d, got 31708800000 ms");
    let unknown = Zone::named("Mars/Olympus").unwrap_err();
    check(&rule("@daily", "Mars/Olympus"), &format!("zone: {unknown}"));
    let (start, end) = (Some(UnixMillis(2)), Some(UnixMillis(1)));
    check(&Rule { start, end, ..daily }, "end: expected a moment that is not before start");
}

#[test]
fn start_and_end_are_inclusive() {
    let noon = moment("2026-11-26T12:00:00Z");
    let check = |rule: &Rule<'_>, count: u64| {
        let recurrence = parse(rule);
        let first = recurrence.first_after(moment("2026-11-25T10:00:00Z"));
        assert_eq!(first.map(|first| first.moment), (count > 0).then_some(noon), "{rule:?}");
        if let Some(first) = first {
            let late = moment("2030-01-01T00:00:00Z");
            assert_eq!(recurrence.missed(&first.cursor, late) + 1, count, "{rule:?}");
        }
    };
    let hourly = rule("@hourly", "UTC");
    let limited = |end| Rule { start: Some(noon), end: Some(end), ..hourly.clone() };
    check(&limited(noon), 1);
    check(&limited(noon + HOUR), 2);
    check(&limited(noon + HOUR - Duration::from_millis(1)), 1);
    check(&Rule { start: Some(noon), end: Some(noon + HOUR * 3), ..every(HOUR) }, 4);
    check(&Rule { end: Some(noon - HOUR * 24 * 2), ..hourly.clone() }, 0);
    // A cursor from before the start does not lead to moments before it.
    let recurrence = parse(&Rule { start: Some(noon), ..hourly });
    let next = recurrence.next_after(&"2020-01-01T00:00:00".parse().unwrap()).unwrap();
    assert_eq!(next.moment, noon);
    assert_eq!(recurrence.missed(&"2020-01-01T00:00:00".parse().unwrap(), noon + HOUR), 2);
}

#[test]
fn a_distance_counts_from_its_start_or_from_the_set() {
    let check = |rule: &Rule<'_>, now: &str, expected: &str| {
        let recurrence = parse(rule);
        assert_eq!(shown(&recurrence, recurrence.first_after(moment(now))), expected);
    };
    check(&every(HOUR), "2026-11-25T10:00:00Z", "2026-11-25T11:00:00+00:00");
    check(&every(HOUR), "2026-11-25T12:34:56.789Z", "2026-11-25T13:00:00+00:00");
    let start = Some(moment("2026-11-25T10:10:00.250Z"));
    let late = Rule { start, zone: "Asia/Kolkata", ..every(HOUR) };
    check(&late, "2026-11-25T10:00:00Z", "2026-11-25T15:40:00.25+05:30");
    check(&late, "2026-11-25T10:10:00.250Z", "2026-11-25T16:40:00.25+05:30");
}

/// The rule of the summer of 2026 in one program, and of a land that gave up its summer in another.
#[test]
fn planners_with_different_zone_data_do_not_plan_a_local_time_twice() {
    let summer = parse(&rule("30 2 * * *", "Europe/Berlin"));
    let winter = parse(&rule("30 2 * * *", "Africa/Lagos"));
    let mut cursor = summer.first_after(moment("2026-06-01T00:00:00Z")).unwrap().cursor;
    for turn in 0..200 {
        let planner = if turn % 2 == 0 { &winter } else { &summer };
        // The other planner sees the present at the moment at which the first one fired.
        let now = if turn % 2 == 0 { summer.resolve(&cursor) } else { winter.resolve(&cursor) };
        let next = planner.advance(&cursor, now).0.unwrap().cursor;
        assert_eq!(next.local.duration_since(cursor.local), jiff::SignedDuration::from_hours(24));
        cursor = next;
    }
}

/// One program knows of a change of the clock that skips 02:30, the other one does not.
#[test]
fn a_skipped_time_is_not_planned_again_by_a_planner_that_skips_it() {
    let skips = parse(&rule("30 2 * * *", "America/New_York"));
    let knows_no_change = parse(&rule("30 2 * * *", "America/Panama"));
    let day_before = "2026-03-07T02:30:00".parse().unwrap();
    let plain = knows_no_change.next_after(&day_before).unwrap();
    assert_eq!(plain.cursor.to_string(), "2026-03-08T02:30:00");
    let next = skips.next_after(&plain.cursor).unwrap();
    assert_eq!(next.cursor.to_string(), "2026-03-09T02:30:00");
    let after_gap = skips.next_after(&day_before).unwrap();
    assert_eq!(after_gap.cursor.to_string(), "2026-03-08T03:00:00");
    let next = knows_no_change.next_after(&after_gap.cursor).unwrap();
    assert_eq!(next.cursor.to_string(), "2026-03-09T02:30:00");
}

#[test]
fn missed_moments_are_passed_over_or_kept() {
    let recurrence = parse(&rule("* * * * * *", "Europe/Berlin"));
    let cursor = "2026-01-01T00:00:00".parse().unwrap();
    let now = moment("2027-01-01T00:00:00.999+01:00");
    // A year of seconds: whole days and hours are counted, not walked.
    let seconds = 365 * 86_400;
    assert_eq!(recurrence.missed(&cursor, now), seconds);
    let (next, missed) = recurrence.advance(&cursor, now);
    assert_eq!(shown(&recurrence, next), "2027-01-01T00:00:01+01:00");
    assert_eq!(missed, seconds);
    let backlog = recurrence.backlog(&cursor, now, 1000).unwrap();
    assert_eq!((backlog.count, backlog.dropped), (1000, seconds - 1000));
    assert_eq!(backlog.first.cursor.to_string(), "2026-12-31T23:43:21");
    assert_eq!(recurrence.backlog(&cursor, moment("2026-01-01T00:00:00+01:00"), 1000), None);
    let two = recurrence.backlog(&cursor, moment("2026-01-01T00:00:02+01:00"), 1000).unwrap();
    assert_eq!((two.count, two.dropped), (2, 0));
    assert_eq!(two.first.cursor.to_string(), "2026-01-01T00:00:01");
}

#[test]
fn a_cursor_reads_what_it_writes() {
    for text in ["2026-11-01T01:30:00", "2026-11-01T01:30:00/1", "2026-11-25T10:10:00.25"] {
        let cursor: LocalCursor = text.parse().unwrap();
        assert_eq!(cursor.to_string(), text);
        let json = serde_json::to_string(&cursor).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<LocalCursor>(&json).unwrap(), cursor);
    }
    for text in ["", "/1", "2026-11-01", "2026-11-01 01:30:00", "2026-11-01T01:30:00/2"] {
        assert!(text.parse::<LocalCursor>().is_err(), "{text}");
    }
}

#[test]
fn moments_at_the_edge_of_time_end_a_schedule() {
    let recurrence = parse(&rule("@yearly", "Pacific/Auckland"));
    assert_eq!(recurrence.first_after(UnixMillis(i64::MAX)), None);
    assert!(recurrence.first_after(UnixMillis(i64::MIN)).is_some());
    assert_eq!(parse(&every(HOUR)).first_after(UnixMillis(i64::MAX)), None);
    assert_eq!(recurrence.next_after(&"9999-12-31T23:59:59".parse().unwrap()), None);
}

/// A preview has up to 1,000 moments, and a rule may have one in many years.
#[test]
fn a_thousand_moments_take_bounded_work() {
    for (cron, most) in [
        ("* * * * * *", 4),
        ("*/7 * * * *", 4),
        ("0 0 1 * *", 100),
        ("0 0 31 * *", 100),
        ("0 0 L 2 *", 100),
        ("0 0 29 2 *", 200),
        // With `*` in the weekday, both are to match: every 28 years.
        ("0 0 29 2 */7", 1_200),
        ("0 0 31 12 */7", 400),
    ] {
        for zone in ["UTC", "America/New_York", "Pacific/Apia"] {
            let recurrence = parse(&rule(cron, zone));
            let before = super::cron::DATES.get();
            let first = recurrence.first_after(moment("2026-11-25T10:00:00Z"));
            let next = |last: &Nominal| recurrence.next_after(&last.cursor);
            let count = std::iter::successors(first, next).take(1_000).count() as u64;
            let dates = super::cron::DATES.get() - before;
            assert!(count == 1_000 || cron.contains("29 2"), "{cron}: {count}");
            assert!(dates <= count * most, "{cron} in {zone}: {dates} for {count} moments");
        }
    }
}
