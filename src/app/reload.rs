//! Reading the configuration again while serving: on SIGHUP, and when a file of it changes.
//!
//! ```text
//! SIGHUP ──────────────────────────────▶ load ─▶ check ─▶ hand out to the parts
//! a change in a file's folder ─▶ calm ─▶ other text? ─┘      └▶ wrong: say so, and all stays
//! ```
//!
//! Services, tokens, limits, breakers and the log level change at once; calls that run end by what they began with. What cannot change while
//! serving is named in a warning. Folders are watched rather than files: editors write a new file and rename it, and Kubernetes
//! swaps a link to a folder, so that a watched file would be one that nobody changes any more. Whether anything happened to the
//! *texts* is looked at before anything is loaded, so that a busy folder costs a few reads and says nothing.
//!
//! # Invariants
//!
//! - All or nothing: what is checked first can fail, what is done then cannot.
//! - The same layers as at the start: files, environment and `--set`, in their order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;

use super::params;
use crate::api::{Api, Tokens};
use crate::callback::{Limits, Services};
use crate::settings::{self, Settings};
use crate::telemetry;
use crate::topic::Registry;

/// How long nothing must have happened to a file before it is read: who writes it may not be done.
const CALM: Duration = Duration::from_millis(200);
/// Changes that go on and on are looked at after so long all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the configuration comes from, and what tells that it may be another.
pub struct Source {
    /// The files, for their folders are watched.
    pub files: Vec<PathBuf>,
    /// Reads and checks all layers.
    pub load: Box<dyn Fn() -> Result<Settings, settings::Error> + Send + Sync>,
    /// SIGHUP.
    pub hangup: Signal,
    /// The level of the logs.
    pub level: telemetry::Level,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What changes with the configuration.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) services: Arc<Services>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) limits: Arc<Limits>,
    pub(super) topics: Arc<Registry>,
    pub(super) api: Arc<Api>,
    /// The limit of open files, by which calls are capped.
    pub(super) open_files: Option<u64>,
    /// The most connections.
    pub(super) connections: usize,
    /// The settings of the start, which hold for all that cannot change.
    pub(super) started: Settings,
}

/// Reloads whenever there is reason, until it is aborted.
pub(super) async fn run(parts: Parts, mut source: Source) {
    let (changed, mut changes) = mpsc::channel(1);
    let _watchers = watch(&source.files, &changed);
    let mut texts = read(&source.files).await;
    let mut current = parts.started.clone();
    loop {
        tokio::select! {
            hangup = source.hangup.recv() => {
                if hangup.is_none() {
                    return;
                }
                tracing::info!("Received SIGHUP, reading the configuration again");
                texts = read(&source.files).await;
            }
            _ = changes.recv() => {
                calm(&mut changes).await;
                let now = read(&source.files).await;
                if now == texts {
                    continue;
                }
                texts = now;
                tracing::info!("The configuration's files have changed, reading them again");
            }
        }
        let reloaded = reload(&parts, &source, &current);
        parts.api.count_reload(reloaded.is_ok());
        match reloaded {
            Ok(settings) => current = settings,
            Err(why) => tracing::error!("The new configuration is not taken, the old one stays: {why}"),
        }
    }
}

/// Loads, checks, and hands out.
fn reload(parts: &Parts, source: &Source, current: &Settings) -> Result<Settings, String> {
    let settings = (source.load)().map_err(|error| error.to_string().replace('\n', " "))?;
    // The level was checked with the settings; the services are checked by being put in place.
    parts.services.replace(params::services(&settings)).map_err(|error| error.to_string())?;
    source.level.set(&settings.log.level).map_err(|error| error.to_string())?;
    parts.services.allow(params::unlisted(&settings));
    parts.tokens.replace(params::tokens(&settings));
    parts.limits.set_params(params::limits(&settings, parts.open_files));
    parts.topics.set_params(&params::topic(&settings));
    parts.api.set_bounds(&params::api(&settings, parts.connections));
    let changed = changed(current, &settings);
    match changed.is_empty() {
        true => tracing::info!("The configuration has been read again; nothing changes"),
        false => tracing::info!(
            changed = changed.join(", "),
            "The configuration has been read again; changed: {}",
            changed.join(", ")
        ),
    }
    let fixed = fixed(&parts.started, &settings);
    if !fixed.is_empty() {
        let fixed = fixed.join(", ");
        tracing::warn!(fixed, "Not taken before the next start: {fixed}");
    }
    Ok(settings)
}

