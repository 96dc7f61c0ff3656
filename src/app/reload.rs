//! Reloads the configuration while serving: on SIGHUP, and when one of its files changes.
//!
//! ```text
//! SIGHUP ─────────────────▶ read until stable ───▶ load ─▶ check ─▶ apply to the parts
//! a change in a folder ───▶ read until stable, changed? ─▲    └▶ invalid: log, keep the old one
//! ```
//!
//! The files are those of the configuration, and those that it names for values, such as the
//! secrets in the headers of services. If one of the latter cannot be used, its old value stays in
//! force, which is logged, and the rest is applied.
//!
//! Services, tokens, origins, limits, breakers and the log level change at once; running calls keep
//! the old ones. A warning names changed settings that need a restart. Folders are watched rather
//! than files: editors replace a file by renaming, and Kubernetes swaps a link to a folder. The
//! texts are compared before anything is loaded, so a busy folder costs only a few reads.
//!
//! # Invariants
//!
//! - All or nothing: the checks come first, and what follows cannot fail.
//! - The layers are those of the start: files, environment and `--set`, in this order.
//! - The texts that were stable are the ones that are loaded; no file is read again in between.
//! - A truncated file never widens access: the last token can be removed only if
//!   `http.auth.anonymous` allows it, a token names its topics, and an empty file is refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::params;
use super::tokens::Keepers;
use crate::api::{Api, Tokens};
use crate::audit::{AuditLog, AuditResult, AuditSource};
use crate::callback::Services;
use crate::limits::DestinationLimits;
use crate::metrics::Metrics;
use crate::settings::{self, File, NamedFiles, Settings};
use crate::telemetry;
use crate::topic::Registry;

/// How long files must stay the same before they are loaded: a program may still be writing.
const CALM: Duration = Duration::from_millis(500);
/// The maximum wait for that. A configuration that keeps changing is not loaded.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes settings of files that were read, and of all other layers; without the values that are in
/// files of their own.
pub type LoadSettings = Box<dyn Fn(&[File]) -> Result<Settings, settings::Error> + Send + Sync>;

/// The sources of the configuration, and of the signals to reload it.
pub struct SettingsSource {
    /// The files, as read at the start. Their folders are watched.
    pub files: Vec<File>,
    /// Loads settings from all layers, and checks them.
    pub load: LoadSettings,
    /// SIGHUP.
    pub hangup: Signal,
    /// Changes the log level.
    pub level: telemetry::Level,
}

impl std::fmt::Debug for SettingsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The parts that a reload changes.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) services: Arc<Services>,
    /// `None` without workers.
    pub(super) keepers: Option<Arc<Keepers>>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) limits: DestinationLimits,
    pub(super) topics: Arc<Registry>,
    pub(super) api: Arc<Api>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Arc<AuditLog>,
    /// The limit of open files, which limits the calls.
    pub(super) open_files: u64,
    /// The maximum number of connections.
    pub(super) connections: usize,
    /// The settings of the start, which remain in force for all that needs a restart.
    pub(super) started: Settings,
}

/// A configuration, and the files it was made of.
struct Taken {
    files: Vec<File>,
    settings: Settings,
    /// What is wrong with files whose old values stay in force.
    kept: Vec<String>,
}

/// The files as they were last read, and the watchers of their folders.
struct WatchedFiles {
    files: Vec<File>,
    named: NamedFiles,
    /// The paths of `named`: those of the last configuration, even if it was refused.
    paths: BTreeSet<PathBuf>,
    _watchers: Vec<RecommendedWatcher>,
}

