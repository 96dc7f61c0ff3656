//! The layers of the settings. Each is read into a tree whose values have an origin.
//!
//! `config` merges the layers and reads the result. This module adds:
//!
//! - Errors name the file, variable or option of a value, so each value has its origin.
//! - Environment variables are text. `config` would parse any comma as a list, and a list of one
//!   number as a number, so the type of the default decides instead.
//! - Tables are merged key by key, which is wrong if the kind of `callback.retry.backoff` changes:
//!   see [`merge`].

use std::collections::HashMap;
use std::fmt;

use config::{Config, ConfigError, Environment, Map, Source, Value, ValueKind};

use super::error::Error;
use super::keys::{self, Kind};

/// The prefix of environment variables.
pub(super) const PREFIX: &str = "DELAYD";
/// The separator in the name of a variable.
pub(super) const SEPARATOR: &str = "__";
const BACKOFF: [&str; 3] = ["callback", "retry", "backoff"];

/// The values of one source.
#[derive(Clone)]
pub(super) struct Layer {
    pub(super) table: Map<String, Value>,
}

impl fmt::Debug for Layer {
    /// Omits the values, which may be passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.table.keys()).finish()
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.table.clone())
    }
}

impl Layer {
    /// Reads a TOML text.
    pub(super) fn of_text(origin: &str, text: &str) -> Result<Self, Error> {
        let table: toml::Table = toml::from_str(text).map_err(|e| {
            // The text of the error shows the line, which may contain a password.
            let before = &text[..e.span().map_or(0, |span| span.start.min(text.len()))];
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            Error::Syntax {
                origin: origin.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message: e.message().replace('\n', " "),
            }
        })?;
        Ok(Self { table: tagged_table(table, &origin.to_owned()) })
    }

    /// Whether it has no values.
    pub(super) fn is_empty(&self) -> bool {
        fn is_empty(table: &Map<String, Value>) -> bool {
            table
                .values()
                .all(|value| matches!(&value.kind, ValueKind::Table(inner) if is_empty(inner)))
        }
        is_empty(&self.table)
    }

    /// Reads the environment variables with our prefix.
    pub(super) fn of_env(env: impl Iterator<Item = (String, String)>) -> Result<Self, Error> {
        let variables: HashMap<_, _> = env.collect();
        let source = Environment::with_prefix(PREFIX).separator(SEPARATOR).source(Some(variables));
        let flat = source.collect().expect("a given map of texts can be read");
        let mut keys: Vec<_> = flat.into_iter().collect();
        keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut table = Map::new();
        for (key, value) in keys {
            let path: Vec<&str> = key.split('.').collect();
            let variable =
                format!("{PREFIX}{SEPARATOR}{}", key.to_uppercase().replace('.', SEPARATOR));
            let text = value.into_string().expect("a variable is a text");
            if path[0] == "services" || path.starts_with(&["http", "auth", "tokens"]) {
                let reason = "cannot come from the environment; services and tokens come from \
                              files or --set";
                return Err(Error::Invalid {
                    origin: variable,
                    key,
                    given: "…".into(),
                    reason: reason.into(),
                });
            }
            let kind = keys::kind_of(&path);
            if kind == Some(Kind::Section) {
                // Checked here, because a second variable for that section would hide this one.
                let (given, reason) = ("…".into(), "must be a section, not a value".into());
                return Err(Error::Invalid { origin: variable, key, given, reason });
            }
            let value = of_variable(kind, &text, &variable);
            insert(&mut table, &path, value);
        }
        Ok(Self { table })
    }

    /// Reads a `--set section.key=value`.
    pub(super) fn of_set(set: &str) -> Result<Self, Error> {
        let wrong = |key: &str, reason: String| Error::Set { key: key.trim().to_owned(), reason };
        let Some((key, text)) = set.split_once('=') else {
            return Err(wrong(set, "must be written section.key=value".into()));
        };
        // Exactly one key on one line.
        let path = toml::from_str::<toml::Table>(&format!("{key} = 0"))
            .ok()
            .filter(|_| !key.contains('\n'));
        let Some(path) = path.map(only_path).filter(|path| path.len() > 1) else {
            return Err(wrong(
                key,
                "must be written section.key=value, such as --set worker.lease=30s".into(),
            ));
        };
        let value = match text.trim().parse::<toml::Value>() {
            Ok(value) => value,
            Err(e) if text.trim_start().starts_with(['[', '{', '"', '\'']) => {
                return Err(wrong(
                    key,
                    format!("the value is not valid TOML: {}", e.message().replace('\n', " ")),
                ));
            }
            Err(_) => toml::Value::String(text.trim().to_owned()),
        };
        let origin = "--set".to_owned();
        let mut table = Map::new();
        insert(
            &mut table,
            &path.iter().map(String::as_str).collect::<Vec<_>>(),
            tagged(value, &origin),
        );
        Ok(Self { table })
    }

