//! Reading one of several names from a string.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::Error as Unknown;
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};

/// An enum without data, read from the name of a variant in a string.
///
/// serde_json alone reports a number or a list as invalid JSON, and accepts `{"push": null}` for
/// `"push"`. This reader refuses both, and its error lists the names.
#[derive(Clone, Copy, Debug)]
pub struct OneOf<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = OneOf<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&names::<T>())
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<OneOf<T>, E> {
                T::deserialize(name.into_deserializer()).map(OneOf)
            }
        }

        from.deserialize_str(Reader(PhantomData))
    }
}

/// The names as serde lists them in its error for an unknown name: `one of "push", "pull"`.
fn names<'de, T: Deserialize<'de>>() -> String {
    let said = T::deserialize(IntoDeserializer::<Unknown>::into_deserializer(""));
    let said = said.err().map(|error| error.to_string()).unwrap_or_default();
    said.split_once(", expected ").map_or("a string".into(), |(_, names)| names.replace('`', "\""))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Auto,
        Push,
        Pull,
    }

    #[test]
    fn only_a_string_names_a_variant() {
        let said = |json: &str| serde_json::from_str::<OneOf<Mode>>(json).unwrap_err().to_string();
        let check = |json: &str, says: &str| {
            assert!(said(json).starts_with(says), "{json}: {}", said(json))
        };
        assert_eq!(serde_json::from_str::<OneOf<Mode>>(r#""push""#).unwrap().0, Mode::Push);
        check("5", r#"invalid type: integer `5`, expected one of "auto", "push", "pull""#);
        check(r#"["push"]"#, r#"invalid type: sequence, expected one of "auto", "push", "pull""#);
        check(r#"{"push":null}"#, r#"invalid type: map, expected one of "auto", "push", "pull""#);
        check(r#""fly""#, "unknown variant `fly`, expected one of `auto`, `push`, `pull`");
    }
}
