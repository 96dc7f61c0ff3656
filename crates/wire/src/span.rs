//! Durations: a number of seconds, or a string of a whole number and a unit.
//!
//! A large number without a unit is refused, because it is most likely meant as milliseconds. The
//! limit depends on what the duration is for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration. It reads from `90`, `1.5`, `"1500ms"`, `"10s"`, `"5m"`, `"2h"` and `"7d"`, and is
/// written in whole milliseconds (`"1500ms"`); any fraction of a millisecond is cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// The longest duration: 500 years. A longer one could be written in milliseconds, but not be read
/// again.
const LONGEST: Duration = Duration::from_secs(500 * 365 * 24 * 3600);

/// The largest number without a unit, in seconds.
const MOST_BARE: u64 = 1_000_000;
/// The same for a lease: an hour.
const MOST_BARE_LEASE: u64 = 3_600;
/// The same for a backoff: a day.
const MOST_BARE_WAIT: u64 = 86_400;

/// The units and their milliseconds, the largest first.
const UNITS: [(u64, &str); 5] =
    [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
/// Their names.
const WORDS: [&str; 5] = ["day", "hour", "minute", "second", "millisecond"];

/// The accepted forms, for error messages.
const FORM: &str = "a number of seconds or a whole number with one of the units ms, s, m, h and d, \
                    such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"";
/// The accepted numbers, for error messages.
const NOT_NEGATIVE: &str = "a duration of 0 or more, such as 10 or \"10s\"";

/// Why a text or a number is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpan {
    /// Neither a number nor a number with a unit.
    #[error("must be {FORM}")]
    Unreadable,
    /// Longer than any duration can be.
    #[error("must be at most 182500d")]
    TooLong,
    /// The number is too large to be without a unit.
    #[error(
        "must have a unit: {0} would be {as_seconds} as seconds, or {as_millis} as milliseconds; \
         write \"{0}s\" or \"{0}ms\"",
        as_seconds = Reading(u128::from(*.0) * 1_000),
        as_millis = Reading((*.0).into())
    )]
    NoUnit(u64),
}

impl Span {
    /// A span of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Reads a text. A number without a unit may be at most `most` seconds.
    fn read(text: &str, most: u64) -> Result<Self, InvalidSpan> {
        let digits = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        let (count, name) = text.split_at(digits);
        if count.is_empty() {
            return Err(InvalidSpan::Unreadable);
        }
        if let Some((unit, _)) = UNITS.into_iter().find(|(_, unit)| *unit == name) {
            // A number with too many digits is too long.
            let count: u64 = count.parse().map_err(|_| InvalidSpan::TooLong)?;
            return Self::of_millis(u128::from(count) * u128::from(unit));
        }
        if name.is_empty() {
            return Self::of_bare(count.parse().map_err(|_| InvalidSpan::TooLong)?, most);
        }
        let is_fraction =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match name.strip_prefix('.') {
            Some(fraction) if is_fraction(fraction) => {
                Self::of_bare_fraction(text.parse().map_err(|_| InvalidSpan::Unreadable)?, most)
            }
            _ => Err(InvalidSpan::Unreadable),
        }
    }

    fn of_bare(seconds: u64, most: u64) -> Result<Self, InvalidSpan> {
        if seconds <= most {
            return Self::of_millis(u128::from(seconds) * 1_000);
        }
        Self::of_millis(seconds.into())?;
        Err(InvalidSpan::NoUnit(seconds))
    }

    fn of_bare_fraction(seconds: f64, most: u64) -> Result<Self, InvalidSpan> {
        if seconds > most as f64 {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is positive, and saturates"
            )]
            return Self::of_bare(seconds.ceil() as u64, most);
        }
        let span = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidSpan::Unreadable)?;
        // Rounded to the nearest millisecond: 0.007 as a double is slightly less than 7 ms.
        Self::of_millis(span.as_micros().div_ceil(500).div_euclid(2))
    }

    fn of_millis(millis: u128) -> Result<Self, InvalidSpan> {
        if millis > LONGEST.as_millis() {
            return Err(InvalidSpan::TooLong);
        }
        Ok(Self(Duration::from_millis(u64::try_from(millis).map_err(|_| InvalidSpan::TooLong)?)))
    }
}

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        Self::read(text, MOST_BARE)
    }
}

/// Reads a lease.
///
/// # Errors
/// As [`Span::from_str`]; a number without a unit may be at most an hour.
pub fn lease_of(text: &str) -> Result<Span, InvalidSpan> {
    Span::read(text, MOST_BARE_LEASE)
}

/// Reads a wait of a backoff.
///
/// # Errors
/// As [`Span::from_str`]; a number without a unit may be at most a day.
pub fn wait_of(text: &str) -> Result<Span, InvalidSpan> {
    Span::read(text, MOST_BARE_WAIT)
}

