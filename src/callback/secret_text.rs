//! A text that may be a secret: written in the configuration, or in an environment variable or a
//! file.
//!
//! Wherever it is, it is one line of visible ASCII. The line end after it does not count.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};

/// The longest text, in bytes.
const LONGEST: usize = 8 * 1024;

const FORMS: &str = "must be a string, { env = \"NAME\" } or { file = \"/path\" }";

/// A text that may be a secret. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText {
    source: SecretSource,
    /// `None` until it was taken.
    text: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
enum SecretSource {
    Literal,
    Variable(String),
    File(PathBuf),
}

/// A text that cannot be used. It shows no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got}")]
pub struct Unexpected {
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub got: String,
}

impl SecretText {
    /// A text that the configuration has.
    pub fn literal(text: &str) -> Self {
        Self { source: SecretSource::Literal, text: Some(text.to_owned()) }
    }

    /// The text, as it was taken.
    pub fn expose(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The file that holds it.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            SecretSource::File(path) => Some(path),
            _ => None,
        }
    }

    /// Takes it from its environment variable, if it is in one. Validates it, unless it is in a
    /// file.
    ///
    /// # Errors
    /// If there is no value, or one that cannot be used.
    pub fn take_variable<'a>(
        &mut self,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), Unexpected> {
        let text = match &self.source {
            SecretSource::File(_) => return Ok(()),
            SecretSource::Literal => self.expose(),
            SecretSource::Variable(name) => {
                value_of(name).ok_or_else(|| self.unexpected("none"))?
            }
        };
        self.text = Some(line(text).map_err(|got| self.unexpected(got))?.to_owned());
        Ok(())
    }

    /// Takes it from its file, if it is in one. `text_of` has the lines of files, or says what is
    /// there instead.
    ///
    /// # Errors
    /// If the file has no such line.
    pub fn take_file<'a>(
        &mut self,
        text_of: impl Fn(&Path) -> Result<&'a str, &'a str>,
    ) -> Result<(), Unexpected> {
        let SecretSource::File(path) = &self.source else { return Ok(()) };
        self.text = Some(text_of(path).map_err(|got| self.unexpected(got))?.to_owned());
        Ok(())
    }

    /// The text now. A file is read again, which may block.
    pub(super) fn read(&self) -> Result<String, Unexpected> {
        match self.file() {
            Some(path) => line_of_file(path).map_err(|got| self.unexpected(&got)),
            None => Ok(self.expose().to_owned()),
        }
    }

    fn unexpected(&self, got: &str) -> Unexpected {
        let place = match &self.source {
            SecretSource::Literal => String::new(),
            SecretSource::Variable(name) => format!(" in the environment variable {name}"),
            SecretSource::File(path) => format!(" in the file {}", path.display()),
        };
        Unexpected { expected: format!("one line of visible ASCII{place}"), got: got.to_owned() }
    }
}

/// The line in the text. An error says what is there instead.
pub(super) fn line(text: &str) -> Result<&str, &'static str> {
    let line = text.trim_end_matches(['\r', '\n']);
    let is_visible = |byte: u8| byte == b'\t' || (32..127).contains(&byte);
    match line {
        "" => Err("nothing"),
        _ if line.len() > LONGEST || text.len() > LONGEST + 2 => Err("more than 8 KiB"),
        _ if line.contains(['\r', '\n']) => Err("more than one line"),
        _ if !line.bytes().all(is_visible) => Err("other characters"),
        _ if line.trim_ascii() != line => Err("a blank at an end"),
        _ => Ok(line),
    }
}

/// The line in the file. An error says what is there instead.
///
/// # Errors
/// If the file cannot be read, or has anything but one line of visible ASCII.
pub fn line_of_file(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LONGEST as u64 + 3).read_to_end(&mut bytes).map_err(failed)?;
    Ok(line(&String::from_utf8_lossy(&bytes))?.to_owned())
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextOrTable)
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = SecretText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMS.trim_start_matches("must be "))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SecretText, E> {
        Ok(SecretText::literal(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<SecretText, A::Error> {
        let table = SecretTable::deserialize(MapAccessDeserializer::new(table))?;
        let source = match (table.env, table.file) {
            (Some(name), None) if is_variable(&name) => SecretSource::Variable(name),
            (Some(_), None) => {
                return Err(A::Error::custom("must have the name of an environment variable"));
            }
            (None, Some(path)) if !path.as_os_str().is_empty() => SecretSource::File(path),
            (None, Some(_)) => return Err(A::Error::custom("must have the path of a file")),
            _ => return Err(A::Error::custom(FORMS)),
        };
        Ok(SecretText { source, text: None })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretTable {
    env: Option<String>,
    file: Option<PathBuf>,
}

/// Whether a text is a usual name of a variable. Others may be secrets, and would be shown.
fn is_variable(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(is_usual)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            SecretSource::Literal => f.write_str("***"),
            SecretSource::Variable(name) => write!(f, "env {name}"),
            SecretSource::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(source: SecretSource) -> SecretText {
        SecretText { source, text: None }
    }

    #[test]
    fn a_text_is_the_line_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let check = |given: &str, expected: Result<&str, &str>| {
            std::fs::write(&path, given).unwrap();
            let mut variable = from(SecretSource::Variable("TOKEN".into()));
            let taken = variable.take_variable(|_| Some(given));
            let mut literal = SecretText::literal(given);
            let written = literal.take_variable(|_| None);
            let read = from(SecretSource::File(path.clone())).read();
            match expected {
                Ok(line) => {
                    assert_eq!((variable.expose(), literal.expose()), (line, line));
                    assert_eq!((taken, written, read.as_deref()), (Ok(()), Ok(()), Ok(line)));
                }
                Err(says) => {
                    for got in [taken, written, read.map(drop)].map(|said| said.unwrap_err().got) {
                        assert_eq!(got, says);
                    }
                }
            }
        };
        check("hush", Ok("hush"));
        check("hush hush\n", Ok("hush hush"));
        check("hush\r\n\n", Ok("hush"));
        check("", Err("nothing"));
        check("\n", Err("nothing"));
        check("a\nb\n", Err("more than one line"));
        check("é", Err("other characters"));
        check("hush \n", Err("a blank at an end"));
        check(&"x".repeat(8_192), Ok(&"x".repeat(8_192)));
        check(&("x".repeat(8_192) + "\r\n"), Ok(&"x".repeat(8_192)));
        check(&"x".repeat(8_193), Err("more than 8 KiB"));
        check(&("x".repeat(8_192) + "\n\n\nx"), Err("more than 8 KiB"));
        check(&"x".repeat(20_000), Err("more than 8 KiB"));
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is_shown() {
        let mut missing = from(SecretSource::Variable("NO_SUCH".into()));
        assert_eq!(
            missing.take_variable(|_| None).unwrap_err().to_string(),
            "expected one line of visible ASCII in the environment variable NO_SUCH, got none"
        );
        let missing = from(SecretSource::File("/no/file".into()));
        assert_eq!(
            missing.read().unwrap_err().to_string(),
            "expected one line of visible ASCII in the file /no/file, got No such file or \
             directory (os error 2)"
        );
        assert_eq!(format!("{:?} {missing:?}", SecretText::literal("hush")), "*** file /no/file");
    }

    #[test]
    fn a_file_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret = from(SecretSource::File(path.clone()));
        for text in ["one", "two"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(secret.read().unwrap(), text);
        }
    }
}
