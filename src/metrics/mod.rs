//! The metrics of an instance, for `GET /metrics`. Each is declared once.
//!
//! The names follow Prometheus: base units, `_total` for counters. Every series whose labels are
//! known in advance exists from the start with the value 0, so that a rate over it has a beginning.
//! `docs/METRICS.md` is generated from the declarations.
//!
//! Counters on the path of a task are handles to atomics: an increment takes no lock. Labels that
//! callers choose are capped (`services`).

mod api;
mod audit;
mod callbacks;
mod config;
mod destinations;
mod labels;
mod lateness;
mod log_lines;
#[cfg(target_os = "linux")]
mod process;
mod readings;
mod recent;
mod sampled;
mod schedules;
mod services;
mod store;
mod tasks;
mod tokens;
mod topics;
mod trace;
mod usage;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::model::culprit::Culprit;
use crate::model::version;

pub use api::{AddResult, ApiMetrics, Rejection};
pub use audit::{AuditDrop, AuditMetrics};
pub use callbacks::{AttemptOutcome, CallbackMetrics, ServiceMetrics};
pub use config::{ConfigMetrics, Reloads};
pub use destinations::{DestinationGauges, DestinationMetrics, LimitFigures};
pub use lateness::LatenessMetrics;
pub use log_lines::{CountLines, LogFigures, LogLine, log_figures};
pub use readings::Readings;
pub use recent::{Quantiles, RecentDurations};
pub use sampled::{SampledMetrics, ServiceSample};
pub use schedules::ScheduleMetrics;
use services::ServiceNames;
pub use store::{DiskMetrics, ErrorKind, Op, OpFigures, ServerFigures, ServerSaid, StoreMetrics};
pub use tasks::{TaskEnd, TaskMetrics};
pub use tokens::{AllTokenMetrics, TokenMetrics};
pub use topics::{TopicSample, topics_text};
pub use trace::{SpanDrop, TraceMetrics};
pub use usage::{Usage, usage};
pub use worker::WorkerMetrics;

/// The buckets of every duration, in seconds: 1 ms to 2 h. They contain the objectives that an
/// operator is likely to set.
const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3600.0,
    7200.0,
];

/// All metrics of this instance.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests and adds.
    pub api: ApiMetrics,
    /// How late first callbacks begin.
    pub lateness: LatenessMetrics,
    /// Callbacks and their results.
    pub callbacks: Arc<CallbackMetrics>,
    /// The limits of calls.
    pub destinations: DestinationMetrics,
    /// Ends of tasks and leases.
    pub tasks: Arc<TaskMetrics>,
    /// Calls of the store.
    pub store: Arc<StoreMetrics>,
    /// What the sampler counts in the store.
    pub sampled: SampledMetrics,
    /// What workers do beside the tasks.
    pub worker: WorkerMetrics,
    /// The planning of recurring schedules.
    pub schedules: ScheduleMetrics,
    /// Reloads of the configuration.
    pub config: ConfigMetrics,
    /// The audit log.
    pub audit: AuditMetrics,
    /// Exported traces.
    pub trace: TraceMetrics,
    /// The OAuth tokens of services.
    pub tokens: AllTokenMetrics,
}

impl Metrics {
    /// Registers all metrics at 0, with those of both stores. `routes` are the paths of the routes.
    pub fn new(routes: impl IntoIterator<Item = &'static str>) -> Arc<Self> {
        Self::with_store(routes, StoreMetrics::of_both())
    }

    /// Registers all metrics, with those of the store in use.
    pub fn with_store(
        routes: impl IntoIterator<Item = &'static str>,
        store: Arc<StoreMetrics>,
    ) -> Arc<Self> {
        let mut all = Registry::default();
        let registry = all.sub_registry_with_prefix("delayd");
        registry.register(
            "build",
            "The running version, and the commit it was built from; always 1",
            Info::new(vec![("version", version::VERSION), ("commit", version::COMMIT)]),
        );
        let api = ApiMetrics::register(registry, routes);
        let lateness = LatenessMetrics::register(registry);
        let names = ServiceNames::default();
        let callbacks = Arc::new(CallbackMetrics::register(registry, names.clone()));
        let tokens = AllTokenMetrics::register(registry, names.clone());
        let destinations = DestinationMetrics::register(registry, names.clone());
        store.register(registry);
        let sampled = SampledMetrics::register(registry, names);
        let worker = WorkerMetrics::register(registry);
        let schedules = ScheduleMetrics::register(registry);
        let config = ConfigMetrics::register(registry);
        let audit = AuditMetrics::register(registry);
        let trace = TraceMetrics::register(registry);
        log_lines::register(registry);
        #[cfg(target_os = "linux")]
        all.register_collector(Box::new(process::ProcessCollector));
        Arc::new(Self {
            registry: all,
            api,
            lateness,
            callbacks,
            destinations,
            tasks: store.tasks.clone(),
            store,
            sampled,
            worker,
            schedules,
            config,
            audit,
            trace,
            tokens,
        })
    }

    /// The totals since the start.
    pub fn totals(&self) -> Totals {
        let (calls, failed_calls) = self.callbacks.in_all();
        Totals {
            added: self.api.added_in_all(),
            calls,
            failed_calls,
            lateness: self.lateness.in_all(),
        }
    }

    /// The OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(64 << 10);
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Counters of this instance, summed over their labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tasks that were stored or replaced.
    pub added: u64,
    /// Callbacks that ended.
    pub calls: u64,
    /// Those that failed.
    pub failed_calls: u64,
    /// The lateness of first attempts, by culprit in the order of [`Culprit::ALL`].
    pub lateness: [Duration; Culprit::ALL.len()],
}

/// A histogram of durations.
fn durations() -> Histogram {
    Histogram::new(SECONDS)
}

/// Observes a duration in seconds.
fn observe(histogram: &Histogram, duration: Duration) {
    histogram.observe(duration.as_secs_f64());
}
