//! The nouns of a task's way to another store: lent by the old one, adopted by the new.

use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Options, State, TaskId};

use super::topics::TopicEntry;

/// The last outcome of a task that another store keeps, for the moment until it is forgotten.
pub const MOVED: &str = "moved to another store";

/// A task of another store, to be kept here from now on as it was there.
#[derive(Clone, Debug, PartialEq)]
pub struct Adoptee {
    /// Its topic, as registered here.
    pub topic: TopicEntry,
    /// Its id, which leads to its lane.
    pub id: TaskId,
    /// Who gets it.
    pub destination: Destination,
    /// When it was stored.
    pub created: UnixMillis,
    /// The due moment it was stored with, or was moved to by hand.
    pub due: UnixMillis,
    /// Where it stood.
    pub standing: Standing,
    /// Attempts begun.
    pub attempts: u32,
    /// The last attempt's outcome.
    pub outcome: String,
    /// Its own settings. A call for the dead has its id. Without an origin, this store is it.
    pub options: Options,
    /// When an add last set the task by its key, by the other store's clock; `None`: the key is
    /// another task's there, or that is not known.
    pub key_set: Option<UnixMillis>,
    /// Whether the other store lends it. If it is refused here it goes on there.
    pub lent: bool,
    /// The body, kept byte for byte.
    pub content: String,
}

impl Adoptee {
    /// The higher of its id and that of the call that is made if it dies.
    pub fn highest_id(&self) -> TaskId {
        let call = self.options.on_dead.as_ref().and_then(|call| call.task_id);
        call.map_or(self.id, |call| call.max(self.id))
    }
}

/// Where an adopted task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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

/// What became of an adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// It is kept now.
    New,
    /// It was adopted before, however it has fared since. Nothing changed.
    Known,
    /// A task of the same key was set later here, whether it waits or has ended. This one is not
    /// kept.
    Superseded,
    /// It waited here, and has ended now as it did elsewhere.
    Ended,
    /// It is leased here, and has ended elsewhere: a cancel is pending now.
    Cancelling,
    /// It is this very store that lends it. Nothing changed.
    Own,
    /// Another task has its id, or the same one was changed by hand since. Neither is changed. If
    /// the task is lent, an older task of its key is cancelled all the same.
    Taken,
}
