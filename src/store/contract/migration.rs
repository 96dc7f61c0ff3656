//! The types of a migration: a task is lent by the source and adopted by the target.

use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Options, State, TaskId};

use super::topics::TopicEntry;

/// The outcome of a task that another store has stored, until it is forgotten here.
pub const MOVED: &str = "moved to another store";

/// A task of another store, to be stored here as it was there.
#[derive(Clone, Debug, PartialEq)]
pub struct Adoptee {
    /// Its topic, as registered here.
    pub topic: TopicEntry,
    /// Its id, which leads to its lane.
    pub id: TaskId,
    /// Where it goes.
    pub destination: Destination,
    /// When it was stored.
    pub created: UnixMillis,
    /// Its stored due moment: from the add, or set since.
    pub due: UnixMillis,
    /// Its state.
    pub standing: AdoptedStanding,
    /// Attempts begun.
    pub attempts: u32,
    /// The last attempt's outcome.
    pub outcome: String,
    /// Its own settings, including the id of its dead-letter call. Without an origin, this store
    /// becomes it.
    pub options: Options,
    /// When an add last set the task by its key, by the source's clock. `None` if another task has
    /// the key there, or if that is not known.
    pub key_set: Option<UnixMillis>,
    /// Whether the source lends it. A refused task then continues at the source.
    pub lent: bool,
    /// The content, kept byte for byte.
    pub content: String,
}

impl Adoptee {
    /// The higher of its id and the id of its dead-letter call.
    pub fn highest_id(&self) -> TaskId {
        let call = self.options.on_dead.as_ref().and_then(|call| call.task_id);
        call.map_or(self.id, |call| call.max(self.id))
    }
}

/// The state of an adopted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptedStanding {
    /// It waits for this moment: its due moment, or a retry's.
    Waiting {
        /// The moment.
        due: UnixMillis,
    },
    /// It has ended.
    Ended {
        /// A final state.
        state: State,
        /// When.
        finished: UnixMillis,
    },
}

/// The result of an adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// It is stored now.
    New,
    /// It was adopted before, whatever became of it since. Nothing changed.
    Known,
    /// A task with the same key was set later here, even if it has ended. The adopted task is not
    /// stored.
    Superseded,
    /// It waited here, and has now ended as it did at the source.
    Ended,
    /// It is leased here, and has ended at the source: a cancel is pending now.
    Cancelling,
    /// This very store lends it. Nothing changed.
    Own,
    /// Another task has its id, or the same task was changed since. Neither is changed. If the
    /// adopted task is lent, an older task with its key is cancelled all the same.
    Taken,
}
