//! What a transaction tells the workers and the consumers.

use std::collections::HashMap;

use tokio::sync::broadcast;

use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::Hint;

/// The earliest due moments to be told, by lane, and by whether they are for consumers.
#[derive(Debug, Default)]
pub(crate) struct Earliest(HashMap<(Lane, bool), UnixMillis>);

impl Earliest {
    /// Adds a due moment.
    pub(super) fn add(&mut self, lane: Lane, is_pull: bool, due: UnixMillis) {
        let earliest = self.0.entry((lane, is_pull)).or_insert(due);
        *earliest = due.min(*earliest);
    }

    /// Adds those of another transaction.
    pub(crate) fn join(&mut self, other: Self) {
        other.0.into_iter().for_each(|((lane, is_pull), due)| self.add(lane, is_pull, due));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a hint for each.
    pub(crate) fn send(self, hints: &broadcast::Sender<Hint>) {
        for ((lane, is_pull), due) in self.0 {
            // There may be no listeners.
            let _ = hints.send(Hint { lane, due, is_pull });
        }
    }
}

/// The hints of a transaction.
#[derive(Debug, Default)]
pub(crate) struct TxHints {
    /// Those to be sent after the commit.
    pub(crate) at_commit: Earliest,
    /// Those to be sent once the commit is durable.
    pub(crate) once_durable: Earliest,
    /// Those to be sent once an earlier commit is durable, with its number.
    pub(crate) awaited: Option<(u64, Earliest)>,
}
