//! What is committed and not durable yet, and who waits for it. Shared by the writer and the sync
//! thread.
//!
//! Commits that write are numbered: 1, 2, 3, … The write-ahead log is one sequence, so a sync makes
//! every commit durable that was complete when the sync began.
//!
//! # Invariants
//!
//! - [`Confirmations::next_sync`] reads the number of the newest commit before the sync begins, and
//!   [`Confirmations::synced`] confirms no later commit.
//! - What awaits a commit is returned once: by the sync that confirms it, or with an error.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use super::write_queue::Job;
use crate::store::embedded::write_tx::hints::Earliest;
use crate::store::{Hint, Result};

/// How long a commit that nobody waits for may stay without a sync. A power cut repeats the calls
/// of this time, and of the running sync.
const LAZY: Duration = Duration::from_millis(500);

/// Answers and hints that wait until a commit is durable.
#[derive(Default)]
pub(crate) struct Awaiting {
    /// The newest commit that the answers depend on.
    pub(crate) commit: u64,
    /// Whether some of the jobs are promised. Others hand out tasks that are not durable yet.
    pub(crate) is_promise: bool,
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) hints: Earliest,
}

impl Awaiting {
    /// Sends the hints if the sync succeeded, and answers the jobs.
    pub(crate) fn answer(self, synced: &Result<()>, hints: &broadcast::Sender<Hint>) {
        if synced.is_ok() {
            self.hints.send(hints);
        }
        for job in self.jobs {
            job.answer(synced.clone());
        }
    }
}

#[derive(Default)]
struct ConfirmationState {
    newest: u64,
    durable: u64,
    awaiting: Vec<Awaiting>,
    /// When the oldest commit was made that no sync has covered.
    unsynced: Option<Instant>,
    /// Whether the writer has ended.
    is_closed: bool,
    /// Whether the sync thread has ended.
    is_over: bool,
    sleep: Sleep,
}

/// What the sync thread waits for.
#[derive(Clone, Copy, Default, PartialEq)]
enum Sleep {
    #[default]
    Awake,
    /// For a commit.
    UntilCommit,
    /// For answers that depend on a commit, or until a commit without any is old.
    UntilAnswers,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Confirmations {
    state: Mutex<ConfirmationState>,
    changed: Condvar,
}

impl Confirmations {
    fn state(&self) -> MutexGuard<'_, ConfirmationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no promised work is unconfirmed, so that more of it may begin. If not, the sync
    /// thread looks again when it has confirmed it.
    pub(crate) fn may_begin(&self) -> bool {
        !self.state().awaiting.iter().any(|one| one.is_promise)
    }

    /// Notes a commit that wrote something. Returns its number. The sync thread is not woken before
    /// [`Confirmations::wake_sync`], so that it finds the answers that wait for the commit.
    pub(crate) fn committed(&self) -> u64 {
        let mut state = self.state();
        state.newest += 1;
        state.unsynced.get_or_insert_with(Instant::now);
        state.newest
    }

    /// The newest commit that is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.state().durable
    }

    /// Leaves answers to the sync thread. Returns them if their commit is durable already, or if
    /// the thread has panicked, which condemned the store.
    pub(crate) fn leave(&self, awaiting: Awaiting) -> Option<Awaiting> {
        let mut state = self.state();
        if awaiting.commit <= state.durable || state.is_over {
            return Some(awaiting);
        }
        let mut newest_first = state.awaiting.iter_mut().rev();
        match newest_first.find(|one| one.commit == awaiting.commit && awaiting.jobs.is_empty()) {
            // Each claim during a long sync may add hints.
            Some(same) => same.hints.join(awaiting.hints),
            None => state.awaiting.push(awaiting),
        }
        None
    }

