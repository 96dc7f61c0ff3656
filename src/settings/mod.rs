//! The settings: read from layers, validated, and then read-only.
//!
//! ```text
//! config/default.toml < --config files < DELAYD__SECTION__KEY < --set section.key=value
//! ```
//!
//! `config/default.toml` is compiled in. It documents every key and is the only place with
//! defaults. Each section is a struct in its own file.
//!
//! # Invariants
//!
//! - Every [`Settings`] is valid: all documented ranges hold.
//! - Unknown keys are errors; nothing is silently ignored.
//! - Errors and `Debug` show no passwords, token hashes or secrets.
//!
//! Only `app` and `cli` use this module. Other parts have their own `Params`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use config::{ConfigError, Map, Value, ValueKind};
use serde::Deserialize;
use serde_path_to_error::Segment;

mod breaker;
mod callback;
mod check;
mod error;
mod file;
mod history;
mod http;
mod keys;
mod layers;
mod limits;
mod log;
mod named_files;
mod oauth;
mod objective;
#[cfg(test)]
mod secret_tests;
mod service_headers;
mod services;
mod shutdown;
mod store;
mod success;
#[cfg(test)]
mod tests;
mod tls;
mod trace;
mod value;
mod variables;
mod worker;

pub use breaker::Breaker;
pub use callback::{Callback, Retry};
pub use error::Error;
pub use file::File;
pub use history::{History, NotedAttempts};
pub use http::{Auth, Http, Token};
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use named_files::NamedFiles;
pub use oauth::{ClientId, OAuth, Scope, TokenUrl};
pub use objective::Objective;
pub use service_headers::ServiceHeaders;
pub use services::{Endpoint, Service, ServicesFallback};
pub use shutdown::Shutdown;
pub use store::{Embedded, Redis, RedisUrl, Store, StoreKind, Topology};
pub use success::Success;
pub use tls::{CertificateName, ClientTls, ServerTls};
pub use trace::{InvalidTraceHeader, Trace, TraceHeader};
pub use value::{Parsed, Size};
pub use variables::check_variables;
pub use worker::Worker;

use check::{Wrong, ensure};
use layers::Layer;

/// The defaults, with documentation.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// All settings. `config/default.toml` documents the keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The address of the service, and who may call.
    pub http: Http,
    /// Where tasks are stored.
    pub store: Store,
    /// How this instance works on tasks.
    pub worker: Worker,
    /// How services are called.
    pub callback: Callback,
    /// The services, by name.
    #[serde(default)]
    pub services: BTreeMap<String, Service>,
    /// The address of services that are not listed.
    pub services_fallback: ServicesFallback,
    /// The limits of requests.
    pub limits: Limits,
    /// How long ended tasks are kept.
    pub history: History,
    /// How late tasks may be.
    pub objective: Objective,
    /// Where spans are exported to.
    pub trace: Trace,
    /// How the service stops.
    pub shutdown: Shutdown,
    /// Level and format of the logs.
    pub log: Log,
    /// The files that hold values of these settings, as they were read.
    #[serde(skip)]
    pub named_files: NamedFiles,
}

impl Settings {
    /// Loads and validates the settings: the defaults, then `files` in order, then the variables of
    /// `env` that begin with `DELAYD__`, then `sets` (`section.key=value`) in order.
    ///
    /// # Errors
    /// The first error: one sentence with the position and the rule.
    pub fn load(
        files: &[PathBuf],
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let files: Vec<_> = files.iter().map(|path| File::read(path)).collect();
        Self::of_files(&files, sets, env)
    }

