//! The layers of the settings, which `config` merges.
//!
//! A layer is a TOML table with a name. Environment variables are text, so the type of the default
//! says how each is read: as a number, as true or false, or as a list.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use config::{Config, Environment, FileFormat};
use toml::{Table, Value};

use super::error::{Error, index_of};

/// The prefix of environment variables.
pub(super) const PREFIX: &str = "DELAYD";
/// The separator in the name of a variable.
pub(super) const SEPARATOR: &str = "__";
/// The tokens, which environment variables cannot set.
const TOKENS: [&str; 3] = ["http", "auth", "tokens"];

/// The built-in layer.
pub(super) static DEFAULTS: LazyLock<Layer> = LazyLock::new(|| {
    Layer::of_text("built-in defaults", super::DEFAULTS).expect("the built-in defaults are TOML")
});

/// The values of one source.
#[derive(Clone)]
pub(super) struct Layer {
    /// The name of the source; `None` for the environment, where each variable has its own.
    name: Option<String>,
    pub(super) table: Table,
}

impl fmt::Debug for Layer {
    /// Omits the values, which may be passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.table.keys()).finish()
    }
}

impl Layer {
    /// Reads a TOML text.
    pub(super) fn of_text(name: &str, text: &str) -> Result<Self, Error> {
        let table = toml::from_str(text).map_err(|e| {
            // The text of the error shows the line, which may contain a password.
            let before = &text[..e.span().map_or(0, |span| span.start.min(text.len()))];
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            Error::Syntax {
                origin: name.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message: e.message().replace('\n', " "),
            }
        })?;
        Ok(Self { name: Some(name.to_owned()), table })
    }

    /// Reads the environment variables that are written like settings.
    pub(super) fn of_env(env: &BTreeMap<String, String>) -> Result<Self, Error> {
        let ours = env.iter().filter(|(name, _)| is_setting(name));
        for (variable, _) in ours.clone() {
            let variable = variable.to_uppercase();
            let path: Vec<_> =
                variable.split(SEPARATOR).skip(1).map(|part| part.to_lowercase()).collect();
            let expected = match find(&DEFAULTS.table, &path) {
                _ if !path.iter().all(|part| is_plain(part)) => {
                    "letters, digits and underscores in each part of the name"
                }
                _ if path[0] == "services" || path.starts_with(&TOKENS.map(str::to_owned)) => {
                    "services and tokens in a file or in --set"
                }
                Some(Value::Table(_)) => "a variable for each key of this section",
                _ => continue,
            };
            let (expected, got) = (expected.into(), "this variable".into());
            return Err(Error::Unexpected { key: variable, expected, got });
        }
        let ours = ours.map(|(name, text)| (name.clone(), text.clone())).collect();
        let source = Environment::with_prefix(PREFIX).separator(SEPARATOR).source(Some(ours));
        let texts = Config::builder().add_source(source).build();
        let texts: Table =
            texts.and_then(Config::try_deserialize).expect("texts in memory can be read");
        Ok(Self { name: None, table: typed_table(texts, Some(&DEFAULTS.table)) })
    }

    /// Reads a `--set section.key=value`. The value is TOML, or a text without quotes.
    pub(super) fn of_set(set: &str) -> Result<Self, Error> {
        let (key, text) = set.split_once('=').unwrap_or((set, ""));
        let wrong = |expected: &str, got: &str| Error::Unexpected {
            key: format!("--set {}", key.trim()),
            expected: expected.to_owned(),
            got: got.to_owned(),
        };
        let is_key = |key: &str| toml::from_str::<Table>(&format!("{key} = 0")).is_ok();
        let expected = "section.key=value, such as worker.lease=30s";
        if !set.contains('=') {
            return Err(wrong(expected, "no value"));
        }
        if !key.contains('.') || key.contains('\n') || !is_key(key) {
            return Err(wrong(expected, "no key of a section"));
        }
        let plain = || format!("{key} = {}", Value::from(text.trim()));
        let table = match toml::from_str(set) {
            Err(e) if text.trim_start().starts_with(['[', '{', '"', '\'']) => {
                return Err(wrong("a value in TOML", &e.message().replace('\n', " ")));
            }
            Err(_) => toml::from_str(&plain()).expect("a key and a text are TOML"),
            Ok(table) => table,
        };
        Ok(Self { name: Some("--set".into()), table })
    }