/// Which sections that can change are other than before.
fn changed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let (call, now) = (&old.callback, &new.callback);
    let limits = |settings: &Settings| settings::Limits { bodies: old.limits.bodies, ..settings.limits.clone() };
    named([
        ("services", old.services != new.services),
        ("services_fallback", old.services_fallback != new.services_fallback),
        ("http.auth", old.http.auth != new.http.auth),
        (
            "callback.allow_hosts",
            call.allow_hosts != now.allow_hosts || call.deny_private_hosts != now.deny_private_hosts,
        ),
        ("limits", limits(old) != limits(new)),
        ("callback.concurrency", call.concurrency != now.concurrency),
        ("callback.concurrency_per_service", call.concurrency_per_service != now.concurrency_per_service),
        ("callback.retry_after_max", call.retry_after_max != now.retry_after_max),
        ("callback.breaker", call.breaker != now.breaker),
        ("log.level", old.log.level != new.log.level),
    ])
}

/// Which settings are other than those of the start, and cannot change while serving.
fn fixed(started: &Settings, new: &Settings) -> Vec<&'static str> {
    let (call, now) = (&started.callback, &new.callback);
    named([
        ("http.bind", started.http.bind != new.http.bind),
        ("store", started.store != new.store),
        ("worker", started.worker != new.worker),
        ("callback.timeout", call.timeout != now.timeout),
        ("callback.connect_timeout", call.connect_timeout != now.connect_timeout),
        ("callback.retry", call.retry != now.retry),
        ("limits.bodies", started.limits.bodies != new.limits.bodies),
        ("history", started.history != new.history),
        ("shutdown", started.shutdown != new.shutdown),
        ("log.format", started.log.format != new.log.format),
    ])
}

fn named<const N: usize>(parts: [(&'static str, bool); N]) -> Vec<&'static str> {
    parts.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
}

/// The files' texts; `None` for one that cannot be read just now.
async fn read(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        texts.push(tokio::fs::read(file).await.ok());
    }
    texts
}

/// Returns once nothing has happened for a while.
async fn calm(changes: &mut mpsc::Receiver<()>) {
    let quiet =
        async { while tokio::time::timeout(CALM, changes.recv()).await.is_ok_and(|change| change.is_some()) {} };
    // Somebody who writes on and on is read in between.
    let _ = tokio::time::timeout(PATIENCE, quiet).await;
}

/// Watches the folders of the files, and of what they link to. One that cannot be watched is said; SIGHUP works all the same.
fn watch(files: &[PathBuf], changed: &mpsc::Sender<()>) -> Vec<RecommendedWatcher> {
    let folders: BTreeSet<PathBuf> = files.iter().flat_map(|file| folders_of(file)).collect();
    let mut watchers = Vec::new();
    for folder in folders {
        let changed = changed.clone();
        let heard = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| is_change(event.kind)) {
                // A full channel means that it is known already.
                let _ = changed.try_send(());
            }
        };
        let watching = notify::recommended_watcher(heard).and_then(|mut watcher| {
            watcher.watch(&folder, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watching {
            Ok(watcher) => watchers.push(watcher),
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "Cannot watch {folder} for changes of the configuration; SIGHUP makes it read again");
            }
        }
    }
    watchers
}

fn folders_of(file: &Path) -> Vec<PathBuf> {
    let folder = |path: &Path| match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let linked = std::fs::canonicalize(file).ok().map(|path| folder(&path));
    std::iter::once(folder(file)).chain(linked).collect()
}

/// Our own reading is none.
fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}
