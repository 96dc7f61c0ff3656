//! The tasks that a claim of a worker must not hand out yet, because the commit that put them on a
//! schedule is not durable.
//!
//! Such a task may be one of an add that a power cut undoes: it would be called although it never
//! was, and its id would be drawn again for another task. The same holds for a dead-letter call,
//! which would tell of a death that did not happen. A claim may hand out such calls if its own
//! transaction stored them: its answer waits for that commit then.

use std::collections::{HashMap, HashSet};

use crate::model::clock::UnixMillis;
use crate::model::task::TaskId;

/// See the module. Belongs to the writer, and outlives the transactions.
#[derive(Debug, Default)]
pub(crate) struct UnsyncedTasks {
    /// With the numbers of their newest commits.
    tasks: HashMap<TaskId, u64>,
    /// Their destinations, with the same numbers.
    destinations: HashMap<i64, u64>,
    /// The number of the open transaction, once it is committed.
    commit: u64,
    durable: u64,
    /// The tasks that the last slow sync made durable, and when that was noticed.
    released: Option<(UnixMillis, HashSet<TaskId>)>,
}

/// What is durable when a transaction begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable {
    /// The newest commit that is.
    pub(crate) commit: u64,
    /// The time, if the last sync was slow.
    pub(crate) slow_until: Option<UnixMillis>,
}

impl UnsyncedTasks {
    /// Called when a transaction begins: `commit` will be its number.
    pub(crate) fn begin(&mut self, commit: u64, durable: Durable) {
        self.commit = commit;
        if durable.commit > self.durable {
            let released = self.tasks.extract_if(|_, commit| *commit <= durable.commit);
            let released = released.map(|(id, _)| id);
            self.released = match durable.slow_until {
                Some(now) => Some((now, released.collect())),
                None => {
                    released.for_each(drop);
                    None
                }
            };
            self.destinations.retain(|_, commit| *commit > durable.commit);
            self.durable = durable.commit;
        }
    }

    /// Until when the task was hidden, if a slow sync made it durable just now.
    pub(crate) fn held_until(&self, id: TaskId) -> Option<UnixMillis> {
        let (until, released) = self.released.as_ref()?;
        released.contains(&id).then_some(*until)
    }

    /// Called when the transaction was rolled back. Its tasks may have been of an earlier commit
    /// too.
    pub(crate) fn rolled_back(&mut self) {
        let newest = self.commit.saturating_sub(1);
        for commit in self.tasks.values_mut().chain(self.destinations.values_mut()) {
            *commit = newest.min(*commit);
        }
        if newest == 0 {
            // No sync confirms a commit 0. What was stored before the start is durable.
            self.tasks.clear();
            self.destinations.clear();
        }
        // The next transaction removes those that are durable.
        self.durable = 0;
    }

    /// Adds a task that the open transaction puts on the schedule of a destination.
    pub(crate) fn insert(&mut self, id: TaskId, destination: i64) {
        self.tasks.insert(id, self.commit);
        self.destinations.insert(destination, self.commit);
    }

    /// Whether the task must not be handed out, because of an earlier commit.
    pub(crate) fn hides(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|commit| *commit < self.commit)
    }

    /// Whether the open transaction has put the task on its schedule.
    pub(crate) fn is_own(&self, id: TaskId) -> bool {
        self.tasks.get(&id) == Some(&self.commit)
    }

    /// Whether the destination may have such tasks.
    pub(crate) fn is_of(&self, destination: i64) -> bool {
        self.destinations.contains_key(&destination)
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// The oldest commit that is not durable and has such tasks.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.tasks.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable(commit: u64) -> Durable {
        Durable { commit, slow_until: None }
    }

    #[test]
    fn tasks_are_hidden_until_their_newest_commit_is_durable() {
        let mut unsynced = UnsyncedTasks::default();
        unsynced.begin(1, durable(0));
        unsynced.insert(TaskId(10), 7);
        unsynced.insert(TaskId(11), 7);
        unsynced.begin(2, durable(0));
        unsynced.insert(TaskId(11), 8);
        assert_eq!((unsynced.oldest(), unsynced.len()), (Some(1), 2));
        assert!(unsynced.is_own(TaskId(11)) && !unsynced.hides(TaskId(11)));
        unsynced.begin(3, durable(1));
        assert!(!unsynced.hides(TaskId(10)) && unsynced.hides(TaskId(11)));
        assert!(!unsynced.is_of(7) && unsynced.is_of(8));
        unsynced.begin(3, durable(2));
        assert_eq!((unsynced.oldest(), unsynced.len()), (None, 0));
    }

    #[test]
    fn a_rolled_back_transaction_hides_nothing_for_longer_and_shows_nothing_earlier() {
        let mut unsynced = UnsyncedTasks::default();
        unsynced.begin(1, durable(0));
        unsynced.insert(TaskId(10), 7);
        unsynced.begin(2, durable(0));
        unsynced.insert(TaskId(10), 7);
        unsynced.insert(TaskId(11), 7);
        unsynced.rolled_back();
        unsynced.begin(2, durable(0));
        assert!(unsynced.hides(TaskId(10)) && !unsynced.is_own(TaskId(10)));
        unsynced.begin(2, durable(1));
        assert_eq!(unsynced.len(), 0);
    }

    /// The task was hidden until something else was written.
    #[test]
    fn a_first_transaction_that_was_rolled_back_hides_nothing() {
        let mut unsynced = UnsyncedTasks::default();
        unsynced.begin(1, durable(0));
        unsynced.insert(TaskId(10), 7);
        unsynced.rolled_back();
        unsynced.begin(1, durable(0));
        assert!(!unsynced.hides(TaskId(10)) && !unsynced.is_of(7));
    }

    /// The lateness of such a task is charged to the store.
    #[test]
    fn a_task_says_how_long_a_slow_sync_held_it() {
        let mut unsynced = UnsyncedTasks::default();
        unsynced.begin(1, durable(0));
        unsynced.insert(TaskId(10), 7);
        unsynced.begin(2, Durable { commit: 1, slow_until: Some(UnixMillis(9)) });
        unsynced.insert(TaskId(11), 7);
        unsynced.begin(3, durable(1));
        assert_eq!(unsynced.held_until(TaskId(10)), Some(UnixMillis(9)));
        unsynced.begin(3, durable(2));
        assert_eq!(unsynced.held_until(TaskId(10)), None);
        assert_eq!(unsynced.held_until(TaskId(11)), None);
    }
}
