//! The digest of a content that was removed.

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

written_as_hex!(ContentDigest, "must be 16 characters out of 0-9 a-f");

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
