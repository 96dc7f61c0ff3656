//! Notes of attempts, which `task/get` shows. They are written in the background: no task waits
//! for its note, and notes are dropped when the store has no capacity for them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::store::{AttemptNote, Delivery};

/// The most notes that wait to be written. Further ones are dropped.
const QUEUE: usize = 4_096;
/// The most notes of one write.
const BATCH: usize = 256;

/// Accepts notes without waiting.
#[derive(Debug)]
pub(super) struct Notes(mpsc::Sender<AttemptNote>);

impl Notes {
    pub(super) fn new() -> (Self, mpsc::Receiver<AttemptNote>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Queues the note, or drops it if the queue is full.
    pub(super) fn take(&self, note: AttemptNote) {
        if self.0.try_send(note).is_err() {
            tracing::debug!("A note of an attempt is left out: too many wait to be written");
        }
    }
}

/// Writes notes until the instance stops, then those that are queued at that moment.
pub(super) async fn run(
    store: Arc<impl Delivery>,
    stopping: CancellationToken,
    mut notes: mpsc::Receiver<AttemptNote>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let is_stopping = tokio::select! {
            biased;
            count = notes.recv_many(&mut batch, BATCH) => count == 0,
            () = stopping.cancelled() => true,
        };
        if batch.is_empty() {
            return;
        }
        if let Err(error) = store.note(std::mem::take(&mut batch)).await {
            tracing::debug!(%error, "Notes of attempts are left out");
        }
        if is_stopping {
            return;
        }
    }
}
