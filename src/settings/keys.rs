//! The known keys: those of `config/default.toml`, and the few without a default.
//!
//! Each layer is checked before the layers are merged, so that errors can name the file or variable
//! of an unknown key. The structs of the sections refuse unknown keys as well and have no defaults,
//! so file and structs cannot diverge: the defaults would not load.

use std::sync::LazyLock;

use config::{Map, Value, ValueKind};

use super::error::Error;
use super::value::given;

/// Keys without a default, with values of their types. `*` stands for any name.
const FURTHER: &str = r#"
[services."*"]
endpoints = []
concurrency = 0
rate = ""
secrets = []
[services."*".headers."*"]
env = ""
file = ""
[services."*".success]
pointer = ""
equals = []
statuses = []
missing = ""
[services."*".tls]
ca = ""
client_cert = ""
client_key = ""
server_name = ""
[services."*".oauth]
token_url = ""
client_id = ""
scope = ""
[services."*".oauth.client_secret]
env = ""
file = ""
[callback.retry.backoff]
every = ""
steps = []
"#;

/// Sections that a text may stand for.
const OR_TEXT: [&[&str]; 3] = [
    &["services", "*", "success"],
    &["services", "*", "headers", "*"],
    &["services", "*", "oauth", "client_secret"],
];

/// The similarity, 0 to 1, from which an unknown key is taken for a typo.
const ALIKE: f64 = 0.5;

static KNOWN: LazyLock<toml::Table> = LazyLock::new(|| {
    let mut known = toml::from_str(super::DEFAULTS).expect("the built-in defaults are TOML");
    merge(&mut known, toml::from_str(FURTHER).expect("a constant"));
    known
});

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(into)), toml::Value::Table(from)) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Number,
    Flag,
    List,
    Section,
    TextOrSection,
}

impl Kind {
    fn of(default: &toml::Value) -> Self {
        match default {
            toml::Value::String(_) | toml::Value::Datetime(_) => Self::Text,
            toml::Value::Integer(_) => Self::Whole,
            toml::Value::Float(_) => Self::Number,
            toml::Value::Boolean(_) => Self::Flag,
            toml::Value::Array(_) => Self::List,
            toml::Value::Table(_) => Self::Section,
        }
    }

    /// Refuses values that `config` would convert: `true` to 1, or 1.7 to 2.
    fn takes(self, given: &ValueKind) -> bool {
        use ValueKind::{Array, Boolean, Float, I64, String};
        match self {
            // Durations and sizes may be numbers.
            Self::Text => matches!(given, String(_) | I64(_) | Float(_)),
            Self::Whole => matches!(given, I64(0..)),
            Self::Number => matches!(given, I64(_) | Float(_)),
            Self::Flag => matches!(given, Boolean(_)),
            Self::List => matches!(given, Array(_)),
            Self::Section => matches!(given, ValueKind::Table(_)),
            Self::TextOrSection => matches!(given, String(_) | ValueKind::Table(_)),
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Text => "must be a string",
            Self::Whole => "must be a whole number, not negative",
            Self::Number => "must be a number",
            Self::Flag => "must be true or false",
            Self::List => "must be a list",
            Self::Section => "must be a section, not a value",
            Self::TextOrSection => "must be a string or a section",
        }
    }
}

/// The type of the key at `path`, if it is known.
pub(super) fn kind_of(path: &[&str]) -> Option<Kind> {
    default_of(path).map(|default| kind(path, default))
}

/// The type of the key at `path`, which has such a default.
fn kind(path: &[&str], default: &toml::Value) -> Kind {
    let is_like = |pattern: &&[&str]| {
        pattern.len() == path.len()
            && pattern.iter().zip(path).all(|(part, key)| part == key || *part == "*")
    };
    match OR_TEXT.iter().any(is_like) {
        true => Kind::TextOrSection,
        false => Kind::of(default),
    }
}

/// The known keys of a section.
fn table_of(section: &[&str]) -> Option<&'static toml::Table> {
    default_of(section)?.as_table()
}