    /// The kind of the backoff in this layer.
    fn backoff_kind(&self) -> Option<String> {
        let kind = keys::find(&self.table, BACKOFF.iter().chain(&["kind"]).copied())?;
        kind.clone().into_string().ok()
    }

    fn without_backoff(mut self) -> Self {
        fn remove(table: &mut Map<String, Value>, path: &[&str]) {
            match (path, table.get_mut(path[0]).map(|value| &mut value.kind)) {
                ([last], _) => drop(table.remove(*last)),
                ([_, rest @ ..], Some(ValueKind::Table(inner))) => remove(inner, rest),
                _ => {}
            }
        }
        remove(&mut self.table, &BACKOFF);
        self
    }
}

/// Merges layers; later ones take precedence. If a layer changes the kind of the backoff, the
/// backoff of earlier layers is dropped: a `fixed` one must not inherit the `base` of an
/// exponential one.
pub(super) fn merge(layers: Vec<Layer>) -> Result<Config, ConfigError> {
    let mut merged: Vec<Layer> = Vec::with_capacity(layers.len());
    let mut kind = None;
    for layer in layers {
        let its_kind = layer.backoff_kind();
        if its_kind.is_some() && its_kind != kind {
            merged = merged.into_iter().map(Layer::without_backoff).collect();
            kind = its_kind;
        }
        merged.push(layer);
    }
    merged.into_iter().fold(Config::builder(), |builder, layer| builder.add_source(layer)).build()
}

/// Parses the value of a variable by the type of the default. An unreadable value stays a text,
/// which the type check then refuses.
fn of_variable(kind: Option<Kind>, text: &str, origin: &String) -> Value {
    let plain = || ValueKind::from(text.to_owned());
    let kind = match kind {
        Some(Kind::List) if text.trim().is_empty() => ValueKind::Array(Vec::new()),
        Some(Kind::List) => {
            let element = |part: &str| Value::new(Some(origin), part.trim().to_owned());
            ValueKind::Array(text.split(',').map(element).collect())
        }
        Some(Kind::Whole) => text.trim().parse::<i64>().map_or_else(|_| plain(), ValueKind::from),
        Some(Kind::Number) => text.trim().parse::<f64>().map_or_else(|_| plain(), ValueKind::from),
        Some(Kind::Flag) => text.trim().parse::<bool>().map_or_else(|_| plain(), ValueKind::from),
        Some(Kind::Text | Kind::Section | Kind::TextOrSection) | None => plain(),
    };
    Value::new(Some(origin), kind)
}

fn tagged_table(table: toml::Table, origin: &String) -> Map<String, Value> {
    table.into_iter().map(|(key, value)| (key, tagged(value, origin))).collect()
}

fn tagged(value: toml::Value, origin: &String) -> Value {
    let kind = match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(moment) => moment.to_string().into(),
        toml::Value::Array(values) => {
            ValueKind::Array(values.into_iter().map(|value| tagged(value, origin)).collect())
        }
        toml::Value::Table(table) => ValueKind::Table(tagged_table(table, origin)),
    };
    Value::new(Some(origin), kind)
}

/// The path of the single value in `table`.
fn only_path(table: toml::Table) -> Vec<String> {
    let mut path = Vec::new();
    let mut next = toml::Value::Table(table);
    while let toml::Value::Table(table) = next {
        let Some((key, value)) = table.into_iter().next() else { break };
        path.push(key);
        next = value;
    }
    path
}

/// Sets `value` at `path`. A plain value on the way becomes a section, which the type check then
/// refuses.
fn insert(table: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => drop(table.insert((*last).to_owned(), value)),
        [first, rest @ ..] => {
            let section = table
                .entry((*first).to_owned())
                .or_insert_with(|| Value::new(None, Map::<String, Value>::new()));
            if !matches!(section.kind, ValueKind::Table(_)) {
                section.kind = ValueKind::Table(Map::new());
            }
            if let ValueKind::Table(inner) = &mut section.kind {
                insert(inner, rest, value);
            }
        }
    }
}
