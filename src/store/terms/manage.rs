//! The nouns of what people ask and do: summaries, forecasts, replays, notes of attempts.

use std::time::Duration;

use crate::clock::UnixMillis;
use crate::task::{Destination, Lane, State, TaskId};

/// A task without its body, for lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: State,
    /// Who gets it.
    pub destination: Destination,
    /// As [`Task::due`](super::Task::due).
    pub due: UnixMillis,
    /// When it was stored.
    pub created: UnixMillis,
    /// When it ended.
    pub finished: Option<UnixMillis>,
    /// Attempts begun.
    pub attempts: u32,
    /// The last attempt's outcome; empty before there was one.
    pub last_outcome: String,
    /// Its `key`, if it was added with one.
    pub key: Option<String>,
}

/// What is held by hand, and what was released lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The destinations that are held.
    pub held: Vec<Destination>,
    /// Destinations that were released, and when each was last, for the other instances. Always empty for a store of one process.
    pub released: Vec<(Destination, UnixMillis)>,
}

/// When replayed tasks fall due: the first after `first`, each further one `step` later, from the store's now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The wait of the first.
    pub first: Duration,
    /// The wait between two.
    pub step: Duration,
}

/// How many waiting tasks of a lane fall due when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The store's now.
    pub now: UnixMillis,
    /// Those that are due by now.
    pub overdue: u64,
    /// Those that fall due within each step: number i after now + i × step, up to and with now + (i + 1) × step.
    pub steps: Vec<u64>,
}

/// What one attempt at a task came to, for eyes. Written beside the road, and may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptNote {
    /// The task's lane.
    pub lane: Lane,
    /// The task.
    pub id: TaskId,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// When it began.
    pub started: UnixMillis,
    /// How long it took.
    pub took: Duration,
    /// Such as `503 Service Unavailable`; cut to [`MAX_OUTCOME`](super::super::MAX_OUTCOME) bytes.
    pub outcome: String,
    /// The beginning of the answer's body; cut to [`MAX_ANSWER`](super::super::MAX_ANSWER) bytes.
    pub answer: String,
}
