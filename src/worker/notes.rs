//! Notes of attempts, which `task/get` shows. They are written in the background: no task waits
//! for its note, and notes are dropped when the store has no capacity for them.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::store::{AttemptNote, Delivery};

/// The most notes that wait to be written. Further ones are dropped.
const QUEUE: usize = 4_096;
/// The most notes of one write.
const BATCH: usize = 256;

/// Accepts notes without waiting.
#[derive(Debug)]
pub(super) struct Notes {
    queue: mpsc::Sender<AttemptNote>,
    dropped: Counter,
}

impl Notes {
    pub(super) fn new(dropped: Counter) -> (Self, mpsc::Receiver<AttemptNote>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        (Self { queue, dropped }, receiver)
    }

    /// Queues the note, or drops it if the queue is full.
    pub(super) fn take(&self, note: AttemptNote) {
        if self.queue.try_send(note).is_err() {
            self.dropped.inc();
            tracing::debug!("A note of an attempt is left out: too many wait to be written");
        }
    }
}

/// Writes notes until the instance stops, then those that are queued at that moment.
pub(super) async fn run(
    store: Arc<impl Delivery>,
    stopping: CancellationToken,
    mut notes: mpsc::Receiver<AttemptNote>,
    dropped: Counter,
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
        let count = batch.len() as u64;
        if let Err(error) = store.note(std::mem::take(&mut batch)).await {
            dropped.inc_by(count);
            tracing::debug!(%error, "Notes of attempts are left out");
        }
        if is_stopping {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::clock::UnixMillis;
    use crate::model::task::TaskId;

    #[test]
    fn a_note_that_finds_the_queue_full_is_dropped_and_counted() {
        let dropped = Counter::default();
        let (notes, _queued) = Notes::new(dropped.clone());
        let note = AttemptNote {
            lane: "orders:0".parse().unwrap(),
            id: TaskId(1),
            attempt: 1,
            started: UnixMillis(0),
            took: Duration::ZERO,
            wait: None,
            outcome: String::new(),
            answer: String::new(),
        };
        (0..QUEUE).for_each(|_| notes.take(note.clone()));
        assert_eq!(dropped.get(), 0);
        notes.take(note);
        assert_eq!(dropped.get(), 1);
    }
}
