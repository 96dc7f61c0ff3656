//! Reads a time as a person writes it: RFC 3339, RFC 9557, or a local time and its zone.
//!
//! ```text
//! time   = date ("T" | "t" | " ") HH:MM[:SS[.digits]] [offset] [zone] *tag
//! date   = YYYY-MM-DD
//! offset = "Z" | "z" | ("+" | "-") HH:MM
//! zone   = "[" ["!"] (name | offset) "]"
//! tag    = "[" key "=" value "]"
//! ```
//!
//! - Without an offset it is a local time, which needs a zone: in the text or beside it.
//! - `Z` and `-00:00` say that the time is UTC and name no offset (RFC 9557, section 2), so they
//!   agree with every zone. Any other offset must be the one that the zone has at that time.
//! - A local time that a clock change skips moves later by the gap. A repeated one is the first.
//! - A fraction of a millisecond is rounded up, because nothing may be early.
//! - `:60` is allowed where a leap second can be: before midnight UTC at the end of a month. It is
//!   that midnight, as in Unix time.
//! - A tag does not change the moment. It is ignored, and refused if it is critical (`[!key=…]`).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::model::clock::UnixMillis;
use crate::model::zone::{self, Zone};

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;

/// The longest text, in bytes. A time with the longest name of a zone has half of it.
pub const MAX_TEXT: usize = 128;

/// A time that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenTime {
    /// The moment.
    pub moment: UnixMillis,
    /// The zone or offset that was given; UTC for `Z` and `-00:00` alone.
    pub zone: Zone,
}

/// What is wrong, and with which of the two texts. Each text says what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidTime {
    /// The time.
    Time(String),
    /// The zone beside it.
    Zone(String),
}

/// Reads `text`. `zone` is the zone beside it, if there is one.
///
/// # Errors
/// If the text is not a time that exists, or without a zone, or with two that differ.
pub fn read(text: &str, zone: Option<&str>) -> Result<WrittenTime, InvalidTime> {
    let beside = zone.map(Zone::named).transpose();
    let beside = beside.map_err(|error| InvalidTime::Zone(error.to_string()))?;
    if text.len() > MAX_TEXT {
        let length = text.len();
        return Err(InvalidTime::Time(format!("expected at most {MAX_TEXT} bytes, got {length}")));
    }
    let parts = TimeParts::read(text).map_err(InvalidTime::Time)?;
    let within = parts.zone.map(Zone::named).transpose();
    let within = within.map_err(|error| InvalidTime::Time(error.to_string()))?;
    if let (Some(within), Some(beside)) = (&within, &beside)
        && within != beside
    {
        let (within, beside) = (within.name(), beside.name());
        return Err(InvalidTime::Zone(format!("expected {within}, as in the time, got {beside}")));
    }
    resolve(&parts, text, beside.or(within)).map_err(InvalidTime::Time)
}

fn resolve(parts: &TimeParts<'_>, text: &str, zone: Option<Zone>) -> Result<WrittenTime, String> {
    let (time, found) = match (parts.offset, zone) {
        (None, None) => {
            return Err(format!(
                "expected a local time to have a zone, got {text:?}; add an offset such as \
                 +08:00, or give zone"
            ));
        }
        (None, Some(zone)) => {
            let ambiguous = zone.time_zone().to_ambiguous_timestamp(parts.time);
            (ambiguous.compatible(), zone)
        }
        (Some(GivenOffset::Utc), zone) => {
            (Offset::UTC.to_timestamp(parts.time), zone.unwrap_or(Zone::UTC))
        }
        (Some(GivenOffset::Offset(offset)), None) => {
            (offset.to_timestamp(parts.time), Zone::fixed(offset))
        }
        (Some(GivenOffset::Offset(offset)), Some(zone)) => {
            let time = offset.to_timestamp(parts.time);
            let right = time.as_ref().map(|time| zone.time_zone().to_offset(*time));
            if let Ok(right) = right
                && right != offset
            {
                let (name, right, got) = (zone.name(), zone::shown(right), zone::shown(offset));
                return Err(format!(
                    "expected the offset of {name} at that time, {right}, got {got}"
                ));
            }
            (time, zone)
        }
    };
    let time = time
        .map_err(|_| format!("expected a time before {}, got {text:?}", "9999-12-30T22:00:00Z"))?;
    if parts.is_leap_second && !is_last_of_month(time) {
        return Err(format!(
            "expected the second 60 only as a leap second, at 23:59:60 UTC on the last day of a \
             month, got {text:?}"
        ));
    }
    let later = i64::from(parts.is_leap_second) * 1_000 + i64::from(parts.millis);
    Ok(WrittenTime { moment: UnixMillis(time.as_millisecond() + later), zone: found })
}

/// Whether it is the last second of a month in UTC.
fn is_last_of_month(time: Timestamp) -> bool {
    let second = time.as_second() + 1;
    let next = Timestamp::from_second(second).map(|next| Offset::UTC.to_datetime(next).day());
    second % 86_400 == 0 && next.is_ok_and(|day| day == 1)
}

/// The parts of a text, before the zone is known.
#[derive(Debug)]
struct TimeParts<'a> {
    /// Date and time, in whole seconds. A leap second is the second before it here.
    time: DateTime,
    is_leap_second: bool,
    /// The fraction of the second, rounded up: 0 to 1000.
    millis: u16,
    offset: Option<GivenOffset>,
    zone: Option<&'a str>,
}

