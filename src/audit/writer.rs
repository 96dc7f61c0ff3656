//! The tokio task that writes audit entries into the store, in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use delayd_wire::AuditEntry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::{AuditDrop, Metrics};
use crate::store::Audit;

/// The most entries of one write.
const BATCH: usize = 256;
/// How long a batch waits before it is written again, if the store did not take it.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct AuditWriter<S> {
    pub(super) store: Arc<S>,
    pub(super) entries: mpsc::Receiver<AuditEntry>,
    pub(super) is_full: Arc<AtomicBool>,
    pub(super) stopping: CancellationToken,
    pub(super) metrics: Arc<Metrics>,
}

impl<S: Audit> AuditWriter<S> {
    /// Runs until the queue is closed and empty. During a stop, it drops a batch that the store
    /// does not take.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = self.stopping.cancelled(), if !self.entries.is_closed() => {
                    self.entries.close();
                    continue;
                }
                taken = self.entries.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return;
                    }
                }
            }
            self.write(&batch).await;
            batch.clear();
            if self.is_full.swap(false, Ordering::Relaxed) {
                tracing::info!("The store takes audit entries again");
            }
        }
    }

    /// Writes a batch, and repeats this until the store takes it or delayd stops. If an answer is
    /// lost, entries may be written twice.
    async fn write(&self, batch: &[AuditEntry]) {
        let mut is_told = false;
        while let Err(error) = self.store.record(batch.to_vec()).await {
            if !is_told {
                tracing::warn!(%error, "The store does not take audit entries: they wait");
                is_told = true;
            }
            if self.stopping.is_cancelled() {
                self.metrics.audit.dropped(AuditDrop::Stop, batch.len() as u64);
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }
}
