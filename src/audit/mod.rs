//! The audit log: who did which administrative action, and with what result.
//!
//! Each entry is a line of the log under the target `delayd::audit`, and is kept in a capped log of
//! the store. An action never waits for the store: entries go into a bounded queue, and one task
//! writes them in batches (`writer`). Refused requests are recorded at a bounded rate (`refusals`),
//! so that nobody can fill the log with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use delayd_wire::{AuditEntry, AuditResult, AuditSource};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics::{AuditDrop, Metrics};
use crate::model::clock::Clock;
use crate::store::Audit;

mod refusals;
mod writer;

use refusals::Refusals;

/// How many entries wait for the store at most.
const QUEUE: usize = 1_024;
/// How long the last entries may take at the stop.
const LAST_ENTRIES: Duration = Duration::from_secs(2);

/// Records administrative actions.
#[derive(Debug)]
pub struct AuditLog {
    queue: mpsc::Sender<AuditEntry>,
    /// Whether the queue is full. It is logged when that begins and ends.
    is_full: Arc<AtomicBool>,
    refusals: Refusals,
    metrics: Arc<Metrics>,
    clock: Clock,
    stopping: CancellationToken,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AuditLog {
    /// Starts the task that writes the entries into the store. Must be called within a tokio
    /// runtime.
    pub fn start<S: Audit>(store: Arc<S>, metrics: Arc<Metrics>, clock: Clock) -> Arc<Self> {
        let (queue, entries) = mpsc::channel(QUEUE);
        let (stopping, is_full) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let writer = writer::Writer {
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

    /// An action without a target. [`record`](Self::record) sets its time.
    pub fn entry(&self, source: AuditSource, action: &str, result: AuditResult) -> AuditEntry {
        AuditEntry::new(source, action, result, delayd_wire::UnixMillis(self.clock.now().0))
    }

    /// Logs an action that has ended now, and queues it for the store.
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

    /// Records a request that was refused before its action began, unless there are too many of
    /// this token, or of callers without a known one.
    pub fn refused(&self, token: Option<&str>, entry: impl FnOnce() -> AuditEntry) {
        match self.refusals.admit(token) {
            Some(unrecorded) => self.record(AuditEntry { unrecorded, ..entry() }),
            None => self.metrics.audit.dropped(AuditDrop::Rate, 1),
        }
    }

    /// Writes what is queued, as far as the store takes it in time. Entries that come later are
    /// only logged.
    pub async fn finish(&self) {
        self.stopping.cancel();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut writer) = writer else { return };
        if tokio::time::timeout(LAST_ENTRIES, &mut writer).await.is_err() {
            writer.abort();
            tracing::warn!(
                "The store does not take the last audit entries: they are only in the log"
            );
        }
    }
}

/// One line, under a target of its own.
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
        topic = entry.topic.as_ref().map(|topic| topic.0.as_str()),
        sn = entry.sn.as_ref().map(|sn| sn.0.as_str()),
        task.id = entry.task_id.map(|id| id.0),
        tasks = entry.tasks,
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
