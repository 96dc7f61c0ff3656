//! The digest of a content that was removed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::InvalidName;

/// The first 64 bits of the SHA-1 of a task's content. Written as 16 hexadecimal digits. A task
/// whose content was removed is recognized by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentDigest(u64);

impl ContentDigest {
    /// The digest of a content.
    pub fn of(content: &str) -> Self {
        let [first @ .., _, _, _, _, _, _, _, _, _, _, _, _] =
            sha1_smol::Sha1::from(content).digest().bytes();
        Self(u64::from_be_bytes(first))
    }
}

impl FromStr for ContentDigest {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_plain =
            text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let read = is_plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        read.map(Self).ok_or_else(|| InvalidName("must be 16 characters out of 0-9 a-f".into()))
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for ContentDigest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentDigest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf abc | sha1sum` begins with it. The scripts of the Redis store compute the same.
    #[test]
    fn a_digest_is_the_beginning_of_a_sha1() {
        assert_eq!(ContentDigest::of("abc").to_string(), "a9993e364706816a");
        assert_eq!("a9993e364706816a".parse(), Ok(ContentDigest::of("abc")));
        for text in ["", "a9993e364706816", "A9993E364706816A", "a9993e364706816ab"] {
            assert!(text.parse::<ContentDigest>().is_err(), "{text}");
        }
    }
}
