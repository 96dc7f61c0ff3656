//! Durations as people write them: a number of seconds, or a string with a unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that reads from `90`, `1.5`, `"1500ms"`, `"10s"`, `"5m"`, `"2h"`, `"7d"`, and writes as
/// whole milliseconds (`"1500ms"`). Finer parts are cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// The longest, 500 years. A record that holds a longer one, as milliseconds, could be written and not be read again.
const LONGEST: Duration = Duration::from_secs(500 * 365 * 24 * 3600);

/// The units and their milliseconds, the largest first.
const UNITS: [(u64, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];

/// What a text that is no duration is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of seconds or a string with a unit, such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"")]
pub struct InvalidSpan;

impl Span {
    /// A span of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    fn from_seconds(seconds: f64) -> Result<Self, InvalidSpan> {
        let span = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidSpan)?;
        // Rounded, not cut: 0.007 as a double lies a hair below 7 ms.
        let millis = span.as_micros().div_ceil(500).div_euclid(2);
        Self::of_millis(millis)
    }

    /// As nearly everybody writes it, digits and a unit; for all else there is a parser.
    fn of_one_unit(text: &str) -> Option<Result<Self, InvalidSpan>> {
        let (count, name) = text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit())?);
        let (unit, _) = UNITS.into_iter().find(|(_, unit)| *unit == name)?;
        let count: u64 = count.parse().ok()?;
        Some(Self::of_millis(u128::from(count) * u128::from(unit)))
    }

    fn of_millis(millis: u128) -> Result<Self, InvalidSpan> {
        if millis > LONGEST.as_millis() {
            return Err(InvalidSpan);
        }
        Ok(Self(Duration::from_millis(u64::try_from(millis).map_err(|_| InvalidSpan)?)))
    }
}

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        if let Some(span) = Self::of_one_unit(text) {
            return span;
        }
        if let Ok(seconds) = text.parse::<f64>() {
            return Self::from_seconds(seconds);
        }
        let span = humantime::parse_duration(text).map_err(|_| InvalidSpan)?;
        Self::of_millis(span.as_millis())
    }
}

impl fmt::Display for Span {
    /// In the largest unit that leaves no rest: `3650d`, `90s`, `1500ms`. It reads back as it is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let whole = UNITS.into_iter().find(|(unit, _)| millis != 0 && millis.is_multiple_of(u128::from(*unit)));
        let (unit, name) = whole.unwrap_or((1_000, "s"));
        write!(f, "{}{name}", millis / u128::from(unit))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}ms", self.0.as_millis()))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a duration: a number of seconds or a string such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"",
                )
            }

            fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<Span, E> {
                Span::of_millis(u128::from(seconds) * 1_000).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Span, E> {
                u64::try_from(seconds).map_err(|_| E::custom(InvalidSpan)).and_then(|seconds| self.visit_u64(seconds))
            }

            fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> Result<Span, E> {
                Span::from_seconds(seconds).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }

        from.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_what_people_write() {
        let check = |json: &str, millis: Option<u64>| {
            let read = serde_json::from_str::<Span>(json).ok().map(|span| span.0.as_millis() as u64);
            assert_eq!(read, millis, "{json}");
        };
        check("90", Some(90_000));
        check("1.5", Some(1_500));
        check("0.007", Some(7));
        check("\"1500ms\"", Some(1_500));
        check("\"10s\"", Some(10_000));
        check("\"5m\"", Some(300_000));
        check("\"2h\"", Some(7_200_000));
        check("\"7d\"", Some(604_800_000));
        check("\"90\"", Some(90_000));
        check("-1", None);
        check("\"-1s\"", None);
        check("\"soon\"", None);
        check("\"\"", None);
        check("true", None);
        check("1e300", None);
        check("18446744073709551615", None);
        // The units of one text add up, to more than can be read when it is written in one.
        check("\"3000ms795236367000 00 m\"", None);
    }

    #[test]
    fn a_span_is_shown_in_the_largest_whole_unit() {
        let check = |text: &str, shown: &str| assert_eq!(text.parse::<Span>().unwrap().to_string(), shown);
        check("3650d", "3650d");
        check("12h", "12h");
        check("90", "90s");
        check("10m", "10m");
        check("1500ms", "1500ms");
        check("0", "0s");
    }

    #[test]
    fn a_span_writes_what_it_reads() {
        let text = serde_json::to_string(&Span(Duration::from_millis(1_500))).unwrap();
        assert_eq!(text, "\"1500ms\"");
        assert_eq!(serde_json::from_str::<Span>(&text).unwrap().0, Duration::from_millis(1_500));
        let text = serde_json::to_string(&Span(LONGEST)).unwrap();
        assert_eq!(serde_json::from_str::<Span>(&text).unwrap().0, LONGEST);
    }
}