/// Reloads on each trigger, until it is aborted.
pub(super) async fn run(parts: Parts, mut source: SettingsSource) {
    let (changed, mut changes) = mpsc::channel(1);
    let paths: Vec<PathBuf> = source.files.iter().map(|file| file.path().to_owned()).collect();
    let mut seen = WatchedFiles {
        files: source.files.clone(),
        named: parts.started.named_files.clone(),
        paths: parts.started.names_of_files(),
        _watchers: Vec::new(),
    };
    let _watchers = watch(&paths, &changed);
    seen.watch(&changed);
    if paths.iter().all(|path| path.is_file()) {
        // The files may have changed before they were watched. (A pipe cannot be read again.)
        let _ = changed.try_send(());
    }
    let mut taken = Taken {
        files: std::mem::take(&mut source.files),
        settings: parts.started.clone(),
        kept: Vec::new(),
    };
    loop {
        let is_told = tokio::select! {
            hangup = source.hangup.recv() => {
                if hangup.is_none() {
                    return;
                }
                tracing::info!("Received SIGHUP, reading the configuration again");
                true
            }
            _ = changes.recv() => false,
        };
        let reloaded = match settled(|| read(paths.clone(), seen.paths.clone())).await {
            Some(now) if seen.is(&now) && !is_told => continue,
            Some(now) => {
                if !seen.is(&now) {
                    tracing::info!("Configuration files have changed, reading them again");
                }
                (seen.files, seen.named) = now;
                let before = seen.paths.clone();
                let reloaded = reload(&parts, &source, &taken, &mut seen);
                if seen.paths != before {
                    seen.watch(&changed);
                    // The new files may have changed before they were watched.
                    let _ = changed.try_send(());
                }
                reloaded
            }
            None => Err(one_line(&settings::Error::Unsettled { calm: CALM, patience: PATIENCE })),
        };
        let wrong = match &reloaded {
            Ok(taken) => taken.kept.first(),
            Err(why) => Some(why),
        };
        parts.metrics.config.reloaded(wrong.map(String::as_str));
        let result = if wrong.is_none() { AuditResult::Done } else { AuditResult::Refused };
        let entry = parts.audit.entry(AuditSource::Configuration, "config/reload", result);
        parts.audit.record(entry);
        match reloaded {
            Ok(now) => {
                for why in &now.kept {
                    tracing::error!("A file that the configuration names cannot be used: {why}");
                }
                taken = now;
            }
            Err(why) => {
                tracing::error!("The new configuration is refused, the old one stays: {why}")
            }
        }
    }
}

impl WatchedFiles {
    /// Whether the files are still those that were last read.
    fn is(&self, (files, named): &(Vec<File>, NamedFiles)) -> bool {
        (&self.files, &self.named) == (files, named)
    }

    /// Watches the folders of the named files.
    fn watch(&mut self, changed: &mpsc::Sender<()>) {
        let paths: Vec<PathBuf> = self.paths.iter().cloned().collect();
        self._watchers = watch(&paths, changed);
    }
}

fn one_line(error: &settings::Error) -> String {
    error.to_string().replace('\n', " ")
}

/// Makes settings of the files. Refuses invalid ones, and those that a truncated file may have
/// caused.
fn checked(
    parts: &Parts,
    source: &SettingsSource,
    taken: &Taken,
    seen: &mut WatchedFiles,
) -> Result<Taken, settings::Error> {
    let files = seen.files.clone();
    files.iter().zip(&taken.files).try_for_each(|(new, old)| new.ensure_may_replace(old))?;
    let mut settings = (source.load)(&files)?;
    settings.http.ensure_may_replace(&taken.settings.http, parts.started.http.bind)?;
    seen.paths = settings.names_of_files();
    seen.named = std::mem::take(&mut seen.named).for_paths(seen.paths.clone());
    let kept = settings.take_named_files(seen.named.clone(), &taken.settings.named_files)?;
    Ok(Taken { files, settings, kept })
}

/// Loads and checks the settings, and applies them to the parts.
fn reload(
    parts: &Parts,
    source: &SettingsSource,
    taken: &Taken,
    seen: &mut WatchedFiles,
) -> Result<Taken, String> {
    let Taken { files, settings, kept } =
        checked(parts, source, taken, seen).map_err(|error| one_line(&error))?;
    // The level was checked with the settings. Setting the services checks them.
    parts.services.replace(params::services(&settings)).map_err(|error| error.to_string())?;
    parts.keepers.iter().for_each(|keepers| keepers.follow(&parts.services));
    source.level.set(&settings.log.level).map_err(|error| error.to_string())?;
    parts.services.allow(params::unlisted(&settings));
    parts.tokens.replace(params::tokens(&settings));
    parts.tokens.set_site(params::public_origins(&settings), settings.http.auth.anonymous);
    parts.limits.set_params(params::limits(&settings, parts.open_files));
    parts.topics.set_params(&params::topic(&settings));
    params::set_objective(&settings, &parts.metrics);
    parts.api.set_bounds(&params::api(&settings, parts.connections));
    let changed = changed(&taken.settings, &settings);
    match changed.is_empty() {
        true => tracing::info!("The configuration was read again; nothing has changed"),
        false => tracing::info!(
            changed = changed.join(", "),
            "The configuration was read again; changed: {}",
            changed.join(", ")
        ),
    }
    let fixed = fixed(&parts.started, &settings);
    if !fixed.is_empty() {
        let fixed = fixed.join(", ");
        tracing::warn!(fixed, "These changes need a restart: {fixed}");
    }
    Ok(Taken { files, settings, kept })
}