    /// Like [`load`](Self::load), for files that have been read already.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn of_files(
        files: &[File],
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let mut settings = Self::without_named_files(files, sets, env)?;
        let named = NamedFiles::read(settings.names_of_files());
        settings.take_named_files(named, &NamedFiles::default())?;
        Ok(settings)
    }

    /// Like [`of_files`](Self::of_files), without the values that are in files of their own. They
    /// are missing until [`take_named_files`](Self::take_named_files).
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn without_named_files(
        files: &[File],
        sets: &[String],
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let env: BTreeMap<String, String> = env.collect();
        let mut given = Vec::new();
        for file in files {
            given.push(file.layer()?);
        }
        given.push(Layer::of_env(env.clone().into_iter())?);
        for set in sets {
            given.push(Layer::of_set(set)?);
        }
        given.iter().try_for_each(|layer| keys::check(&layer.table))?;
        let defaults = Layer::of_text("built-in defaults", DEFAULTS)?;
        let mut settings = Self::read([vec![defaults], given].concat())?;
        for (name, service) in &mut settings.services {
            service.take_variables(name, |name| env.get(name).map(String::as_str))?;
        }
        Ok(settings)
    }

    /// The files that hold values of these settings.
    pub fn names_of_files(&self) -> BTreeSet<PathBuf> {
        self.services.values().flat_map(|service| service.headers.files()).collect()
    }

    /// Takes values from the files that hold them, all of which are in `read`. One that cannot be
    /// used keeps its value of `old`, if it has one there.
    ///
    /// Returns a sentence for each file that keeps its old value.
    ///
    /// # Errors
    /// A file that cannot be used and has no old value.
    pub fn take_named_files(
        &mut self,
        read: NamedFiles,
        old: &NamedFiles,
    ) -> Result<Vec<String>, Error> {
        let (texts, kept) = read.keeping(old);
        for (name, service) in &mut self.services {
            service.headers.take_files(name, &texts)?;
        }
        self.named_files = texts;
        Ok(kept)
    }

    fn read(layers: Vec<Layer>) -> Result<Self, Error> {
        let config = layers::merge(layers).expect("layers in memory can be merged");
        let tree = config.cache.clone().into_table().expect("the root is a table");
        let settings: Self = serde_path_to_error::deserialize(config.cache).map_err(|e| {
            let path = e.path().iter().filter_map(segment).collect();
            unreadable(&tree, path, e.into_inner())
        })?;
        settings.check().map_err(|wrong| invalid(&tree, &wrong.path, wrong.reason))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), Wrong> {
        self.http.check()?;
        self.store.check()?;
        self.worker.check()?;
        // The answer to a claim may take this long, and the lease must still hold then.
        let redis = self.store.kind == StoreKind::Redis;
        ensure("worker.lease", !redis || self.worker.lease > self.store.redis.timeout, || {
            format!("must be longer than store.redis.timeout ({})", self.store.redis.timeout)
        })?;
        self.callback.check()?;
        self.services.iter().try_for_each(|(name, service)| service.check(name))?;
        self.limits.check()?;
        self.history.check()?;
        self.objective.check()?;
        self.trace.check()?;
        self.shutdown.check()?;
        self.log.check()
    }
}

fn segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { index } => Some(format!("[{index}]")),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// The error for a value that cannot be read.
fn unreadable(tree: &Map<String, Value>, mut path: Vec<String>, error: ConfigError) -> Error {
    match error {
        ConfigError::At { error, .. } => unreadable(tree, path, *error),
        ConfigError::NotFound(field) => {
            let section = keys::find(tree, path.iter().map(String::as_str)).map(keys::origin);
            path.push(field.rsplit(['.', ']']).next().unwrap_or_default().to_owned());
            Error::Missing {
                origin: section.unwrap_or("the configuration".into()),
                key: keys::dotted(&path),
            }
        }
        ConfigError::Type { expected, .. } if expected.contains(" bit ") => {
            invalid(tree, &path, "is too large, or negative".into())
        }
        ConfigError::Type { expected, .. } => invalid(tree, &path, format!("must be {expected}")),
        ConfigError::Message(text) => match text.rsplit_once("expected ") {
            Some((said, expected)) if said.starts_with("unknown field `") => {
                let field = said.split('`').nth(1).map(str::to_owned);
                path.extend(field.filter(|field| path.last() != Some(field)));
                if path[0] == "http" {
                    return invalid(
                        tree,
                        &path,
                        format!("is no setting of a token, which takes {expected}"),
                    );
                }
                invalid(
                    tree,
                    &path,
                    format!("does not go with the kind beside it, which takes {expected}"),
                )
            }
            Some((_, "struct Token")) => invalid(
                tree,
                &path,
                "must be a table with name, token_sha256, scopes and topics".into(),
            ),
            // The text of serde. The part before it may repeat the value.
            Some((said, expected))
                if said.starts_with("unknown") || said.starts_with("invalid") =>
            {
                invalid(tree, &path, format!("must be {expected}"))
            }
            // Messages of this project begin with a verb.
            _ => invalid(tree, &path, text),
        },
        other => invalid(tree, &path, format!("cannot be read: {other}")),
    }
}

/// The error for the value at `path`, which it shows.
fn invalid(tree: &Map<String, Value>, path: &[String], reason: String) -> Error {
    let found = keys::find(tree, path.iter().map(String::as_str));
    let nothing = Value::new(None, ValueKind::Nil);
    let value = found.unwrap_or(&nothing);
    Error::Invalid {
        origin: keys::origin(value),
        key: keys::dotted(path),
        given: value::given(path, value),
        reason,
    }
}
