//! The composition root: builds all parts from the settings, and defines the order of start and
//! drain.
//!
//! No module below this one sees [`Settings`]; each part gets its own `Params`.
//!
//! # The order of drain
//!
//! 0. `/readyz` answers 503, and nothing else changes for `shutdown.delay`, so that load balancers
//!    use other instances from now on.
//! 1. Adds and pulls are refused.
//! 2. Claims stop. Tasks that were claimed but not called are released without using an attempt.
//! 3. Running calls end within `shutdown.grace`. An interrupted call keeps its lease and attempt.
//! 4. Their settles are flushed.
//! 5. The listener closes. Acks are accepted until then.
//! 6. The last audit entries are stored and the last spans are exported, while the last pulls are
//!    settled.
//! 7. The store closes.
//!
//! All of it has one deadline, `AFTER_GRACE` after the grace. Each step takes at most what is
//! left, so a store or a collector that hangs does not delay the end further.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::api::{self, Api, Tokens};
use crate::audit::{AuditEntry, AuditLog, AuditResult, AuditSource};
use crate::callback::{self, Client, Services};
use crate::instances::Instances;
use crate::limits::{DestinationLimits, TopicLimits};
use crate::maintenance::{Janitor, Planner};
use crate::metrics::Metrics;
use crate::model::clock::Clock;
use crate::model::task::StoreId;
use crate::sampler::{self, Sampler};
use crate::settings::{self, Settings, StoreKind};
use crate::store::embedded::{self, Embedded};
use crate::store::redis::Redis;
use crate::store::{self, AnyStore, Audit, Formats, Sampling, Store};
use crate::tls;
use crate::topic::Registry;
use crate::trace::{self, Tracer};
use crate::worker::{self, Worker};

/// How long open connections may continue after the workers have ended.
const CLOSING: Duration = Duration::from_secs(2);
/// How long the whole drain may last after `shutdown.grace`. It ends a moment before the 5 s that
/// the documentation promises.
const AFTER_GRACE: Duration = Duration::from_millis(4_500);
/// The part of it that is left for the last audit entries and spans, whatever hangs before.
const LAST_WRITES: Duration = Duration::from_secs(1);

pub mod check;
mod gauges;
mod params;
pub mod reload;
mod tls_files;
mod tokens;