fn default_of(path: &[&str]) -> Option<&'static toml::Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(KNOWN.get(*first)?, |at, key| {
        let table = at.as_table()?;
        table.get(*key).or_else(|| table.get("*"))
    })
}

/// The value at `path`.
pub(super) fn find<'a>(
    table: &'a Map<String, Value>,
    mut path: impl Iterator<Item = &'a str>,
) -> Option<&'a Value> {
    path.next().and_then(|first| {
        path.try_fold(table.get(first)?, |at, key| match &at.kind {
            ValueKind::Table(inner) => inner.get(key),
            ValueKind::Array(values) => values.get(index_of(key)?),
            _ => None,
        })
    })
}

/// Refuses unknown keys and values of the wrong type.
pub(super) fn check(table: &Map<String, Value>) -> Result<(), Error> {
    walk(table, &KNOWN, &mut Vec::new())
}

fn walk<'a>(
    table: &'a Map<String, Value>,
    known: &toml::Table,
    path: &mut Vec<&'a str>,
) -> Result<(), Error> {
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| *key);
    for (key, value) in keys {
        path.push(key);
        let Some(default) = known.get(key).or_else(|| known.get("*")) else {
            return Err(Error::Unknown {
                origin: origin(value),
                key: dotted(path),
                hint: hint(path, value),
            });
        };
        let kind = kind(path, default);
        if !kind.takes(&value.kind) {
            let reason = kind.reason().to_owned();
            let given = given(path, value);
            return Err(Error::Invalid { origin: origin(value), key: dotted(path), given, reason });
        }
        if let (ValueKind::Table(inner), toml::Value::Table(known)) = (&value.kind, default) {
            walk(inner, known, path)?;
        }
        path.pop();
    }
    Ok(())
}

/// The origin of a value, or of the first one in a section.
pub(super) fn origin(value: &Value) -> String {
    fn of(value: &Value) -> Option<&str> {
        value.origin().or_else(|| match &value.kind {
            ValueKind::Table(table) => table.values().find_map(of),
            _ => None,
        })
    }
    of(value).unwrap_or("the configuration").to_owned()
}

/// A path as TOML writes it: `services."message.call".endpoints[0]`.
pub(super) fn dotted<T: AsRef<str>>(path: &[T]) -> String {
    let is_bare = |key: &str| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let mut text = String::new();
    for key in path.iter().map(AsRef::as_ref) {
        if !text.is_empty() && index_of(key).is_none() {
            text.push('.');
        }
        if is_bare(key) || index_of(key).is_some() {
            text.push_str(key);
        } else {
            text.push_str(&format!("{key:?}"));
        }
    }
    text
}

/// The index in a part of a path such as `[0]`.
fn index_of(part: &str) -> Option<usize> {
    part.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// A suggestion for an unknown key.
fn hint(path: &[&str], value: &Value) -> String {
    if let Some(name) = unquoted_service(path, value) {
        return format!("a service's name with a dot stands in quotes: services.{name:?}");
    }
    let nearest = nearest(path, matches!(value.kind, ValueKind::Table(_)));
    let (key, section) = path.split_last().expect("a key has a name");
    // In the section, or in one below it.
    let is_in_section =
        nearest.len() >= path.len() && nearest.iter().zip(section).all(|(one, other)| one == other);
    let is_unlike = is_in_section && {
        let nearest = dotted(&nearest[section.len()..]);
        strsim::normalized_damerau_levenshtein(&nearest, key) < ALIKE
    };
    let is_above =
        path.len() > nearest.len() && nearest.iter().zip(path).all(|(one, other)| one == other);
    if !is_unlike && !is_above {
        return format!("the nearest is {}", dotted(&nearest));
    }
    let takes = table_of(section).map(|known| known.keys().map(String::as_str).collect::<Vec<_>>());
    let others: Vec<_> = leaves()
        .iter()
        .filter(|leaf| leaf.last().is_some_and(|name| name == key))
        .map(|leaf| dotted(leaf))
        .collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("; elsewhere there is {}", others.join(", "))
    };
    format!("{} takes {}{others}", dotted(section), takes.unwrap_or_default().join(", "))
}

