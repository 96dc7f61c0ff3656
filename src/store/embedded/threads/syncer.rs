//! The thread that makes the log durable, and then answers what is promised to be durable.
//!
//! # Invariants
//!
//! - A failed sync, of whatever kind, condemns the store before anybody is answered, and nothing is
//!   confirmed after it. The kernel forgets which pages it could not write, so a repeated sync that
//!   succeeds proves nothing.
//! - All who wait are answered even if this thread panics.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::Thread;

use tokio::sync::broadcast;

use super::confirmations::Confirmations;
use crate::metrics::DiskMetrics;
use crate::store::embedded::disk::fault::{PanicGuard, StoreHealth};
use crate::store::embedded::disk::wal_sync::{LogSync, SyncPace};
use crate::store::{Hint, Result};

/// The state of the thread.
pub(crate) struct Syncer {
    pub(crate) log: Box<dyn LogSync>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) pace: Arc<SyncPace>,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) hints: broadcast::Sender<Hint>,
    pub(crate) disk: DiskMetrics,
    /// The writer thread. It begins the next promised work after a sync.
    pub(crate) writer: Thread,
    /// Held until the end: the checkpoint thread's last copy comes after the last sync.
    pub(crate) checkpoints: SyncSender<()>,
}

impl Syncer {
    /// Works until the writer thread has ended.
    pub(crate) fn run(mut self) {
        let health = Arc::clone(&self.health);
        let confirmations = Arc::clone(&self.confirmations);
        let (hints, writer) = (self.hints.clone(), self.writer.clone());
        let _waiters = EndGuard {
            confirmations: &confirmations,
            health: &health,
            hints: &hints,
            writer: &writer,
        };
        let _guard = PanicGuard(&health);
        // The newest commit is read before the sync begins: what is committed meanwhile may be
        // missing from it.
        while let Some(newest) = confirmations.next_sync() {
            let synced = self.sync();
            let confirmed = match &synced {
                Ok(()) => confirmations.synced(newest),
                Err(_) => confirmations.give_up(),
            };
            for awaiting in confirmed {
                awaiting.answer(&synced, &self.hints);
            }
            writer.unpark();
        }
        drop(self.checkpoints);
    }

    fn sync(&mut self) -> Result<()> {
        self.health.check()?;
        self.pace.begins();
        let synced = self.log.sync();
        self.disk.synced(self.pace.ends());
        if let Err(error) = synced {
            self.health.condemn(&format!("the write-ahead log cannot be made durable: {error}"));
        }
        // Another thread may have met a failure that this sync was not told of.
        self.health.check()
    }
}

/// Refuses those who wait when the thread ends. In order, nobody is left.
struct EndGuard<'a> {
    confirmations: &'a Confirmations,
    health: &'a StoreHealth,
    hints: &'a broadcast::Sender<Hint>,
    writer: &'a Thread,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        for awaiting in self.confirmations.end() {
            awaiting.answer(&self.health.check(), self.hints);
        }
        self.writer.unpark();
    }
}
