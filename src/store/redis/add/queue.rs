//! The queues of adds, one for each server, and what waits in them: a caller's request, and its
//! answer.

use std::collections::HashMap;
use std::sync::atomic::AtomicU16;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::store::redis::ids::pool::IdRequest;
use crate::store::{Added, NewTask, Result};

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

/// The tasks of one caller for one server.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) tasks: Vec<NewTask>,
    /// The lanes of the tasks, if they were chosen already, as in a cluster.
    picked: Vec<u16>,
    /// Closed once the caller no longer waits.
    answer: oneshot::Sender<RequestAnswer>,
}

/// The result of each task, and the tasks themselves, because some may have to be sent again.
pub(crate) type RequestAnswer = (Vec<NewTask>, Vec<Result<KeptResult>>);

/// The result of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeptResult {
    Added(Added),
    /// Its id belongs to another task: it needs a new one.
    Taken,
}

impl Request {
    /// A request, and the receiver of its answer.
    pub(crate) fn of(
        tasks: Vec<NewTask>,
        picked: Vec<u16>,
    ) -> (Self, oneshot::Receiver<RequestAnswer>) {
        let (answer, answered) = oneshot::channel();
        (Self { tasks, picked, answer }, answered)
    }

    /// What a task asks of its ids.
    pub(crate) fn id_request(&self, place: usize) -> IdRequest {
        let task = &self.tasks[place];
        let shard = self.picked.get(place).copied().or_else(|| task.pinned_shard());
        IdRequest { shards: task.topic.shards, shard, has_call: task.options.on_dead.is_some() }
    }

    /// Whether the caller was refused meanwhile: then its tasks must not be stored.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn answer(self, kept: Vec<Result<KeptResult>>) {
        // A caller that has disconnected needs no answer.
        let _ = self.answer.send((self.tasks, kept));
    }
}