/// Milliseconds as words, in the two largest units: `20 days 20 hours`.
struct Reading(u128);

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut parts = Vec::new();
        for ((unit, _), word) in UNITS.into_iter().zip(WORDS) {
            let count = rest / u128::from(unit);
            rest %= u128::from(unit);
            match count {
                0 if parts.is_empty() => {}
                0 => break,
                1 => parts.push(format!("1 {word}")),
                _ => parts.push(format!("{count} {word}s")),
            }
            if parts.len() == 2 {
                break;
            }
        }
        f.write_str(&parts.join(" "))
    }
}

impl fmt::Display for Span {
    /// Writes the largest unit of which the duration is a whole multiple: `3650d`, `90s`, `1500ms`.
    /// The text reads back as the same duration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let whole = UNITS
            .into_iter()
            .find(|(unit, _)| millis != 0 && millis.is_multiple_of(u128::from(*unit)));
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
        UpTo::<MOST_BARE>::span(from)
    }
}

/// A lease: a number without a unit may be at most an hour.
pub type Lease = UpTo<MOST_BARE_LEASE>;
/// A wait of a backoff: a number without a unit may be at most a day.
pub(crate) type Wait = UpTo<MOST_BARE_WAIT>;

/// A span for which a number without a unit may be at most `MOST` seconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct UpTo<const MOST: u64>(pub Span);

impl<const MOST: u64> UpTo<MOST> {
    /// For `deserialize_with`: the span alone.
    pub fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        Self::deserialize(from).map(|UpTo(span)| span)
    }
}

impl<'de, const MOST: u64> Deserialize<'de> for UpTo<MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<const MOST: u64>;

        impl<const MOST: u64> Visitor<'_> for Reader<MOST> {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a duration: a number of seconds or a string such as \"1500ms\", \"10s\", \
                     \"5m\", \"2h\" or \"7d\"",
                )
            }

            fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<Span, E> {
                Span::of_bare(seconds, MOST).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Span, E> {
                match u64::try_from(seconds) {
                    Ok(seconds) => self.visit_u64(seconds),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(seconds), &NOT_NEGATIVE)),
                }
            }

            fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> Result<Span, E> {
                match seconds {
                    ..0.0 => Err(E::invalid_value(Unexpected::Float(seconds), &NOT_NEGATIVE)),
                    _ => Span::of_bare_fraction(seconds, MOST).map_err(E::custom),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                Span::read(text, MOST).map_err(|error| match error {
                    InvalidSpan::Unreadable => E::invalid_value(Unexpected::Str(text), &FORM),
                    _ => E::custom(error),
                })
            }
        }

        from.deserialize_any(Reader::<MOST>).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_what_people_write() {
        let check = |json: &str, millis: Option<u64>| {
            let read =
                serde_json::from_str::<Span>(json).ok().map(|span| span.0.as_millis() as u64);
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
        check("1000000", Some(1_000_000_000));
        check("1000000.5", None);
        check("\"1000001\"", None);
        check("\"1000001s\"", Some(1_000_001_000));
        for text in [
            "5M",
            "1w",
            "1y",
            "1M",
            "30 minutes",
            "30min",
            "1h30m",
            "1h 30m",
            "1.5h",
            "1H",
            "5us",
            "5sec",
        ] {
            check(&format!("\"{text}\""), None);
        }
        for text in [" 5m", "5m ", "5 m", "+5", "1e3", ".5", "5.", "inf", "NaN", "0x10", "٥m"] {
            check(&format!("\"{text}\""), None);
        }
    }

    /// `delay: 1800000`, meant as milliseconds, was once read as 20 days.
    #[test]
    fn a_large_number_without_a_unit_is_told_both_readings() {
        let check = |text: &str, says: &str| {
            let said = text.parse::<Span>().unwrap_err().to_string();
            assert_eq!(said, says, "{text}");
            assert!(
                serde_json::from_str::<Span>(text).unwrap_err().to_string().starts_with(says),
                "{text}"
            );
        };
        check(
            "1800000",
            "must have a unit: 1800000 would be 20 days 20 hours as seconds, or 30 minutes as \
             milliseconds; write \"1800000s\" or \"1800000ms\"",
        );
        check(
            "1000001",
            "must have a unit: 1000001 would be 11 days 13 hours as seconds, or 16 minutes 40 \
             seconds as milliseconds; write \"1000001s\" or \"1000001ms\"",
        );
        check("1800000.0", &InvalidSpan::NoUnit(1_800_000).to_string());
        check("18446744073709551615", "must be at most 182500d");
    }

    #[test]
    fn the_bound_of_a_number_without_a_unit_fits_what_it_is_for() {
        let check = |read: fn(&str) -> Result<Span, InvalidSpan>, most: u64| {
            assert_eq!(read(&most.to_string()), Ok(Span::seconds(most)));
            assert_eq!(read(&(most + 1).to_string()), Err(InvalidSpan::NoUnit(most + 1)));
            assert_eq!(read(&format!("{}s", most + 1)), Ok(Span::seconds(most + 1)));
        };
        check(str::parse, 1_000_000);
        check(lease_of, 3_600);
        check(wait_of, 86_400);
    }

    #[test]
    fn a_span_is_shown_in_the_largest_whole_unit() {
        let check =
            |text: &str, shown: &str| assert_eq!(text.parse::<Span>().unwrap().to_string(), shown);
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