    /// Wakes the sync thread if what it waits for is there.
    pub(crate) fn wake_sync(&self) {
        let mut state = self.state();
        let wakes = match state.sleep {
            Sleep::Awake => false,
            Sleep::UntilCommit => state.unsynced.is_some() || !state.awaiting.is_empty(),
            Sleep::UntilAnswers => !state.awaiting.is_empty(),
        };
        if wakes {
            state.sleep = Sleep::Awake;
            // It needs the lock.
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Lets the sync thread end after a last sync.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until a sync is needed. Returns the newest commit, which is to be passed to
    /// [`Confirmations::synced`]. `None` if there will be no more.
    pub(crate) fn next_sync(&self) -> Option<u64> {
        let mut state = self.state();
        loop {
            let age = state.unsynced.map(|since| since.elapsed());
            if !state.awaiting.is_empty() || age.is_some_and(|age| age >= LAZY || state.is_closed) {
                state.unsynced = None;
                return Some(state.newest);
            }
            if state.is_closed {
                return None;
            }
            state.sleep = if age.is_some() { Sleep::UntilAnswers } else { Sleep::UntilCommit };
            state = match age {
                Some(age) => {
                    let waited = self.changed.wait_timeout(state, LAZY.saturating_sub(age));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.sleep = Sleep::Awake;
        }
    }

    /// Notes that all commits up to this one are durable. Returns what waited for them.
    pub(crate) fn synced(&self, commit: u64) -> Vec<Awaiting> {
        let mut state = self.state();
        state.durable = state.durable.max(commit);
        let durable = state.durable;
        state.awaiting.extract_if(.., |one| one.commit <= durable).collect()
    }

    /// Called when the sync thread ends. Returns all that waits.
    pub(crate) fn end(&self) -> Vec<Awaiting> {
        self.state().is_over = true;
        self.give_up()
    }

    /// Returns all that waits, after a failed sync.
    pub(crate) fn give_up(&self) -> Vec<Awaiting> {
        std::mem::take(&mut self.state().awaiting)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn waiting_for(commit: u64) -> Awaiting {
        Awaiting { commit, is_promise: true, ..Awaiting::default() }
    }

    fn commits(awaiting: Vec<Awaiting>) -> Vec<u64> {
        awaiting.iter().map(|one| one.commit).collect()
    }

    #[test]
    fn a_sync_confirms_what_was_committed_before_it_began_and_nothing_later() {
        let confirmations = Confirmations::default();
        let first = confirmations.committed();
        assert!(confirmations.leave(waiting_for(first)).is_none());
        let mark = confirmations.next_sync().unwrap();
        let second = confirmations.committed();
        assert!(confirmations.leave(waiting_for(second)).is_none());
        assert!(!confirmations.may_begin());
        assert_eq!(commits(confirmations.synced(mark)), [first]);
        assert_eq!((confirmations.durable(), confirmations.may_begin()), (first, false));
        assert_eq!(confirmations.next_sync(), Some(second));
        assert_eq!(commits(confirmations.synced(second)), [second]);
        assert!(confirmations.may_begin());
    }

    #[test]
    fn what_is_durable_already_waits_for_no_sync() {
        let confirmations = Confirmations::default();
        assert!(confirmations.leave(waiting_for(0)).is_some(), "nothing was written");
        let commit = confirmations.committed();
        let mark = confirmations.next_sync().unwrap();
        confirmations.synced(mark);
        assert!(confirmations.leave(waiting_for(commit)).is_some());
    }

    /// Each claim added an entry during a sync of minutes, and the writer counted them each time.
    #[test]
    fn hints_that_wait_for_one_commit_are_kept_together() {
        let confirmations = Confirmations::default();
        let commit = confirmations.committed();
        confirmations.leave(waiting_for(commit));
        for _ in 0..3 {
            confirmations.leave(Awaiting { commit, ..Awaiting::default() });
        }
        assert_eq!(commits(confirmations.synced(commit)), [commit]);
    }

    /// A settle of a worker would be undone by a power cut hours later.
    #[test]
    fn a_commit_that_nobody_waits_for_is_synced_soon() {
        let confirmations = Arc::new(Confirmations::default());
        let waits = Arc::clone(&confirmations);
        let sync = std::thread::spawn(move || waits.next_sync());
        assert_eq!(confirmations.committed(), 1);
        confirmations.wake_sync();
        assert_eq!(sync.join().unwrap(), Some(1));
    }

    #[test]
    fn the_last_commits_are_synced_before_the_end() {
        let confirmations = Confirmations::default();
        confirmations.committed();
        confirmations.close();
        assert_eq!(confirmations.next_sync(), Some(1));
        confirmations.synced(1);
        assert_eq!(confirmations.next_sync(), None);
    }
}