/// The offset of a text.
#[derive(Clone, Copy, Debug)]
enum GivenOffset {
    /// `Z` or `-00:00`: in UTC, without an offset.
    Utc,
    Offset(Offset),
}

impl<'a> TimeParts<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut rest = Rest(text);
        let Some((numbers, millis)) = rest.date_and_time() else { return Err(malformed(text)) };
        let [year, month, day, hour, minute, second] = numbers;
        let is_leap_second = second == 60;
        let second = if is_leap_second { 59 } else { second };
        let year = i16::try_from(year).expect("it has four digits");
        let [month, day, hour, minute, second] =
            [month, day, hour, minute, second].map(|n| i8::try_from(n).expect("it has two digits"));
        let time = DateTime::new(year, month, day, hour, minute, second, 0)
            .map_err(|_| format!("expected a date and a time that exist, got {text:?}"))?;
        let offset = rest.offset().ok_or_else(|| malformed(text))?;
        let zone = rest.suffix().map_err(|wrong| wrong.unwrap_or_else(|| malformed(text)))?;
        if !rest.0.is_empty() {
            return Err(malformed(text));
        }
        Ok(Self { time, is_leap_second, millis, offset, zone })
    }
}

/// `text` has at most [`MAX_TEXT`] bytes.
fn malformed(text: &str) -> String {
    format!(
        "expected a time such as \"2026-11-23T20:00:00+08:00\" or \
         \"2026-11-23T20:00:00[Asia/Shanghai]\", got {text:?}"
    )
}

/// What is left of a text.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes one of these characters.
    fn take(&mut self, any: &[char]) -> Option<char> {
        let first = self.0.chars().next().filter(|first| any.contains(first))?;
        self.0 = &self.0[first.len_utf8()..];
        Some(first)
    }

    /// Takes a number of exactly `count` digits.
    fn number(&mut self, count: usize) -> Option<u16> {
        let digits = self.0.get(..count).filter(|some| some.bytes().all(|b| b.is_ascii_digit()))?;
        self.0 = &self.0[count..];
        digits.parse().ok()
    }

    /// Takes all digits that follow.
    fn digits(&mut self) -> &'a str {
        let end = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits
    }

    /// Year, month, day, hour, minute and second; and the fraction in milliseconds, rounded up.
    fn date_and_time(&mut self) -> Option<([u16; 6], u16)> {
        let year = self.number(4)?;
        self.take(&['-'])?;
        let month = self.number(2)?;
        self.take(&['-'])?;
        let day = self.number(2)?;
        self.take(&['T', 't', ' '])?;
        let hour = self.number(2)?;
        self.take(&[':'])?;
        let minute = self.number(2)?;
        let (mut second, mut millis) = (0, 0);
        if self.take(&[':']).is_some() {
            second = self.number(2)?;
            if self.take(&['.']).is_some() {
                millis = millis_of(self.digits())?;
            }
        }
        Some(([year, month, day, hour, minute, second], millis))
    }

    /// `Some(None)` if there is no offset, and `None` if there is a wrong one.
    fn offset(&mut self) -> Option<Option<GivenOffset>> {
        if self.take(&['Z', 'z']).is_some() {
            return Some(Some(GivenOffset::Utc));
        }
        if !self.0.starts_with(['+', '-']) {
            return Some(None);
        }
        let text = self.0.get(..6)?;
        let offset = zone::offset(text.as_bytes())?;
        self.0 = &self.0[6..];
        Some(Some(if text == "-00:00" { GivenOffset::Utc } else { GivenOffset::Offset(offset) }))
    }

    /// The zone of the suffix, after a check of the tags. An error without a text: it is malformed.
    fn suffix(&mut self) -> Result<Option<&'a str>, Option<String>> {
        let mut zone = None;
        let mut is_first = true;
        while let Some(inner) = self.0.strip_prefix('[') {
            let (inner, rest) = inner.split_once(']').ok_or(None)?;
            self.0 = rest;
            let bare = inner.strip_prefix('!').unwrap_or(inner);
            match bare.split_once('=') {
                Some((key, value)) if is_key(key) && is_value(value) => {
                    if bare.len() < inner.len() {
                        return Err(Some(format!(
                            "expected no critical tag but a zone, got \"[{inner}]\""
                        )));
                    }
                }
                None if is_first && !bare.is_empty() => zone = Some(bare),
                _ => return Err(None),
            }
            is_first = false;
        }
        Ok(zone)
    }
}

/// The digits of a fraction in milliseconds, rounded up. `None` without digits.
fn millis_of(digits: &str) -> Option<u16> {
    let (whole, beyond) = digits.split_at(digits.len().min(3));
    let millis: u16 = whole.parse().ok()?;
    let millis = millis * [100, 10, 1][whole.len() - 1];
    Some(millis + u16::from(beyond.bytes().any(|digit| digit != b'0')))
}

/// The key of a tag: `u-ca`.
fn is_key(key: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    key.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && key.bytes().all(is_inner)
}

/// The value of a tag: words of letters and digits with `-` between them.
fn is_value(value: &str) -> bool {
    value.split('-').all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests;
