//! The way to a thread: a bounded queue that can be closed from this side.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};

use crate::store::{Error, Result};

/// How many jobs may wait. Behind them waits the caller.
const LENGTH: usize = 8_192;

/// How long a caller waits for room.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sending end.
pub(super) struct Queue<J>(RwLock<Option<mpsc::Sender<J>>>);

impl<J> Queue<J> {
    pub(super) fn new() -> (Self, mpsc::Receiver<J>) {
        let (sender, receiver) = mpsc::channel(LENGTH);
        (Self(RwLock::new(Some(sender))), receiver)
    }

    /// Queues a job.
    pub(super) async fn send(&self, job: J) -> Result<()> {
        let Err((sender, job)) = self.offer(job)? else { return Ok(()) };
        sender.send_timeout(job, PATIENCE).await.map_err(|error| match error {
            SendTimeoutError::Timeout(_) => Error::Unavailable("overloaded: the queue stayed full".into()),
            SendTimeoutError::Closed(_) => closed(),
        })
    }

    /// Queues a job if there is room, as there nearly always is: to wait for some costs a timer. The rest is to wait.
    fn offer(&self, job: J) -> Result<std::result::Result<(), (mpsc::Sender<J>, J)>> {
        let sender = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_ref() else { return Err(closed()) };
        match sender.try_send(job) {
            Ok(()) => Ok(Ok(())),
            Err(TrySendError::Full(job)) => Ok(Err((sender.clone(), job))),
            Err(TrySendError::Closed(_)) => Err(closed()),
        }
    }

    /// Lets the thread end once it has done what is queued.
    pub(super) fn close(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl<J> fmt::Debug for Queue<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// What a caller is told whose job no thread will do.
pub(super) fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}