/// The names of the reloadable sections that differ.
fn changed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let (call, now) = (&old.callback, &new.callback);
    let limits = |settings: &Settings| settings::Limits {
        bodies: old.limits.bodies,
        ..settings.limits.clone()
    };
    named([
        ("services", old.services != new.services),
        ("services_fallback", old.services_fallback != new.services_fallback),
        ("http.auth", old.http.auth != new.http.auth),
        ("http.public_origins", old.http.public_origins != new.http.public_origins),
        (
            "callback.allow_hosts",
            call.allow_hosts != now.allow_hosts
                || call.deny_private_hosts != now.deny_private_hosts,
        ),
        ("limits", limits(old) != limits(new)),
        ("callback.concurrency", call.concurrency != now.concurrency),
        (
            "callback.concurrency_per_service",
            call.concurrency_per_service != now.concurrency_per_service,
        ),
        ("callback.retry_after_max", call.retry_after_max != now.retry_after_max),
        ("callback.breaker", call.breaker != now.breaker),
        ("objective", old.objective != new.objective),
        ("log.level", old.log.level != new.log.level),
    ])
}

/// The names of the settings that differ from those of the start, and need a restart.
fn fixed(started: &Settings, new: &Settings) -> Vec<&'static str> {
    let (call, now) = (&started.callback, &new.callback);
    named([
        ("http.bind", started.http.bind != new.http.bind),
        ("http.tls", started.http.tls != new.http.tls),
        ("store", started.store != new.store),
        ("worker", started.worker != new.worker),
        ("callback.timeout", call.timeout != now.timeout),
        ("callback.connect_timeout", call.connect_timeout != now.connect_timeout),
        ("callback.retry", call.retry != now.retry),
        ("limits.bodies", started.limits.bodies != new.limits.bodies),
        ("history", started.history != new.history),
        ("trace", started.trace != new.trace),
        ("shutdown", started.shutdown != new.shutdown),
        ("log.format", started.log.format != new.log.format),
    ])
}

fn named<const N: usize>(parts: [(&'static str, bool); N]) -> Vec<&'static str> {
    parts.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
}

/// Reads the files on a blocking thread.
async fn read(paths: Vec<PathBuf>, named: BTreeSet<PathBuf>) -> (Vec<File>, NamedFiles) {
    let read = tokio::task::spawn_blocking(move || {
        (paths.iter().map(|path| File::read(path)).collect(), NamedFiles::read(named))
    });
    read.await.expect("reading a file does not panic")
}

/// Returns the result of `read` once two calls, [`CALM`] apart, agree; `None` if they do not within
/// [`PATIENCE`].
async fn settled<T: PartialEq, R: Future<Output = T>>(read: impl Fn() -> R) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    let mut before = read().await;
    while Instant::now() < deadline {
        tokio::time::sleep(CALM).await;
        let now = read().await;
        if now == before {
            return Some(now);
        }
        before = now;
    }
    None
}

/// Watches the folders of the files, and of their link targets. A folder that cannot be watched is
/// logged; SIGHUP works nevertheless.
fn watch(files: &[PathBuf], changed: &mpsc::Sender<()>) -> Vec<RecommendedWatcher> {
    let folders: BTreeSet<PathBuf> = files.iter().flat_map(|file| folders_of(file)).collect();
    let mut watchers = Vec::new();
    for folder in folders {
        let changed = changed.clone();
        let heard = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| is_change(event.kind)) {
                // A full channel already holds a notification.
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
                tracing::warn!(
                    %folder,
                    %error,
                    "Cannot watch {folder} for changes; reload with SIGHUP"
                );
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

/// Whether a file may have changed. Reads by this process do not count.
fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file that is written every 300 ms for some time. Returns the result, and how long it
    /// took.
    async fn written_for(span: Duration) -> (Option<u128>, Duration) {
        let start = Instant::now();
        let read = settled(|| async move { start.elapsed().min(span).as_millis() / 300 }).await;
        (read, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_once_it_has_stopped_changing() {
        assert_eq!(written_for(Duration::ZERO).await, (Some(0), CALM));
        let (read, took) = written_for(Duration::from_secs(3)).await;
        assert_eq!(read, Some(10));
        assert!(took >= Duration::from_secs(3) + CALM && took < PATIENCE, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_goes_on_changing_is_not_taken() {
        let (read, took) = written_for(Duration::from_secs(3_600)).await;
        assert_eq!(read, None);
        assert!(took <= PATIENCE + CALM, "{took:?}");
    }
}
