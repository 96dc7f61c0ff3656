//! Types of values that sections share: enums, sizes, and texts without passwords.

use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;
use config::{Value, ValueKind};
use serde::{Deserialize, Deserializer};

use delayd_wire::Rate;

/// An enum that is read from names. The error lists all names.
macro_rules! choice {
    (
        $(#[$of_enum:meta])*
        $name:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal),+ $(,)? }
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$of_variant])* $variant),+ }

        impl $name {
            /// The name used in the configuration.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                match String::deserialize(from)?.as_str() {
                    $($text => Ok(Self::$variant),)+
                    _ => {
                        let names = [$(concat!("\"", $text, "\"")),+].join(" or ");
                        Err(serde::de::Error::custom(format!("must be {names}")))
                    }
                }
            }
        }
    };
}
pub(super) use choice;

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
        let text = String::deserialize(from)?;
        let size = text.parse().map_err(|_| {
            serde::de::Error::custom(
                "must be a number of bytes or a string with a unit, such as \"256KiB\" or \"1MiB\"",
            )
        })?;
        Ok(Self(size))
    }
}

/// Reads a type from a text; the error states its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// The same; an empty text is `None`.
pub(super) fn unless_empty<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    if text.is_empty() {
        Ok(None)
    } else {
        text.parse().map(Some).map_err(serde::de::Error::custom)
    }
}

/// A rate; an empty text means no limit.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    unless_empty(from)
}

/// Sections and keys whose values are never shown, whatever their type.
const SECRET: [&str; 8] =
    ["auth", "tokens", "token_sha256", "secrets", "headers", "client_key", "client_secret", "key"];
/// Exceptions, which may be shown.
const NO_SECRET: [&str; 5] = ["anonymous", "name", "scopes", "topics", "rate"];

fn is_secret<T: AsRef<str>>(path: &[T]) -> bool {
    let mut named = path.iter().map(AsRef::as_ref).filter(|part| !part.starts_with('['));
    let last = named.clone().next_back().unwrap_or_default();
    // A header may have any name.
    named.clone().any(|part| part == "headers")
        || named.any(|part| SECRET.contains(&part)) && !NO_SECRET.contains(&last)
}

/// The value at `path`, as shown in errors.
pub(super) fn given<T: AsRef<str>>(path: &[T], value: &Value) -> String {
    let is_token_url = path.last().is_some_and(|key| key.as_ref() == "token_url");
    match &value.kind {
        _ if is_secret(path) => "***".into(),
        // The query may hold a key.
        ValueKind::String(text) if is_token_url => match text.split_once('?') {
            Some((address, _)) => shown(&Value::from(format!("{address}?***"))),
            None => shown(value),
        },
        _ => shown(value),
    }
}

/// Masks all that may be a user and password in an address: the text between `://` and the last
/// `@`, and a query that may hold a password.
pub(super) fn redacted(text: &str) -> String {
    let text = match text.find('?') {
        Some(query) if text[query..].contains("sentinel") => &format!("{}?***", &text[..query]),
        _ => text,
    };
    let Some(end) = text.rfind('@') else { return text.to_owned() };
    let start = text[..end].find("://").map_or(0, |scheme_end| scheme_end + 3);
    format!("{}***{}", &text[..start], &text[end..])
}

/// A value as shown in errors: like TOML, shortened, without passwords.
fn shown(value: &Value) -> String {
    let text = match &value.kind {
        ValueKind::String(text) => format!("{:?}", redacted(text)),
        ValueKind::Array(values) => {
            format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Table(table) => {
            let mut pairs: Vec<_> = table
                .iter()
                .map(|(key, value)| format!("{key} = {}", given(&[key], value)))
                .collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        ValueKind::Nil => "nothing".into(),
        other => other.to_string(),
    };
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_taken_out_even_of_malformed_addresses() {
        let check = |given: &str, expected: &str| assert_eq!(redacted(given), expected);
        check("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0");
        check("redis://:secret@host:1/0", "redis://***@host:1/0");
        check("redis://me:sec@ret@host", "redis://***@host");
        check("redis:/me:secret@host", "***@host");
        check("http://h/a@b", "http://***@b");
        check("redis://:secret@host/0?sentinel_password=sec@ret", "redis://***@host/0?***");
    }
}
