//! Values of requests and answers, each with a type of its own.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// A time, in milliseconds since 1970.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

/// A time as text (RFC 3339, UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Rfc3339(pub String);

/// A value that is out of its range. The text names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: must be {what}from {from} to {to}, not {given}")]
pub struct OutOfRange {
    pub field: String,
    pub what: &'static str,
    pub from: String,
    pub to: String,
    pub given: String,
}

/// Any number of a request.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(transparent)]
pub struct Number(pub f64);

impl Number {
    /// The number, if it is whole and within `range`.
    ///
    /// # Errors
    /// [`OutOfRange`], naming `field`.
    pub fn whole(self, field: &str, range: RangeInclusive<u32>) -> Result<u32, OutOfRange> {
        let (from, to) = range.into_inner();
        if self.0.fract() == 0.0 && (f64::from(from)..=f64::from(to)).contains(&self.0) {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "just checked to be within u32"
            )]
            return Ok(self.0 as u32);
        }
        let (from, to, given) = (from.to_string(), to.to_string(), self.to_string());
        Err(OutOfRange { field: field.into(), what: "a whole number ", from, to, given })
    }
}

impl<T: Into<f64>> From<T> for Number {
    fn from(number: T) -> Self {
        Self(number.into())
    }
}

impl Display for Number {
    /// Short: `1e300` would otherwise have 300 zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.abs() < 1e15 { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

impl Serialize for Number {
    /// A whole number without a fraction.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[allow(clippy::cast_possible_truncation, reason = "just checked to be whole and small")]
        match self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            true => to.serialize_i64(self.0 as i64),
            false => to.serialize_f64(self.0),
        }
    }
}

/// A list of at most `MOST` entries. Reading stops at the first excess one.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct AtMost<T, const MOST: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Reader<T, MOST> {
            type Value = AtMost<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = entries.next_element()? {
                    if list.len() == MOST {
                        return Err(serde::de::Error::custom(format_args!(
                            "must hold at most {MOST} entries"
                        )));
                    }
                    list.push(entry);
                }
                Ok(AtMost(list))
            }
        }

        from.deserialize_seq(Reader(PhantomData))
    }
}

/// For `deserialize_with`: an object that may be absent. A derived reader alone would also accept
/// an array, field by field.
pub(crate) fn object_if_given<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Object<T>>::deserialize(from)?.map(|Object(object)| object))
}

/// A value that is read from an object only.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        from.deserialize_map(Reader(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_keeps_to_its_range() {
        let check = |number: f64, expected: Option<u32>| {
            assert_eq!(Number(number).whole("count", 1..=256).ok(), expected, "{number}");
        };
        check(1.0, Some(1));
        check(256.0, Some(256));
        check(0.0, None);
        check(257.0, None);
        check(1.5, None);
        check(-1.0, None);
        check(1e300, None);
        let error = Number(0.0).whole("count", 1..=256).unwrap_err().to_string();
        assert_eq!(error, "count: must be a whole number from 1 to 256, not 0");
        let error = Number(1e300).whole("count", 1..=256).unwrap_err().to_string();
        assert_eq!(error, "count: must be a whole number from 1 to 256, not 1e300");
    }

    #[test]
    fn a_number_is_written_as_it_was_given() {
        let check = |text: &str| {
            let number: Number = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&number).unwrap(), text);
        };
        check("5");
        check("-5");
        check("1795234567.042");
    }
}