    /// Whether it has no values.
    pub(super) fn is_empty(&self) -> bool {
        fn is_empty(table: &Table) -> bool {
            table.values().all(|value| value.as_table().is_some_and(is_empty))
        }
        is_empty(&self.table)
    }

    /// The file, variable or option of its value at `path`, if it has one.
    pub(super) fn origin(&self, path: &[String]) -> Option<String> {
        find(&self.table, path)?;
        let keys: Vec<_> =
            path.iter().map(String::as_str).filter(|key| !key.starts_with('[')).collect();
        let variable = || format!("{PREFIX}{SEPARATOR}{}", keys.join(SEPARATOR).to_uppercase());
        Some(self.name.clone().unwrap_or_else(variable))
    }

    fn backoff(&mut self) -> Option<&mut Table> {
        self.table.get_mut("callback")?.get_mut("retry")?.get_mut("backoff")?.as_table_mut()
    }
}

/// Whether `config` reads the name as itself, and not as a path or the index of a list.
fn is_plain(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether the variable is written like a setting: after `DELAYD__` is the name of a section.
pub(super) fn is_setting(variable: &str) -> bool {
    let variable = variable.to_lowercase();
    let mut parts = variable.split(SEPARATOR);
    parts.next() == Some(&PREFIX.to_lowercase())
        && parts.next().is_some_and(|section| DEFAULTS.table.contains_key(section))
}

/// Merges layers; later ones take precedence. If a layer changes the kind of the backoff, the
/// backoff of earlier layers is dropped: a `fixed` one must not inherit the `base` of an
/// exponential one.
pub(super) fn merge(layers: &mut [Layer]) -> Table {
    let mut kind = None;
    for at in 0..layers.len() {
        let its_kind = layers[at].backoff().and_then(|backoff| backoff.get("kind")).cloned();
        if its_kind.is_some() && its_kind != kind {
            layers[..at].iter_mut().filter_map(Layer::backoff).for_each(Table::clear);
            kind = its_kind;
        }
    }
    // Names that are no sections are refused by the reader of the result.
    let mut others = Table::new();
    let builder = layers.iter().fold(Config::builder(), |builder, layer| {
        let (sections, rest) =
            layer.table.clone().into_iter().partition::<Table, _>(|(name, _)| is_plain(name));
        others.extend(rest);
        builder.add_source(config::File::from_str(&sections.to_string(), FileFormat::Toml))
    });
    let merged = builder.build().and_then(Config::try_deserialize);
    let merged: Table = merged.expect("layers in memory can be merged");
    merged.into_iter().chain(others).collect()
}

/// The value at `path`.
pub(super) fn find<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(first)?, |value, part| match index_of(part) {
        Some(index) => value.get(index),
        None => value.get(part),
    })
}

fn typed_table(texts: Table, defaults: Option<&Table>) -> Table {
    let typed = |(key, value): (String, Value)| {
        // The one list without a default.
        let steps = Value::Array(Vec::new());
        let default = defaults.and_then(|defaults| defaults.get(&key));
        let default = default.or((key == "steps").then_some(&steps));
        let value = match value {
            Value::Table(texts) => {
                Value::Table(typed_table(texts, default.and_then(Value::as_table)))
            }
            Value::String(text) => typed(text, default),
            other => other,
        };
        (key, value)
    };
    texts.into_iter().map(typed).collect()
}

/// Reads the text of a variable by the type of the default. An unreadable one stays a text, which
/// the section then refuses.
fn typed(text: String, default: Option<&Value>) -> Value {
    match default {
        Some(Value::Array(_)) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            let whole = |part: &str| part.parse().ok().filter(Value::is_integer);
            Value::Array(parts.map(|part| whole(part).unwrap_or(part.into())).collect())
        }
        Some(Value::Integer(_) | Value::Float(_) | Value::Boolean(_)) => {
            text.trim().parse().unwrap_or(Value::String(text))
        }
        _ => Value::String(text),
    }
}
