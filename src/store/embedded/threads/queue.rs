//! A bounded queue to a thread, which its sender can close.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};

use crate::store::{Error, Result};

/// How many jobs may wait. Further callers wait for room.
const LENGTH: usize = 8_192;

/// How long a caller waits for room.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sending end.
pub(crate) struct Queue<J>(RwLock<Option<mpsc::Sender<J>>>);

impl<J> Queue<J> {
    pub(crate) fn new() -> (Self, mpsc::Receiver<J>) {
        let (sender, receiver) = mpsc::channel(LENGTH);
        (Self(RwLock::new(Some(sender))), receiver)
    }

    /// Queues a job.
    pub(crate) async fn send(&self, job: J) -> Result<()> {
        let (sender, job) = {
            let sender = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let sender = sender.as_ref().ok_or_else(closed)?;
            match sender.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(closed()),
                // Rare. Waiting for room costs a timer, and must not happen under the lock.
                Err(TrySendError::Full(job)) => (sender.clone(), job),
            }
        };
        sender.send_timeout(job, PATIENCE).await.map_err(|error| match error {
            SendTimeoutError::Timeout(_) => {
                Error::Unavailable("overloaded: the queue stayed full".into())
            }
            SendTimeoutError::Closed(_) => closed(),
        })
    }

    /// Lets the thread end once it has done the queued jobs.
    pub(crate) fn close(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl<J> fmt::Debug for Queue<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// The error of a caller whose job no thread will do.
pub(crate) fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}
