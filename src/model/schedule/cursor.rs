//! The cursor of a schedule: the nominal local time of its last planned occurrence.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest text of a cursor, in bytes.
const LONGEST: usize = 32;
/// What marks the second pass of a repeated local time.
const SECOND_PASS: &str = "/1";

/// A nominal local time, and whether it is the second pass of a time that a clock change repeats.
///
/// It is a local time, not a moment: instances whose zone data differ then never plan one local
/// time twice. Its text is `2026-11-01T01:30:00`, or `2026-11-01T01:30:00/1` in the second pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalCursor {
    pub(super) local: DateTime,
    pub(super) second_pass: bool,
}

/// A text that is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cursor: expected a local time such as 2026-11-01T01:30:00 or 2026-11-01T01:30:00/1")]
pub struct InvalidCursor;

impl fmt::Display for LocalCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.local, if self.second_pass { SECOND_PASS } else { "" })
    }
}

impl FromStr for LocalCursor {
    type Err = InvalidCursor;

    /// Reads exactly what `Display` writes.
    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        if text.len() > LONGEST {
            return Err(InvalidCursor);
        }
        let (local, second_pass) = match text.strip_suffix(SECOND_PASS) {
            Some(local) => (local, true),
            None => (text, false),
        };
        let local: DateTime = local.parse().map_err(|_| InvalidCursor)?;
        let cursor = Self { local, second_pass };
        (cursor.to_string() == text).then_some(cursor).ok_or(InvalidCursor)
    }
}

impl Serialize for LocalCursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LocalCursor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
