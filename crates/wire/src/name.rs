//! Names and ids: each is checked when it is read.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::DeserializeFromStr;

const PULL: &str = "@pull";
/// The largest id: 2^53 - 1.
pub(crate) const MAX_ID: u64 = (1 << 53) - 1;

/// The error for an invalid name (topic, service, receipt). Its text states the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub String);

/// Declares a name: a text that follows a rule. Cheap to clone.
macro_rules! name {
    ($(#[$attribute:meta])* $name:ident: $rule:expr, $says:literal) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, DeserializeFromStr)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                if $rule(text) { Ok(Self(text.into())) } else { Err(InvalidName($says.into())) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a topic: 1–128 of `A-Z a-z 0-9 . _ : -`.
    ///
    /// Braces are not allowed: the name of a lane becomes a hash tag of Redis Cluster.
    Topic: |text| is_made_of(text, 128, "._:-"),
    "must be 1 to 128 characters out of A-Z a-z 0-9 . _ : -"
}

name! {
    /// The token of one claim: random and opaque to callers.
    ///
    /// All tasks of a claim share it; with the id of a task it names one lease. The store keeps it
    /// with the deadline, and refuses settles with another receipt.
    Receipt: |text| is_made_of(text, 64, "_-"),
    "must be the receipt of a lease, as it was handed out"
}

name! {
    /// A service name (`sn`, 1–128 of `A-Z a-z 0-9 . _ -`), a host with its port
    /// (`hooks.example.com:443`), or `@pull`.
    ///
    /// A host always has its port, even if the URL omits it, so hosts and services cannot be
    /// confused. A lane has one due index per destination, so a blocked destination does not delay
    /// others.
    Destination: is_destination,
    "must be 1 to 128 characters out of A-Z a-z 0-9 . _ -"
}

/// Whether `text` has 1 to `most` ASCII letters, digits and characters of `others`.
fn is_made_of(text: &str, most: usize, others: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte);
    (1..=most).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_destination(text: &str) -> bool {
    let is_port = |port: &str| {
        port.len() <= 5 && port.parse::<u16>().is_ok() && !port.starts_with(['0', '+'])
    };
    let (host, has_port) = match text.split_once(':') {
        Some((host, port)) => (host, is_port(port)),
        None => (text, true),
    };
    text == PULL || has_port && text.len() <= 128 && is_made_of(host, 128, "._-")
}

impl Receipt {
    /// Returns a new receipt: 96 random bits as 24 hexadecimal digits.
    pub fn random() -> Self {
        let [a, b, c]: [u32; 3] = rand::random();
        Self(format!("{a:08x}{b:08x}{c:08x}").into())
    }
}

impl Destination {
    /// The destination of tasks that consumers pull.
    pub fn pull() -> Self {
        Self(PULL.into())
    }

    /// Whether consumers pull the tasks, instead of workers calling.
    pub fn is_pull(&self) -> bool {
        &*self.0 == PULL
    }

    /// The host and port of an absolute URL of a caller, if they are valid as a name.
    pub fn host(host: &str, port: u16) -> Option<Self> {
        format!("{host}:{port}").parse().ok()
    }

    /// Whether this is a host of a URL.
    pub fn is_host(&self) -> bool {
        self.0.contains(':')
    }

    /// Whether this is the name of a service.
    pub fn is_service(&self) -> bool {
        !self.is_pull() && !self.is_host()
    }
}

/// A task's id: 1 to 2^53 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TaskId(pub u64);

impl TaskId {
    /// For `deserialize_with`: an id that must be there.
    pub(crate) fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::if_given(from)?.ok_or_else(|| serde::de::Error::custom("is missing"))
    }

    /// For `deserialize_with`: the id, unless the field is absent or 0. 0 is absent, because it is
    /// a Go client's zero value.
    pub(crate) fn if_given<'de, D>(from: D) -> Result<Option<Self>, D::Error>
    where
        D: Deserializer<'de>,
    {
        Ok(Option::<Self>::deserialize(from)?.filter(|id| id.0 != 0))
    }
}

impl FromStr for TaskId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.parse() {
            Ok(number) if (1..=MAX_ID).contains(&number) => Ok(Self(number)),
            _ => Err(InvalidName("must be a whole number from 1 to 9007199254740991".into())),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a number or a string of digits. 0 is no id.
impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = TaskId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or a string of digits")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<TaskId, E> {
                match number {
                    ..=MAX_ID => Ok(TaskId(number)),
                    _ => self.visit_str(&number.to_string()),
                }
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<TaskId, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<TaskId, E> {
                // PHP and Lua write large whole numbers as 1.795234567000042e15.
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<TaskId, E> {
                if !text.is_empty() && text.bytes().all(|byte| byte == b'0') {
                    return Ok(TaskId(0));
                }
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
    fn a_topic_is_1_to_128_plain_characters() {
        let check = |name: &str, allowed: bool| {
            assert_eq!(name.parse::<Topic>().is_ok(), allowed, "{name:?}");
            let json = serde_json::to_string(name).unwrap();
            assert_eq!(serde_json::from_str::<Topic>(&json).is_ok(), allowed, "{name:?}");
        };
        check("order.cancel:v2_eu-1", true);
        check(&"a".repeat(128), true);
        check("", false);
        check(&"a".repeat(129), false);
        check("with space", false);
        check("{tag}", false);
        check("订单", false);
        assert!(serde_json::from_str::<Topic>("5").is_err());
    }

    #[test]
    fn a_destination_is_a_service_a_host_with_its_port_or_the_consumers() {
        let check = |name: &str, expected: Option<(bool, bool)>| {
            let read = name.parse::<Destination>().ok();
            assert_eq!(read.map(|read| (read.is_service(), read.is_host())), expected, "{name:?}");
        };
        check("message.call_v2-eu", Some((true, false)));
        check("@pull", Some((false, false)));
        check("hooks.example.com:443", Some((false, true)));
        check("10.0.0.1:65535", Some((false, true)));
        check(&"a".repeat(128), Some((true, false)));
        check(&"a".repeat(129), None);
        check(&format!("{}:80", "a".repeat(126)), None);
        check("", None);
        check(":80", None);
        check("h:", None);
        check("h:0", None);
        check("h:080", None);
        check("h:+80", None);
        check("h:65536", None);
        check("h:80:80", None);
        check("[::1]:80", None);
        check("@push", None);
        check("a b", None);
        check("a{b}", None);
    }

    #[test]
    fn an_id_is_a_number_or_digits_and_zero_is_none() {
        let check = |json: &str, expected: Option<u64>| {
            let read = serde_json::from_str::<TaskId>(json).ok().map(|id| id.0);
            assert_eq!(read, expected, "{json}");
        };
        check("1795234567000042", Some(1_795_234_567_000_042));
        check("\"1795234567000042\"", Some(1_795_234_567_000_042));
        check("1.795234567000042e15", Some(1_795_234_567_000_042));
        check("9007199254740991", Some(9_007_199_254_740_991));
        check("0", Some(0));
        check("\"0\"", Some(0));
        check("0.0", Some(0));
        check("9007199254740992", None);
        check("18446744073709551616", None);
        check("-1", None);
        check("1.5", None);
        check("\"\"", None);
        check("\"0x10\"", None);
        check("true", None);
    }
}
