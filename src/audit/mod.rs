//! The audit log: who did which administrative action, and with what result.
//!
//! Each entry is a log line under the target `delayd::audit`, and is kept in a capped log of the
//! store. An action never waits for the store: entries go into a bounded queue, and one tokio task
//! writes them in batches (`writer`). Refused requests are recorded at a bounded rate (`refusals`),
//! so that callers cannot fill the log with them. `docs/operations/secure.md` lists the actions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use delayd_wire::{AuditEntry, AuditResult, AuditSource};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::{AuditDrop, Metrics};
use crate::model::clock::Clock;
use crate::store::Audit;

mod refusals;
mod writer;

use refusals::Refusals;

/// The most entries that wait for the store.
const QUEUE: usize = 1_024;
/// How long a stop waits for the last entries to be written.
const LAST_ENTRIES: Duration = Duration::from_secs(2);

/// Records administrative actions.
#[derive(Debug)]
pub struct AuditLog {
    queue: mpsc::Sender<AuditEntry>,
    /// Whether the queue is full. A log line says when that begins and when it ends.
    is_full: Arc<AtomicBool>,
    refusals: Refusals,
    metrics: Arc<Metrics>,
    clock: Clock,
    stopping: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AuditLog {
    /// Starts the tokio task that writes the entries into the store. Must be called within a tokio
    /// runtime.
    pub fn start<S: Audit>(store: Arc<S>, metrics: Arc<Metrics>, clock: Clock) -> Arc<Self> {
        let (queue, entries) = mpsc::channel(QUEUE);
        let (stopping, is_full) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let writer = writer::AuditWriter {
            store,
            entries,
            is_full: is_full.clone(),
            stopping: stopping.clone(),
            metrics: metrics.clone(),
        };
        let writer = Mutex::new(Some(tokio::spawn(writer.run())));
        let refusals = Refusals::default();
        Arc::new(Self { queue, is_full, refusals, metrics, clock, stopping, writer })
    }

    /// An entry that names no topic, destination or task. [`record`](Self::record) sets its time.
    pub fn entry(&self, source: AuditSource, action: &str, result: AuditResult) -> AuditEntry {
        AuditEntry::new(source, action, result, delayd_wire::UnixMillis(self.clock.now().0))
    }

    /// Logs an action that ends now, and queues its entry for the store.
    pub fn record(&self, entry: AuditEntry) {
        let entry = AuditEntry { at_ms: delayd_wire::UnixMillis(self.clock.now().0), ..entry };
        log(&entry);
        if self.queue.try_send(entry).is_err() {
            self.metrics.audit.dropped(AuditDrop::Queue, 1);
            if !self.is_full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "The store does not take audit entries in time: new ones are only in the log"
                );
            }
        }
    }

    /// Records a request that was refused before its body was read. Beyond the rate of its token,
    /// or of all callers without a known token, it only counts the request.
    pub fn refused(&self, token: Option<&str>, entry: impl FnOnce() -> AuditEntry) {
        match self.refusals.admit(token) {
            Some(unrecorded) => self.record(AuditEntry { unrecorded, ..entry() }),
            None => self.metrics.audit.dropped(AuditDrop::Rate, 1),
        }
    }

    /// Writes the queued entries, as far as the store takes them in time, and at most until this
    /// moment. Later entries are only logged.
    pub async fn finish(&self, until: Instant) {
        self.stopping.cancel();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut writer) = writer else { return };
        let until = until.min(Instant::now() + LAST_ENTRIES);
        if tokio::time::timeout_at(until, &mut writer).await.is_err() {
            writer.abort();
            tracing::warn!(
                "The store does not take the last audit entries: they are only in the log"
            );
        }
    }
}

/// Writes the log line of an entry.
fn log(entry: &AuditEntry) {
    let (action, result) = (entry.action.as_str(), entry.result.as_str());
    let by = match (&entry.token, entry.source) {
        (Some(token), _) => token.as_str(),
        (None, AuditSource::Api) => "a caller without a known token",
        (None, source) => source.as_str(),
    };
    tracing::info!(
        target: "delayd::audit",
        source = entry.source.as_str(),
        token = entry.token,
        action,
        topic = entry.topic.as_ref().map(|topic| topic.as_str()),
        sn = entry.sn.as_ref().map(|sn| sn.as_str()),
        schedule = entry.schedule,
        task.id = entry.task_id.map(|id| id.0),
        tasks = entry.tasks,
        reason = entry.reason,
        dry_run = entry.dry_run,
        result,
        status = entry.status,
        dm_error = entry.dm_error,
        request_id = entry.request_id,
        unrecorded = entry.unrecorded,
        "{action} by {by}: {result}"
    );
}

#[cfg(test)]
mod tests;
