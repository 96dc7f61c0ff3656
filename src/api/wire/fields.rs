//! The types of request fields, and checks of their ranges.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::api::wire::error::Error;
use crate::model::task::{Destination, InvalidName, Receipt, TaskId, Topic};
use delayd_wire::span::{self, Span};

/// A string that is parsed as a `T`, such as a topic or a receipt.
#[derive(Debug)]
pub(crate) struct Name<T>(pub(crate) T);

impl<'de, T: FromStr<Err = InvalidName>> Deserialize<'de> for Name<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<T: FromStr<Err = InvalidName>> Visitor<'_> for Reader<T> {
            type Value = Name<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Name<T>, E> {
                text.parse().map(Name).map_err(E::custom)
            }
        }

        from.deserialize_str(Reader(PhantomData))
    }
}

/// The cursor of a call over all topics: the last topic that was looked at. The topics are looked
/// at in the order of their names.
#[derive(Debug)]
pub(crate) struct LastTopic(pub(crate) Topic);

impl FromStr for LastTopic {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let wrong = |_| InvalidName("must be the cursor of the previous call, unchanged".into());
        text.parse().map(Self).map_err(wrong)
    }
}

pub(crate) type TopicName = Name<Topic>;
pub(crate) type ServiceName = Name<Destination>;
pub(crate) type ReceiptText = Name<Receipt>;

/// A lease: a duration for which a number without a unit may be at most an hour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease(pub(crate) Span);

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        span::lease(from).map(Self)
    }
}

/// A task's id: a number or a string of digits. 0 is absent, because it is a Go client's zero
/// value.
#[derive(Debug)]
pub(crate) struct Id(Option<TaskId>);

impl Id {
    /// The id, unless the field is absent or 0.
    pub(crate) fn given(field: Option<Self>) -> Option<TaskId> {
        field.and_then(|id| id.0)
    }

    /// Whether the field names a task: 0 does not.
    pub(crate) fn is_given(&self) -> bool {
        self.0.is_some()
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or a string of digits")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Id, E> {
                match number {
                    0 => Ok(Id(None)),
                    _ => self.visit_str(&number.to_string()),
                }
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Id, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Id, E> {
                // PHP and Lua write large whole numbers as 1.795234567000042e15.
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Id, E> {
                if !text.is_empty() && text.bytes().all(|byte| byte == b'0') {
                    return Ok(Id(None));
                }
                text.parse().map(|id| Id(Some(id))).map_err(E::custom)
            }
        }

        from.deserialize_any(Reader)
    }
}

/// Any number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(pub(crate) f64);

impl Number {
    /// The number, if it is whole and within `range`.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming `field`.
    pub(crate) fn whole(self, field: &str, range: RangeInclusive<u32>) -> Result<u32, Error> {
        let is_whole = self.0.fract() == 0.0
            && self.0 >= f64::from(*range.start())
            && self.0 <= f64::from(*range.end());
        if !is_whole {
            return Err(out_of_range(field, "a whole number ", range.start(), range.end(), self));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "just checked to be within u32"
        )]
        Ok(self.0 as u32)
    }
}

impl Display for Number {
    /// Short: `1e300` would otherwise have 300 zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.abs() < 1e15 { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        #[allow(
            clippy::cast_precision_loss,
            reason = "all numbers of requests are far below 2^53, or out of range"
        )]
        impl Visitor<'_> for Reader {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number as f64))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Number, E> {
                Ok(Number(number as f64))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Number, E> {
                Ok(Number(number))
            }
        }

        from.deserialize_any(Reader)
    }
}

/// A list of at most `MOST` entries. Reading stops at the first excess one.
#[derive(Debug)]
pub(crate) struct AtMost<T, const MOST: usize>(pub(crate) Vec<T>);

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

/// An object in a request. A derived reader alone would also accept an array, field by field.
#[derive(Debug)]
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

        from.deserialize_any(Reader(PhantomData))
    }
}

/// The duration, if it is within `range`.
///
/// # Errors
/// [`Error::Invalid`], naming `field`.
pub(crate) fn within(
    span: Span,
    field: &str,
    range: RangeInclusive<Duration>,
) -> Result<Duration, Error> {
    if range.contains(&span.0) {
        return Ok(span.0);
    }
    Err(out_of_range(field, "", Span(*range.start()), Span(*range.end()), span))
}

fn out_of_range(
    field: &str,
    what: &str,
    from: impl Display,
    to: impl Display,
    given: impl Display,
) -> Error {
    Error::Invalid(format!("{field}: must be {what}from {from} to {to}, not {given}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_number_or_digits_and_zero_is_none() {
        let check = |json: &str, expected: Option<Option<u64>>| {
            let read = serde_json::from_str::<Id>(json).ok().map(|id| id.0.map(|id| id.0));
            assert_eq!(read, expected, "{json}");
        };
        check("1795234567000042", Some(Some(1_795_234_567_000_042)));
        check("\"1795234567000042\"", Some(Some(1_795_234_567_000_042)));
        check("1.795234567000042e15", Some(Some(1_795_234_567_000_042)));
        check("9007199254740991", Some(Some(9_007_199_254_740_991)));
        check("0", Some(None));
        check("\"0\"", Some(None));
        check("0.0", Some(None));
        check("9007199254740992", None);
        check("18446744073709551616", None);
        check("-1", None);
        check("1.5", None);
        check("\"\"", None);
        check("\"0x10\"", None);
        check("true", None);
    }

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
    fn a_duration_keeps_to_its_range() {
        let range = Duration::from_millis(100)..=Duration::from_secs(600);
        assert!(within(Span::seconds(600), "timeout", range.clone()).is_ok());
        let error = within(Span::seconds(601), "timeout", range).unwrap_err().to_string();
        assert_eq!(error, "timeout: must be from 100ms to 10m, not 601s");
    }

    #[test]
    fn a_name_follows_its_rule() {
        assert!(serde_json::from_str::<Name<Topic>>("\"order.cancel\"").is_ok());
        let error = serde_json::from_str::<Name<Topic>>("\"a b\"").unwrap_err().to_string();
        assert!(error.starts_with("must be 1 to 128 characters out of"), "{error}");
        assert!(serde_json::from_str::<Name<Topic>>("5").is_err());
    }
}
