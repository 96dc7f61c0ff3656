//! The tokio task that sends spans to the collector, in batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::EndedSpan;
use crate::metrics::{Metrics, SpanDrop};

/// The most spans of one export.
pub(super) const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// The time between two log lines about a collector that does not answer.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Takes spans.
pub(super) trait Collector: Send + Sync + 'static {
    /// Sends spans. The error is a short text, without values of headers.
    fn send(&self, spans: Vec<EndedSpan>) -> impl Future<Output = Result<(), String>> + Send;
}

pub(super) struct Exporter<C> {
    pub(super) collector: C,
    pub(super) spans: mpsc::Receiver<EndedSpan>,
    /// How long one export may take, with its repeats.
    pub(super) timeout: Duration,
    pub(super) stopping: CancellationToken,
    pub(super) metrics: Arc<Metrics>,
}

impl<C: Collector> Exporter<C> {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        // When it was last logged that the collector takes nothing.
        let mut logged: Option<Instant> = None;
        while let Some(batch) = self.gather().await {
            let count = batch.len() as u64;
            let sent = timeout(self.timeout, self.collector.send(batch)).await;
            match sent.unwrap_or_else(|_| Err("no answer in time".into())) {
                Ok(()) => {
                    self.metrics.trace.exported.inc_by(count);
                    if logged.take().is_some() {
                        tracing::info!("The collector takes spans again");
                    }
                }
                Err(error) => {
                    self.metrics.trace.dropped(SpanDrop::Export, count);
                    if logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
                        logged = Some(Instant::now());
                        tracing::warn!(
                            error,
                            "The collector of trace.endpoint does not take spans: they are dropped"
                        );
                    }
                }
            }
        }
    }

    /// Waits for spans, and gathers more for a while. None: the queue is closed and empty.
    async fn gather(&mut self) -> Option<Vec<EndedSpan>> {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            tokio::select! {
                biased;
                () = self.stopping.cancelled(), if !self.spans.is_closed() => self.spans.close(),
                taken = self.spans.recv_many(&mut batch, room) => {
                    if taken == 0 {
                        break;
                    }
                    until.get_or_insert_with(|| Instant::now() + GATHER);
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
            }
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }
}
