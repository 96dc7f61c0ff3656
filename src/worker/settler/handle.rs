//! Where endings are sent.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::ending::LeaseEnding;

/// Accepts endings, and knows which servers are away. The calls in flight bound its queue.
#[derive(Debug)]
pub(in crate::worker) struct Settler {
    sender: mpsc::UnboundedSender<LeaseEnding>,
    /// The number of endings that the store has not answered.
    pending: Gauge,
    /// The servers that do not answer settles.
    away: Mutex<HashSet<u64>>,
    back: Notify,
    finished: CancellationToken,
}

impl Settler {
    pub(in crate::worker) fn new(pending: Gauge) -> (Self, mpsc::UnboundedReceiver<LeaseEnding>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (away, back, finished) = (Mutex::default(), Notify::new(), CancellationToken::new());
        (Self { sender, pending, away, back, finished }, receiver)
    }

    /// Queues the ending. After the last flush it is dropped, and the lease runs out.
    pub(in crate::worker) fn send(&self, ending: LeaseEnding) {
        self.pending.inc();
        if self.queue(ending).is_some() {
            self.pending.dec();
        }
    }

    /// The store has answered an ending, or it is given up.
    pub(super) fn is_answered(&self) {
        self.pending.dec();
    }

    /// Queues the ending. Returns it after the last flush.
    pub(super) fn queue(&self, ending: LeaseEnding) -> Option<LeaseEnding> {
        self.sender.send(ending).err().map(|refused| refused.0)
    }

    fn away(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a batch waits for the server to come back.
    pub(in crate::worker) fn is_away(&self, server: u64) -> bool {
        self.away().contains(&server)
    }

    /// Returns once no batch waits for the server to come back.
    pub(in crate::worker) async fn recovered(&self, server: u64) {
        loop {
            // Listen before the check: a return between the two is noticed.
            let back = self.back.notified();
            if !self.is_away(server) {
                return;
            }
            back.await;
        }
    }

    /// The server does not answer. Returns whether that is news.
    pub(super) fn is_gone(&self, server: u64) -> bool {
        self.away().insert(server)
    }

    /// The server has answered: claims may go on.
    pub(super) fn is_back(&self, server: u64) {
        let was_away = self.away().remove(&server);
        if was_away {
            self.back.notify_waiters();
            tracing::info!("The store takes settles again");
        }
    }

    /// Nothing is sent from now on: queued endings are flushed, and running calls are cut off.
    pub(in crate::worker) fn finish(&self) {
        self.finished.cancel();
    }

    /// Returns once [`Settler::finish`] was called.
    pub(in crate::worker) async fn finished(&self) {
        self.finished.cancelled().await;
    }
}
