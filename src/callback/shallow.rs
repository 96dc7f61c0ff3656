//! A JSON value without the contents of its arrays and objects, and JSON pointers (RFC 6901).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// The longest pointer, in bytes. Outcomes show it, and have at most 200 bytes.
const MOST: usize = 100;

/// A JSON value, without the contents of arrays and objects.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shallow<'a> {
    Null,
    Flag(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array,
    Object,
}

impl<'de> serde::Deserialize<'de> for Shallow<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ShallowVisitor)
    }
}

struct ShallowVisitor;

impl<'de> Visitor<'de> for ShallowVisitor {
    type Value = Shallow<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Shallow<'de>, E> {
        Ok(Shallow::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Shallow<'de>, E> {
        Ok(Shallow::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Shallow<'de>, E> {
        Ok(Shallow::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Shallow<'de>, E> {
        Ok(Shallow::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Shallow<'de>, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Shallow::Number(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Shallow<'de>, E> {
        Ok(Shallow::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Shallow<'de>, E> {
        Ok(Shallow::Text(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shallow<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Shallow::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shallow<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Shallow::Object)
    }
}

/// A JSON pointer, such as `/data/code`. The empty pointer names the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    names: Vec<String>,
}

impl Pointer {
    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value that it names in a JSON document; `None` if there is none. If a name occurs twice
    /// in an object, the last one counts.
    ///
    /// # Errors
    /// If the bytes are not a JSON document.
    pub(super) fn find<'a>(&self, json: &'a [u8]) -> serde_json::Result<Option<Shallow<'a>>> {
        let mut from = serde_json::Deserializer::from_slice(json);
        let found = Seek(&self.names).deserialize(&mut from)?;
        from.end()?;
        Ok(found)
    }
}

impl FromStr for Pointer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.len() > MOST {
            return Err("must be at most 100 bytes long");
        }
        if text.chars().any(char::is_control) {
            return Err("must have no control characters");
        }
        if text.is_empty() {
            return Ok(Self { text: String::new(), names: Vec::new() });
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err("must be a JSON pointer, such as \"/code\" or \"/data/status\"");
        };
        let names = path.split('/').map(unescaped).collect::<Option<_>>();
        let names = names.ok_or("must have only ~0 (for ~) and ~1 (for /) after a ~")?;
        Ok(Self { text: text.to_owned(), names })
    }
}

/// The name without its escapes: `~0` means `~`, and `~1` means `/`.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('~');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        plain.push(match part.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        plain.push_str(&part[1..]);
    }
    Some(plain)
}

/// Reads a value, and returns what lies at the end of the names in it.
struct Seek<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Option<Shallow<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => from.deserialize_any(ShallowVisitor).map(Some),
            _ => from.deserialize_any(self),
        }
    }
}

/// Reads a value that names remain for. So only arrays and objects can have what is sought.
impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Option<Shallow<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (name, rest) = self.0.split_first().expect("a name remains");
        let index = index(name);
        let (mut at, mut found) = (0, None);
        loop {
            if index == Some(at) {
                match seq.next_element_seed(Seek(rest))? {
                    Some(value) => found = value,
                    None => return Ok(found),
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (name, rest) = self.0.split_first().expect("a name remains");
        let mut found = None;
        while let Some(is_next) = map.next_key_seed(Equals(name))? {
            if is_next {
                found = map.next_value_seed(Seek(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// An index of an array, which has no leading zeros.
fn index(name: &str) -> Option<usize> {
    let is_index =
        name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|_| is_index)
}

/// Whether a name of an object is this one. It copies no text.
struct Equals<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Equals<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Equals<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_what_rfc_6901_says() {
        // The document of section 5, and what it says about each pointer; then values within.
        let document = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,
            "k\"l":6," ":7,"m~n":8,"deep":{"list":[{"x":true},null,[1.5]],"x":"é"}}"#;
        let check = |pointer: &str, expected: Option<Shallow<'_>>| {
            let pointer: Pointer = pointer.parse().unwrap();
            assert_eq!(pointer.find(document.as_bytes()).unwrap(), expected, "{pointer:?}");
        };
        let number = |number: u64| Some(Shallow::Number(number.into()));
        check("", Some(Shallow::Object));
        check("/foo", Some(Shallow::Array));
        check("/foo/0", Some(Shallow::Text("bar".into())));
        check("/", number(0));
        check("/a~1b", number(1));
        check("/c%d", number(2));
        check("/e^f", number(3));
        check("/g|h", number(4));
        check("/i\\j", number(5));
        check("/k\"l", number(6));
        check("/ ", number(7));
        check("/m~0n", number(8));
        check("/deep/list/0/x", Some(Shallow::Flag(true)));
        check("/deep/list/1", Some(Shallow::Null));
        check("/deep/list/2/0", Some(Shallow::Number(Number::from_f64(1.5).unwrap())));
        check("/deep/x", Some(Shallow::Text("é".into())));
        check("/foo/2", None);
        check("/foo/00", None);
        check("/foo/+0", None);
        check("/foo/-", None);
        check("/foo/bar", None);
        check("/nothing", None);
        check("/foo/0/0", None);
        check("/deep/list/1/x", None);
        check("//", None);
    }

    #[test]
    fn the_last_of_equal_names_counts_and_a_broken_document_has_no_values() {
        let check = |json: &str, expected: Option<Option<Shallow<'_>>>| {
            let pointer: Pointer = "/a/b".parse().unwrap();
            assert_eq!(pointer.find(json.as_bytes()).ok(), expected, "{json}");
        };
        check(r#"{"a":{"b":1,"b":2}}"#, Some(Some(Shallow::Number(2.into()))));
        check(r#"{"a":{"b":1},"a":{}}"#, Some(None));
        check(r#"{"a":{"b":"\u0031"}}"#, Some(Some(Shallow::Text("1".into()))));
        check(r#"{"\u0061":{"b":[]}}"#, Some(Some(Shallow::Array)));
        check(r#"{"a":{"b":1}"#, None);
        check(r#"{"a":{"b":1}} x"#, None);
        check("", None);
        check("<html>", None);
    }

    #[test]
    fn a_text_that_is_no_pointer_is_refused() {
        let check = |text: &str, expected: Option<&str>| {
            let error = text.parse::<Pointer>().err();
            assert_eq!(error.is_some(), expected.is_some(), "{text:?}: {error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{error:?}");
        };
        check("", None);
        check("/", None);
        check("/a~0~1b/0", None);
        check(&format!("/{}", "x".repeat(99)), None);
        check("code", Some("such as \"/code\""));
        check("#/code", Some("such as \"/code\""));
        check("/a~2", Some("after a ~"));
        check("/a~", Some("after a ~"));
        check("/a\nb", Some("control characters"));
        check(&format!("/{}", "x".repeat(100)), Some("100 bytes"));
    }
}
