//! Notes of attempts, for eyes: written beside the road, so that no task waits for them, and left
//! out where the store has other cares.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Shared;
use crate::callback::Caller;
use crate::store::{AttemptNote, Delivery};

/// Notes that wait to be written; further ones are left out.
const QUEUE: usize = 4_096;
/// The most notes that are written together.
const BATCH: usize = 256;

/// Which attempts are noted (`history.attempts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// All of them.
    All,
    /// Those that failed.
    Failures,
    /// None.
    Nothing,
}

/// Takes notes without waiting.
#[derive(Debug)]
pub(super) struct Notes(mpsc::Sender<AttemptNote>);

impl Notes {
    pub(super) fn new() -> (Self, mpsc::Receiver<AttemptNote>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// To be written soon, if there is room.
    pub(super) fn take(&self, note: AttemptNote) {
        if self.0.try_send(note).is_err() {
            tracing::debug!("A note of an attempt is left out: too many wait to be written");
        }
    }
}

/// Writes until the instance stops; what waits then is still written.
pub(super) async fn run(
    shared: Arc<Shared<impl Delivery, impl Caller>>,
    mut notes: mpsc::Receiver<AttemptNote>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let is_stopping = tokio::select! {
            biased;
            count = notes.recv_many(&mut batch, BATCH) => count == 0,
            () = shared.stopping.cancelled() => true,
        };
        if batch.is_empty() {
            return;
        }
        if let Err(error) = shared.parts.store.note(std::mem::take(&mut batch)).await {
            tracing::debug!(%error, "Notes of attempts are left out");
        }
        if is_stopping {
            return;
        }
    }
}
