//! Where a task goes: a service by name, or the consumers that pull.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{InvalidName, is_made_of};

/// The longest service name, in bytes.
const MAX_LENGTH: usize = 128;
const PULL: &str = "@pull";

/// A service name (`sn`, 1–128 of `A-Z a-z 0-9 . _ -`), or `@pull`. Cheap to clone.
///
/// A lane keeps one schedule per destination, so that a blocked destination has nobody standing behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination(Arc<str>);

impl Destination {
    /// The consumers of a topic, who pull.
    pub fn pull() -> Self {
        Self(PULL.into())
    }

    /// Whether consumers pull it, rather than a worker calling it.
    pub fn is_pull(&self) -> bool {
        &*self.0 == PULL
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Destination {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        let is_service = !name.is_empty() && name.len() <= MAX_LENGTH && is_made_of(name, "._-");
        if name != PULL && !is_service {
            return Err(InvalidName(format!("must be 1 to {MAX_LENGTH} characters out of A-Z a-z 0-9 . _ -")));
        }
        Ok(Self(name.into()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
