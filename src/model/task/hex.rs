//! Numbers that are written as 16 hexadecimal digits.

/// The number, if the text is 16 digits out of `0-9 a-f`.
pub(crate) fn read_hex(text: &str) -> Option<u64> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_plain = text.len() == 16 && text.bytes().all(is_digit);
    is_plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// Reads and writes a type that holds a `u64`, also in JSON. The text says what is wrong with
/// another text.
macro_rules! written_as_hex {
    ($type:ident, $wrong:literal) => {
        impl std::str::FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let read = super::hex::read_hex(text).map(Self);
                read.ok_or_else(|| InvalidName($wrong.into()))
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
