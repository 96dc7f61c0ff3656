//! What a caller asks of a batch, and what it is answered.

use tokio::sync::oneshot;

use crate::store::redis::ids::hand::Wish;
use crate::store::{Added, NewTask, Result};

/// What one caller has for one server.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) tasks: Vec<NewTask>,
    /// Their lanes, where those were picked already: in a cluster.
    picked: Vec<u16>,
    /// Closed once the caller waits no more.
    answer: oneshot::Sender<Answer>,
}

/// What became of each task, and the tasks themselves: some may have to be sent again.
pub(crate) type Answer = (Vec<NewTask>, Vec<Result<Kept>>);

/// What became of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Added(Added),
    /// Its id is another task's: it has to be drawn anew.
    Taken,
}

impl Request {
    /// What a caller asks, and where it hears the answer.
    pub(crate) fn of(tasks: Vec<NewTask>, picked: Vec<u16>) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        (Self { tasks, picked, answer }, answered)
    }

    /// What a task asks of its ids.
    pub(crate) fn wish(&self, place: usize) -> Wish {
        let task = &self.tasks[place];
        let shard = self.picked.get(place).copied().or_else(|| task.pinned_shard());
        Wish { shards: task.topic.shards, shard, has_call: task.options.on_dead.is_some() }
    }

    /// Whether the caller has been refused meanwhile: then its tasks must not be stored after all.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    pub(crate) fn answer(self, kept: Vec<Result<Kept>>) {
        // A caller that has gone does not need its answer.
        let _ = self.answer.send((self.tasks, kept));
    }
}
