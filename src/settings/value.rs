//! Types of values that sections share.

use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use delayd_wire::Rate;

/// A size in bytes, read from a number of bytes or a text with a unit (`"256KiB"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub ByteSize);

impl Size {
    pub(super) const fn kib(number: u64) -> Self {
        Self(ByteSize::kib(number))
    }

    pub(super) const fn mib(number: u64) -> Self {
        Self(ByteSize::mib(number))
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0.as_u64()).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        ByteSize::deserialize(from).map(Self).map_err(|_| {
            D::Error::custom(
                "must be a number of bytes or a string with a unit, such as \"256KiB\" or \"1MiB\"",
            )
        })
    }
}

/// Reads a type from a text; the error states its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// The same; an empty text is `None`.
pub(super) fn unless_empty<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
}

/// A rate; an empty text means no limit.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    unless_empty(from)
}