/// The name of a service that was written without quotes: TOML reads `[services.message.call]` as
/// nested sections.
fn unquoted_service(path: &[&str], value: &Value) -> Option<String> {
    let ["services", name, part] = path else { return None };
    let known = table_of(&["services", name])?;
    let (mut name, mut value) = (format!("{name}.{part}"), value);
    loop {
        let ValueKind::Table(inner) = &value.kind else { return None };
        if inner.is_empty() || inner.keys().any(|key| known.contains_key(key)) {
            return Some(name);
        }
        let (part, below) = inner.iter().next().filter(|_| inner.len() == 1)?;
        name = format!("{name}.{part}");
        value = below;
    }
}

/// The known key (or section) most similar to the unknown one.
fn nearest(path: &[&str], is_section: bool) -> Vec<String> {
    let mut candidates = Vec::new();
    collect(&KNOWN, path, is_section, &mut Vec::new(), &mut candidates);
    let wanted = dotted(path);
    let likeness =
        |key: &Vec<String>| strsim::normalized_damerau_levenshtein(&dotted(key), &wanted);
    candidates
        .into_iter()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .unwrap_or_default()
}

fn collect(
    known: &toml::Table,
    wanted: &[&str],
    sections: bool,
    path: &mut Vec<String>,
    into: &mut Vec<Vec<String>>,
) {
    for (key, default) in known {
        // A placeholder is replaced by the name in the unknown key, or by an example.
        let named = wanted
            .get(path.len())
            .copied()
            .filter(|_| wanted.len() > path.len() + 1)
            .unwrap_or("NAME");
        path.push(if key == "*" { named.to_owned() } else { key.clone() });
        let is_section = default.is_table();
        if is_section == sections {
            into.push(path.clone());
        }
        if let toml::Value::Table(inner) = default {
            collect(inner, wanted, sections, path, into);
        }
        path.pop();
    }
}

/// The paths of all keys that environment variables can set.
pub(super) fn leaves() -> Vec<Vec<String>> {
    fn walk(known: &toml::Table, path: &[String], into: &mut Vec<Vec<String>>) {
        for (key, default) in known {
            let path = [path, std::slice::from_ref(key)].concat();
            match default {
                toml::Value::Table(inner) => walk(inner, &path, into),
                _ => into.push(path),
            }
        }
    }
    let mut leaves = Vec::new();
    walk(&KNOWN, &[], &mut leaves);
    leaves
        .retain(|path| path[0] != "services" && !path.ends_with(&["auth".into(), "tokens".into()]));
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_what_was_meant() {
        let check = |path: &[&str], is_section: bool, expected: &str| {
            assert_eq!(dotted(&nearest(path, is_section)), expected);
        };
        check(&["http", "bnd"], false, "http.bind");
        check(&["store", "redis", "key_prefx"], false, "store.redis.key_prefix");
        check(&["store", "redis", "url"], false, "store.redis.urls");
        check(&["wroker"], true, "worker");
        check(&["calback", "retry"], true, "callback.retry");
        check(
            &["services", "message.call", "endpoint"],
            false,
            "services.\"message.call\".endpoints",
        );
        check(&["callback", "retry", "backoff", "step"], false, "callback.retry.backoff.steps");
    }

    #[test]
    fn every_key_has_the_kind_of_its_default() {
        let check = |path: &str, kind: Option<Kind>| {
            assert_eq!(kind_of(&path.split('.').collect::<Vec<_>>()), kind)
        };
        check("worker.claim_batch", Some(Kind::Whole));
        check("worker.enabled", Some(Kind::Flag));
        check("store.redis.urls", Some(Kind::List));
        check("services.any.endpoints", Some(Kind::List));
        check("callback.retry.backoff.factor", Some(Kind::Number));
        check("http.auth", Some(Kind::Section));
        check("http.auth.tokens", Some(Kind::List));
        check("http.auth.users", None);
        check("http", Some(Kind::Section));
    }
}
