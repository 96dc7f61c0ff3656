//! Describes what is wrong with a value: its key, the layer that it comes from, what is expected,
//! and what is there unless it may be a secret.

use toml::{Table, Value};

use super::check::Wrong;
use super::error::{Error, dotted, index_of};
use super::layers::{Layer, find};

/// Keys whose values, and those below them, are never shown.
const SECRET: [&str; 10] = [
    "auth",
    "client_key",
    "client_secret",
    "headers",
    "key",
    "secrets",
    "token_sha256",
    "token_url",
    "tokens",
    "urls",
];
/// Exceptions below `auth` and `tokens`.
const NO_SECRET: [&str; 5] = ["anonymous", "name", "scopes", "topics", "rate"];

/// Layers and what they give together, to describe what is wrong with it.
pub(super) struct ReadLayers<'a> {
    pub(super) layers: &'a [Layer],
    pub(super) table: &'a Table,
}

impl ReadLayers<'_> {
    /// The error for a value that serde cannot read. The messages of serde may repeat the value
    /// before the word "expected"; those of this project begin with a verb.
    pub(super) fn unreadable(&self, mut path: Vec<String>, message: &str) -> Error {
        let (said, expected) = message.rsplit_once("expected ").unwrap_or((message, ""));
        let expected = expected.replace('`', "\"");
        let field = message.split('`').nth(1).unwrap_or_default().to_owned();
        if said.starts_with("unknown field") {
            if path.last() != Some(&field) {
                path.push(field);
            }
            let expected = match &path[..] {
                [services, name, part] if services == "services" && self.is_section(&path) => {
                    format!(
                        "{expected}; the name of a service with a dot is written in quotes, such \
                         as services.\"{name}.{part}\""
                    )
                }
                [.., section, _] if section == "backoff" => {
                    format!("{expected} for the kind beside it")
                }
                _ => expected,
            };
            return Error::Unknown { origin: self.origin(&path), key: dotted(&path), expected };
        }
        if said.starts_with("missing field") {
            path.push(field);
            return Error::Missing { origin: self.origin(&path), key: dotted(&path) };
        }
        let reason = match expected.as_str() {
            _ if !said.starts_with("invalid") && !said.starts_with("unknown") => message.to_owned(),
            "a boolean" => "must be true or false".into(),
            "a sequence" => "must be a list".into(),
            "f64" => "must be a number".into(),
            "path string" => "must be a string".into(),
            "u16" => format!("must be a whole number from 0 to {}", u16::MAX),
            "u32" => format!("must be a whole number from 0 to {}", u32::MAX),
            "u64" | "usize" => "must be a whole number, 0 or more".into(),
            section if section.starts_with("struct ") || section == "a map" => {
                "must be a section".into()
            }
            _ => format!("must be {expected}"),
        };
        self.invalid(Wrong { path, reason })
    }

    /// The error for a value that breaks a rule.
    pub(super) fn invalid(&self, Wrong { path, reason }: Wrong) -> Error {
        let given = given(&path, find(self.table, &path));
        Error::Invalid { origin: self.origin(&path), key: dotted(&path), given, reason }
    }

    /// The last file, variable or option with the value, or with a section above it.
    fn origin(&self, path: &[String]) -> String {
        let last = |path: &[String]| self.layers.iter().rev().find_map(|layer| layer.origin(path));
        let lengths = (1..=path.len()).rev();
        lengths.map(|length| &path[..length]).find_map(last).unwrap_or("the configuration".into())
    }

    fn is_section(&self, path: &[String]) -> bool {
        find(self.table, path).is_some_and(Value::is_table)
    }
}

/// The value at `path` as errors show it. What may hold a password is hidden: secret keys,
/// addresses with a user or a query, and PEM.
fn given(path: &[String], value: Option<&Value>) -> String {
    let mut keys = path.iter().map(String::as_str).filter(|key| index_of(key).is_none());
    let last = keys.clone().next_back().unwrap_or_default();
    let is_header = keys.clone().any(|key| key == "headers");
    let is_secret = keys.any(|key| SECRET.contains(&key)) && !NO_SECRET.contains(&last);
    let text = match value {
        None => return "nothing".into(),
        Some(Value::Table(_)) => return "a section".into(),
        Some(Value::String(text)) => format!("{text:?}"),
        Some(value) => value.to_string(),
    };
    if is_header || is_secret || text.contains(['@', '?']) || text.contains("-----BEGIN") {
        return "***".into();
    }
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
