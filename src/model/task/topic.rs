//! The name of a topic.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::{InvalidName, is_made_of};

/// The maximum length of a topic name, in bytes.
const MAX_LENGTH: usize = 128;

/// The name of a topic: 1–128 of `A-Z a-z 0-9 . _ : -`. Cheap to clone.
///
/// Braces are not allowed: the name of a lane becomes a hash tag of Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Arc<str>);

impl Topic {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Topic {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        if name.is_empty() || name.len() > MAX_LENGTH || !is_made_of(name, "._:-") {
            return Err(InvalidName(format!(
                "must be 1 to {MAX_LENGTH} characters out of A-Z a-z 0-9 . _ : -"
            )));
        }
        Ok(Self(name.into()))
    }
}

impl Serialize for Topic {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_1_to_128_plain_characters() {
        let check = |name: &str, allowed: bool| {
            assert_eq!(name.parse::<Topic>().is_ok(), allowed, "{name:?}")
        };
        check("order.cancel:v2_eu-1", true);
        check(&"a".repeat(128), true);
        check("", false);
        check(&"a".repeat(129), false);
        check("with space", false);
        check("{tag}", false);
        check("订单", false);
    }
}
