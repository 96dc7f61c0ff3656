//! The tasks that this instance has in flight.
//!
//! A lease may run out while the call still runs (the machine slept, the store was away), and a
//! claim may then hand the task to the very instance that is calling. Firing it a second time would
//! be a duplicate without need, so the running call goes on, and the new lease is put by:
//!
//! - If the call succeeds, its own receipt still ends the task: a late success counts.
//! - If the store refuses that receipt, or the call failed, the new lease is given back unspent: at
//!   once, or after a failure when the wait that follows it is over. The task may have been
//!   rescheduled or replayed meanwhile, so nothing that the old call came to may be said in the new
//!   lease's name; and said in it, a failure would spend the attempt that no call was made for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::task::{Lane, Receipt, TaskId};

/// How much longer than the call's timeout a lease must last, so that it still holds at the settle.
pub(super) const MARGIN: Duration = Duration::from_secs(1);

/// A lease in our hands.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    /// Its name.
    pub(super) receipt: Receipt,
    /// Until when it surely lasts: counted from before the claim was sent.
    pub(super) until: Instant,
    /// The attempt that the store counts.
    pub(super) attempt: u32,
}

/// A task's lease, and the newest of those that came while it was in hand.
#[derive(Debug)]
struct Leases {
    own: Lease,
    newer: Option<Lease>,
}

/// A task's lane and number. The number alone is no name: a task that was moved here may have that
/// of another topic's.
type Key = (Lane, TaskId);
type ByTask = HashMap<Key, Leases>;

fn lock(leases: &Mutex<ByTask>) -> MutexGuard<'_, ByTask> {
    leases.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of them, by task.
#[derive(Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<ByTask>>);

impl InFlight {
    /// Takes a task in hand; `None` if it was there already, and the lease is put by.
    pub(super) fn take(&self, lane: &Lane, id: TaskId, lease: Lease) -> Option<HeldTask> {
        let key = (lane.clone(), id);
        let mut leases = lock(&self.0);
        if let Some(held) = leases.get_mut(&key) {
            held.newer = Some(lease);
            return None;
        }
        leases.insert(key.clone(), Leases { own: lease, newer: None });
        Some(HeldTask { key, leases: self.0.clone(), is_held: true })
    }
}

/// One task in hand; dropping it lets go.
#[derive(Debug)]
pub(super) struct HeldTask {
    key: Key,
    leases: Arc<Mutex<ByTask>>,
    is_held: bool,
}

impl HeldTask {
    /// The task.
    pub(super) fn id(&self) -> TaskId {
        self.key.1
    }

    /// The lease that it was taken with.
    pub(super) fn lease(&self) -> Lease {
        let leases = lock(&self.leases);
        leases
            .get(&self.key)
            .map(|leases| leases.own.clone())
            .expect("a task keeps its lease until it is dropped")
    }

    /// Notes an extension.
    pub(super) fn extended(&self, until: Instant) {
        if let Some(leases) = lock(&self.leases).get_mut(&self.key) {
            leases.own.until = until;
        }
    }

    /// Lets go of the lease: either there is another that was put by, and the task stays in hand
    /// with that one, or it is in hand no more.
    pub(super) fn next_lease(mut self) -> Option<Self> {
        // One step: a claim that comes right now finds the task either in hand or not.
        let mut leases = lock(&self.leases);
        if let Some(held) = leases.get_mut(&self.key)
            && let Some(next) = held.newer.take()
        {
            held.own = next;
            drop(leases);
            return Some(self);
        }
        leases.remove(&self.key);
        drop(leases);
        self.is_held = false;
        None
    }
}

impl Drop for HeldTask {
    fn drop(&mut self) {
        if self.is_held {
            lock(&self.leases).remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(receipt: &str, attempt: u32) -> Lease {
        Lease { receipt: receipt.parse().unwrap(), until: Instant::now(), attempt }
    }

    #[tokio::test]
    async fn a_task_still_held_is_not_fired_and_its_new_lease_is_put_by() {
        let held = InFlight::default();
        let task = held.take(&lane("t:0"), TaskId(1), lease("first", 1)).unwrap();
        assert!(held.take(&lane("t:0"), TaskId(1), lease("second", 2)).is_none());
        assert!(held.take(&lane("t:0"), TaskId(1), lease("third", 3)).is_none());
        assert_eq!(
            task.lease().receipt.as_str(),
            "first",
            "the call that runs was made by that one"
        );
        let task = task.next_lease().unwrap();
        assert_eq!((task.lease().receipt.as_str(), task.lease().attempt), ("third", 3));
        assert!(held.take(&lane("t:0"), TaskId(2), lease("other", 1)).is_some());
        assert!(task.next_lease().is_none());
        assert!(held.take(&lane("t:0"), TaskId(1), lease("fourth", 4)).is_some());
    }

    fn lane(name: &str) -> Lane {
        name.parse().unwrap()
    }

    /// Once, a call held up the other topic's task, and its end was taken for that one's.
    #[tokio::test]
    async fn the_same_number_in_two_topics_is_two_tasks() {
        let held = InFlight::default();
        let one = held.take(&lane("a:0"), TaskId(1), lease("first", 1)).unwrap();
        let other = held.take(&lane("b:0"), TaskId(1), lease("second", 1)).unwrap();
        assert!(one.next_lease().is_none());
        assert_eq!(other.lease().receipt.as_str(), "second");
    }

    #[tokio::test]
    async fn dropping_lets_go_of_everything() {
        let held = InFlight::default();
        let task = held.take(&lane("t:0"), TaskId(1), lease("first", 1)).unwrap();
        assert!(held.take(&lane("t:0"), TaskId(1), lease("second", 2)).is_none());
        drop(task);
        assert!(held.take(&lane("t:0"), TaskId(1), lease("third", 3)).is_some());
    }
}
