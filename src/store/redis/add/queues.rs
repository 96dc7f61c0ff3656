//! The queues of adds.

use std::collections::HashMap;
use std::sync::atomic::AtomicU16;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::request::Request;

/// The queues of all servers.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_server: Mutex<HashMap<u64, mpsc::Sender<Request>>>,
    /// The lane of the next task that may go to any lane.
    pub(super) turn: AtomicU16,
}

impl Queues {
    /// The queues by the number of the server. A queue that is removed ends once it is empty.
    pub(super) fn by_server(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Request>>> {
        self.by_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all queues.
    pub(crate) fn close(&self) {
        self.by_server().clear();
    }
}
