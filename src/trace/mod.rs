//! Traces: a span for each add, and one for each attempt to call back.
//!
//! ```text
//! add ─▶ Adding ─────┐
//!                    ├▶ Span ─▶ bounded queue ─▶ export ─▶ otlp ─▶ collector
//! attempt ─▶ Attempt ┘
//! ```
//!
//! - [`Adding`] is the trace of a request that adds tasks, and [`TracedAttempt`] that of an
//!   attempt. Both work without an exporter, too: they decide which context a task stores, and
//!   which one a callback gets.
//! - `export` takes spans from the queue, and sends them in batches. `otlp` writes them as OTLP. It
//!   exists only with the feature `otlp`.
//!
//! `docs/adr/0024-traces.md` says how an attempt finds the span of its add, and why attempts have
//! traces of their own.
//!
//! # Invariants
//!
//! - No request and no callback waits for the exporter. If the queue is full, a span is dropped and
//!   counted.
//! - A span holds no content, no value of a header and no query of a URL. Nor a path, if the task
//!   names a host and no service: it may be a secret.
//! - A trace whose `traceparent` is not sampled is not exported.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, SpanDrop};
use crate::model::clock::Clock;
use crate::model::task::{StoreId, TaskId};
use crate::model::trace::TraceContext;

mod adding;
mod attempt;
mod export;
#[cfg_attr(not(feature = "otlp"), path = "without_otlp.rs")]
mod otlp;
mod params;
mod sampler;
mod span;

pub use adding::{AddSpan, Adding};
pub use attempt::{AttemptSpan, Traced, TracedAttempt};
pub use params::{ExporterError, Params};
pub use span::{AttemptEnd, Called, EndedSpan, SpanKind};

use export::Exporter;
use otlp::Otlp;
use sampler::TraceSampler;
use span::Begin;

/// The most spans that wait for the collector.
const QUEUE: usize = 8_192;
/// How long a stop waits for the last spans to be exported.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Whether this program can export traces.
pub const IS_BUILT: bool = cfg!(feature = "otlp");

/// Makes the spans. Clones share the exporter. The default exports nothing.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    continue_below: Duration,
    exporting: Option<Exporting>,
}

/// The near end of the exporter.
#[derive(Debug)]
struct Exporting {
    queue: mpsc::Sender<EndedSpan>,
    sampler: TraceSampler,
    metrics: Arc<Metrics>,
    clock: Clock,
    store: Mutex<TracedStore>,
    stopping: CancellationToken,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

/// The store of this deployment.
#[derive(Debug, Default)]
struct TracedStore {
    /// Its id, once it is known.
    id: Option<StoreId>,
    /// The spans of adds whose contexts are derived from it, until it is known.
    waiting: Vec<(EndedSpan, TaskId)>,
}

impl Exporting {
    /// Exports a span if its trace is sampled.
    fn export(&self, span: EndedSpan) {
        if span.context.is_sampled && self.queue.try_send(span).is_err() {
            self.metrics.trace.dropped(SpanDrop::Queue, 1);
        }
    }

    /// Exports the span of an add, with the context that attempts derive from the ids of store and
    /// task.
    fn export_derived(&self, span: EndedSpan, task: TaskId) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        match store.id {
            Some(id) => {
                drop(store);
                let context = TraceContext::of_add(id, task, |trace| self.sampler.samples(trace));
                self.export(EndedSpan { context, ..span });
            }
            None if store.waiting.len() < QUEUE => store.waiting.push((span, task)),
            None => self.metrics.trace.dropped(SpanDrop::Queue, 1),
        }
    }

    /// The context of a span that no other names.
    fn root(&self) -> TraceContext {
        let root = TraceContext::random(false);
        TraceContext { is_sampled: self.sampler.samples(root.trace), ..root }
    }

    fn set_store(&self, id: StoreId) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.id = Some(id);
        let waiting = std::mem::take(&mut store.waiting);
        drop(store);
        waiting.into_iter().for_each(|(span, task)| self.export_derived(span, task));
    }

    /// Counts the spans that have waited in vain.
    fn drop_waiting(&self) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut store.waiting);
        self.metrics.trace.dropped(SpanDrop::Queue, waiting.len() as u64);
    }

    fn begin(&self) -> Begin {
        Begin { unix_micros: self.clock.now_micros(), at: Instant::now() }
    }
}

impl Tracer {
    /// Starts the exporter, if there is an endpoint. Must be called within a tokio runtime, after
    /// [`crate::install_crypto`].
    ///
    /// # Errors
    /// If the exporter cannot be built, or this program has none.
    pub fn start(
        params: &Params,
        metrics: &Arc<Metrics>,
        clock: &Clock,
    ) -> Result<Self, ExporterError> {
        let exporting = match &params.endpoint {
            None => None,
            Some(endpoint) => Some(exporting(params, endpoint, metrics, clock)?),
        };
        Ok(Self(Arc::new(Inner { continue_below: params.continue_below, exporting })))
    }

    /// Takes in the id of the store, which the spans of adds without a caller's context need. No
    /// add waits for it; their spans do.
    pub fn set_store(&self, id: StoreId) {
        if let Some(exporting) = &self.0.exporting {
            exporting.set_store(id);
        }
    }

    /// Exports the spans that wait, as far as the collector takes them in time, and at most until
    /// this moment.
    pub async fn finish(&self, until: Instant) {
        let Some(exporting) = &self.0.exporting else { return };
        exporting.drop_waiting();
        exporting.stopping.cancel();
        let exporter = exporting.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut exporter) = exporter else { return };
        let until = until.min(Instant::now() + LAST_SPANS);
        if tokio::time::timeout_at(until, &mut exporter).await.is_err() {
            exporter.abort();
            tracing::warn!("The collector does not take the last spans: they are dropped");
        }
    }
}

fn exporting(
    params: &Params,
    endpoint: &str,
    metrics: &Arc<Metrics>,
    clock: &Clock,
) -> Result<Exporting, ExporterError> {
    let (queue, spans) = mpsc::channel(QUEUE);
    let stopping = CancellationToken::new();
    let exporter = Exporter {
        collector: Otlp::new(params, endpoint)?,
        spans,
        timeout: params.timeout,
        stopping: stopping.clone(),
        metrics: metrics.clone(),
    };
    Ok(Exporting {
        queue,
        sampler: TraceSampler::new(params.sample_ratio),
        metrics: metrics.clone(),
        clock: clock.clone(),
        store: Mutex::default(),
        stopping,
        exporter: Mutex::new(Some(tokio::spawn(exporter.run()))),
    })
}

#[cfg(test)]
mod tests;
