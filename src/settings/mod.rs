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

use serde::Deserialize;
use serde_path_to_error::Segment;

mod breaker;
mod callback;
mod check;
mod error;
mod explain;
mod file;
mod history;
mod http;
mod layers;
mod limits;
mod log;
mod named_files;
#[cfg(test)]
mod oauth_tests;
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

pub use callback::{Callback, Retry};
pub use error::Error;
pub use file::File;
pub use history::History;
pub use http::{Auth, Http, Token};
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use named_files::NamedFiles;
pub use objective::Objective;
pub use service_headers::ServiceHeaders;
pub use services::{BaseUrl, Service, ServicesFallback};
pub use shutdown::Shutdown;
pub use store::{Embedded, Redis, RedisUrl, Store, StoreKind, Topology};
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
        let mut layers = vec![layers::DEFAULTS.clone()];
        for file in files {
            layers.push(file.layer()?);
        }
        layers.push(Layer::of_env(&env)?);
        for set in sets {
            layers.push(Layer::of_set(set)?);
        }
        let mut settings = Self::read(layers)?;
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

    fn read(mut layers: Vec<Layer>) -> Result<Self, Error> {
        let table = layers::merge(&mut layers);
        let read = explain::ReadLayers { layers: &layers, table: &table };
        let settings: Self = serde_path_to_error::deserialize(table.clone()).map_err(|e| {
            let path = e.path().iter().filter_map(segment).collect();
            read.unreadable(path, e.inner().message())
        })?;
        settings.check().map_err(|wrong| read.invalid(wrong))?;
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

/// A part of a path, as `error::dotted` takes it.
fn segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { index } => Some(format!("[{index}]")),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}