/// Why delayd could not start. Each text is one clear line.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// delayd cannot listen on the address.
    #[error("cannot listen on http.bind = {address}: {source}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificate of the port cannot be used.
    #[error("http.tls: {0}")]
    Tls(#[from] tls::InvalidFile),
    /// The store cannot be used.
    #[error("store: {0}")]
    Store(#[from] store::Error),
    /// The callback client cannot be built.
    #[error("callback: {0}")]
    Callback(#[from] callback::BuildError),
    /// The services cannot be used.
    #[error("services: {0}")]
    Services(#[from] callback::InvalidService),
    /// The exporter of traces cannot be built.
    #[error("trace: {0}")]
    Trace(#[from] trace::ExporterError),
    /// Anyone could call, and the configuration does not allow that explicitly.
    #[error(transparent)]
    Unguarded(#[from] settings::Error),
}

impl StartError {
    /// Whether the configuration is the cause.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, store::Error::Misconfigured(_)),
            Self::Services(_) | Self::Unguarded(_) | Self::Trace(_) | Self::Tls(_) => true,
            Self::Bind { .. } | Self::Callback(_) => false,
        }
    }

    /// Whether the store does not answer. A start waits for a Redis that does not.
    pub fn is_store_away(&self) -> bool {
        matches!(self, Self::Store(store::Error::Unavailable(_)))
    }
}

/// A running delayd.
#[derive(Debug)]
pub struct App {
    address: SocketAddr,
    store: Arc<AnyStore>,
    instances: Arc<Instances>,
    api: Arc<Api>,
    worker: Worker,
    janitor: Janitor,
    planner: Planner,
    sampler: Sampler,
    serving: tokio::task::JoinHandle<()>,
    close_listener: oneshot::Sender<()>,
    draining: watch::Sender<bool>,
    shutdown: settings::Shutdown,
    tracer: Tracer,
    parts: reload::Parts,
    reloading: Option<tokio::task::JoinHandle<()>>,
    tls_files: tokio::task::JoinHandle<()>,
}

impl App {
    /// Builds and starts all parts. From then on it accepts, claims and calls.
    ///
    /// # Errors
    /// See [`StartError`]. A Redis that does not answer yet is no error: delayd starts, logs it,
    /// and is not ready.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        settings.http.ensure_guarded()?;
        let tls = params::port(&settings)?.map(Arc::new);
        let address = settings.http.bind;
        let listener =
            api::listen(address).map_err(|source| StartError::Bind { address, source })?;
        let address =
            listener.local_addr().map_err(|source| StartError::Bind { address, source })?;
        let clock = Clock::system();
        let store = Arc::new(open_store(&settings, &clock).await?);
        let topics = Arc::new(Registry::new(store.clone(), params::topic(&settings)));
        let services = Arc::new(Services::new(params::services(&settings))?);
        services.allow(params::unlisted(&settings));
        let tokens = Arc::new(Tokens::new(params::tokens(&settings)));
        tokens.set_site(params::public_origins(&settings), settings.http.auth.anonymous);
        let client = Client::new(params::client(&settings, &clock))?;
        let open_files = params::raise_open_file_limit();
        let limits = params::limits(&settings, open_files);
        let server = params::server(limits.concurrency, open_files, CLOSING);
        let (limits, topic_limits) = (DestinationLimits::new(limits), TopicLimits::default());

        let metrics = Metrics::with_store(api::routes(), store.metrics().clone());
        params::set_objective(&settings, &metrics);
        gauges::connect(&metrics, &limits, services.clone());
        let instances = Arc::new(Instances::new(params::instance(&settings, address, &clock)));
        let sampler = Sampler::start(
            sampler::Parts {
                store: store.clone(),
                topics: topics.clone(),
                services: services.clone(),
                limits: limits.clone(),
                topic_limits: topic_limits.clone(),
                instances: instances.clone(),
                metrics: metrics.clone(),
            },
            params::sampler(&settings),
        );
        let tracer = Tracer::start(&params::trace(&settings, &instances), &metrics, &clock)?;
        let draining = watch::Sender::new(false);
        let audit = AuditLog::start(store.clone(), metrics.clone(), clock.clone());
        let parts = api::Parts {
            store: store.clone(),
            topics: topics.clone(),
            services: services.clone(),
            limits: limits.clone(),
            instances: instances.clone(),
            sampled: sampler.sampled().clone(),
            tokens: tokens.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            audit: audit.clone(),
            tracer: tracer.clone(),
            draining: draining.subscribe(),
        };
        let api = Arc::new(Api::new(parts, params::api(&settings, server.max_connections)));
        let (close_listener, closed) = oneshot::channel::<()>();
        let edge = api::edge(api.clone());
        let port = tls.clone();
        let serving = tokio::spawn(async move {
            let closed = async move {
                // Both a message and a dropped sender close the listener.
                let _ = closed.await;
            };
            api::serve(listener, edge, server, port, closed).await;
        });

        let keepers = settings.worker.enabled.then(|| {
            Arc::new(tokens::Keepers::new(client.clone(), limits.clone(), metrics.clone()))
        });
        // Before the first claim, so that no task is claimed without a token.
        keepers.iter().for_each(|keepers| keepers.follow(&services));
        let tls_files = tokio::spawn(tls_files::run(tls, services.clone()));
        let changing = reload::Parts {
            services: services.clone(),
            keepers,
            tokens,
            limits: limits.clone(),
            topics: topics.clone(),
            api: api.clone(),
            metrics,
            audit,
            open_files,
            connections: server.max_connections,
            started: settings,
        };
        let settings = &changing.started;
        let janitor = Janitor::start(store.clone(), topics.clone(), params::maintenance(settings));
        let planner = Planner::start(store.clone(), topics.clone(), changing.metrics.clone());
        let parts = worker::Parts {
            store: store.clone(),
            topics,
            client,
            services,
            limits,
            topic_limits,
            instances: instances.clone(),
            metrics: changing.metrics.clone(),
            clock,
            tracer: tracer.clone(),
        };
        let worker = Worker::start(parts, params::worker(settings));
        let shutdown = settings.shutdown.clone();
        let reloading = None;
        Ok(Self {
            address,
            store,
            instances,
            api,
            worker,
            janitor,
            planner,
            sampler,
            serving,
            close_listener,
            draining,
            shutdown,
            tracer,
            parts: changing,
            reloading,
            tls_files,
        })
    }

    /// Reads the configuration again from now on, whenever `source` asks for it or a file changes.
    pub fn reload_from(&mut self, source: reload::SettingsSource) {
        self.reloading = Some(tokio::spawn(reload::run(self.parts.clone(), source)));
    }

    /// The address it listens on, with the port that the system chose if `http.bind` has port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Runs until `stop` resolves, then drains.
    ///
    /// # Errors
    /// If the store has failed permanently (an I/O error of its disk), so that only a restart
    /// helps.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let settings::Shutdown { delay, grace } = self.shutdown.clone();
        let stop = async {
            stop.await;
            if !delay.0.is_zero() {
                self.api.leave();
                tracing::info!("Leaving: /readyz answers 503; the drain begins in {delay}");
                tokio::time::sleep(delay.0).await;
            }
        };
        let broken = tokio::select! {
            () = stop => false,
            () = broken(&self.store) => true,
        };
        if broken {
            tracing::error!(
                "The store's disk failed; stopping, so that no task is accepted and then lost"
            );
        } else {
            tracing::info!(
                "Draining: no new adds and claims; running calls may take {grace} to end"
            );
        }
        let grace = if broken { Duration::ZERO } else { grace.0 };
        let end = Instant::now() + grace + AFTER_GRACE;
        self.draining.send_replace(true);
        if let Some(reloading) = &self.reloading {
            reloading.abort();
        }
        self.tls_files.abort();
        drop((self.janitor, self.planner, self.sampler));
        let cut_off = self.worker.drain(grace).await;
        if cut_off > 0 {
            tracing::warn!(
                cut_off,
                "{cut_off} calls did not end in time; their tasks return when their leases end"
            );
        }
        // The receiver is gone if serving panicked; the join below reports that.
        let _ = self.close_listener.send(());
        match tokio::time::timeout_at(end - LAST_WRITES, self.serving).await {
            Ok(served) => served.context("the HTTP server failed")?,
            Err(_) => tracing::warn!("Requests did not end in time and are cut off"),
        }
        // Otherwise this instance counts as alive for some seconds.
        let forgotten =
            tokio::time::timeout_at(end, self.store.forget_instance(self.instances.id()));
        let (_, _, _, forgotten) = tokio::join!(
            self.parts.audit.finish(end),
            self.tracer.finish(end),
            self.api.finish(end),
            forgotten
        );
        if !matches!(forgotten, Ok(Ok(()))) {
            tracing::debug!("Could not remove the heartbeat of this instance");
        }
        if tokio::time::timeout_at(end, self.store.close()).await.is_err() {
            tracing::warn!(
                "The store did not close in time; everything that was confirmed is stored"
            );
        }
        anyhow::ensure!(!broken, "the store's disk failed; see the log");
        tracing::info!("Drained");
        Ok(())
    }
}

async fn open_store(settings: &Settings, clock: &Clock) -> store::Result<AnyStore> {
    open_store_by(settings, clock, Embedded::open).await
}

/// Opens the configured store for `delayd fsck`, without working on tasks. Without `repair`,
/// nothing is changed.
///
/// # Errors
/// See [`StartError`].
pub async fn open_store_for_check(
    settings: &Settings,
    repair: bool,
) -> Result<AnyStore, StartError> {
    let open = move |params| Embedded::open_for_check(params, repair);
    Ok(open_store_by(settings, &Clock::system(), open).await?)
}

async fn open_store_by(
    settings: &Settings,
    clock: &Clock,
    open: impl FnOnce(embedded::Params) -> store::Result<Embedded> + Send + 'static,
) -> store::Result<AnyStore> {
    match settings.store.kind {
        StoreKind::Embedded => {
            let params = params::embedded(settings, clock);
            // Opening blocks, for example while it migrates the schema of an old file.
            let opened = tokio::task::spawn_blocking(move || open(params)).await;
            Ok(AnyStore::Embedded(opened.expect("opening the store does not panic")?))
        }
        StoreKind::Redis => {
            Ok(AnyStore::Redis(Redis::connect(params::redis(settings, clock)).await?))
        }
    }
}

/// Gives the configured store a new id. Returns its previous id, if it had one, and the new one.
///
/// # Errors
/// See [`StartError`]. An embedded store that another process has open is refused.
pub async fn replace_store_id(
    settings: &Settings,
) -> Result<(Option<StoreId>, StoreId), StartError> {
    match settings.store.kind {
        StoreKind::Embedded => {
            let (before, id) = of_file(settings, Embedded::replace_id).await?;
            Ok((Some(before), id))
        }
        StoreKind::Redis => Ok(redis(settings).await?.replace_id().await?),
    }
}

/// Returns the stored and the newest format of the configured store.
///
/// # Errors
/// See [`StartError`].
pub async fn formats(settings: &Settings) -> Result<Formats, StartError> {
    match settings.store.kind {
        StoreKind::Embedded => Ok(of_file(settings, Embedded::formats).await?),
        StoreKind::Redis => Ok(redis(settings).await?.formats().await?),
    }
}

/// Raises the configured store to the newest format. Returns its previous formats.
///
/// # Errors
/// See [`StartError`]. An embedded store that another process has open is refused.
pub async fn raise_format(settings: &Settings) -> Result<Formats, StartError> {
    match settings.store.kind {
        StoreKind::Embedded => Ok(of_file(settings, Embedded::raise_format).await?),
        StoreKind::Redis => Ok(redis(settings).await?.raise_format().await?),
    }
}

/// Copies the embedded store into a file, beside a delayd that works with it. Returns the bytes of
/// the copy.
///
/// # Errors
/// See [`StartError`].
pub async fn back_up(settings: &Settings, to: PathBuf) -> Result<u64, StartError> {
    match settings.store.kind {
        StoreKind::Embedded => {
            Ok(of_file(settings, move |path| Embedded::back_up(path, &to)).await?)
        }
        StoreKind::Redis => Err(store::Error::Misconfigured(
            "the tasks are in Redis, which is backed up by its own means: see \
             docs/operations/backup.md"
                .into(),
        )
        .into()),
    }
}

/// Records an action of a command that works on the store itself.
///
/// # Errors
/// See [`StartError`].
pub async fn record_action(settings: &Settings, action: &str) -> Result<(), StartError> {
    let entry = entry_of_command(action);
    match settings.store.kind {
        StoreKind::Embedded => {
            of_file(settings, move |path| Embedded::record_at(path, &[entry])).await?;
        }
        StoreKind::Redis => redis(settings).await?.record(vec![entry]).await?,
    }
    Ok(())
}

/// The audit entry of a command that succeeded.
pub fn entry_of_command(action: &str) -> AuditEntry {
    let now = delayd_wire::UnixMillis(Clock::system().now().0);
    AuditEntry::new(AuditSource::CommandLine, action, AuditResult::Done, now)
}

async fn redis(settings: &Settings) -> store::Result<Redis> {
    Redis::connect(params::redis(settings, &Clock::system())).await
}

/// Runs a blocking operation on the file of the embedded store.
async fn of_file<T: Send + 'static>(
    settings: &Settings,
    run: impl FnOnce(&Path) -> store::Result<T> + Send + 'static,
) -> store::Result<T> {
    let path = settings.store.embedded.path.clone();
    tokio::task::spawn_blocking(move || run(&path)).await.expect("opening the store does not panic")
}

/// Returns when the store can never work again in this process.
async fn broken(store: &AnyStore) {
    match store {
        AnyStore::Embedded(embedded) => {
            let mut fatal = embedded.fatal();
            if fatal.wait_for(|fatal| *fatal).await.is_ok() {
                return;
            }
            std::future::pending().await
        }
        AnyStore::Redis(_) => std::future::pending().await,
    }
}
