//! The tasks that this instance has in flight.
//!
//! A lease may run out while its call still runs: the machine was suspended, or the store was away.
//! Then a claim may return the task to the same instance. A second call would be a needless
//! duplicate, so the running call goes on, and the newer lease is kept:
//!
//! - If the call succeeds, the receipt of its own lease still ends the task: a late success counts.
//! - If the store refuses that receipt, or the call failed, the newer lease is released, and its
//!   attempt is not spent. After a failure, that happens at the end of the backoff.
//!
//! The newer lease is never settled with the result of the older call. The task may have been
//! rescheduled or replayed meanwhile, and no call was made for the newer lease.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::task::{Lane, Receipt, TaskId};

/// How much longer than the call's timeout a lease must last, so that it still holds at the settle.
pub(super) const MARGIN: Duration = Duration::from_secs(1);

/// A lease of this instance.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) receipt: Receipt,
    /// The lease lasts at least until then: it is counted from before the claim was sent.
    pub(super) until: Instant,
    /// The number of the attempt, as the store counts it.
    pub(super) attempt: u32,
}

/// The lease of a task in flight, and the newest of those that claims returned meanwhile.
#[derive(Debug)]
struct Leases {
    own: HeldLease,
    newer: Option<HeldLease>,
}

/// A task's lane and id. The id alone is not unique: a task that was moved here from another store
/// may have the id of a task of another topic.
type TaskKey = (Lane, TaskId);
type ByTask = HashMap<TaskKey, Leases>;

fn lock(leases: &Mutex<ByTask>) -> MutexGuard<'_, ByTask> {
    leases.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All tasks in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<ByTask>>);

impl InFlight {
    /// Adds a task. `None` if it is in flight already; then the lease is kept as its newer one.
    pub(super) fn take(&self, lane: &Lane, id: TaskId, lease: HeldLease) -> Option<HeldTask> {
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

/// A task in flight. Dropping it removes the task.
#[derive(Debug)]
pub(super) struct HeldTask {
    key: TaskKey,
    leases: Arc<Mutex<ByTask>>,
    is_held: bool,
}

impl HeldTask {
    pub(super) fn id(&self) -> TaskId {
        self.key.1
    }

    /// The lease of the running call.
    pub(super) fn lease(&self) -> HeldLease {
        let leases = lock(&self.leases);
        leases
            .get(&self.key)
            .map(|leases| leases.own.clone())
            .expect("a task keeps its lease until it is dropped")
    }

    /// The store has extended the lease.
    pub(super) fn extended(&self, until: Instant) {
        if let Some(leases) = lock(&self.leases).get_mut(&self.key) {
            leases.own.until = until;
        }
    }

    /// Ends the lease. Returns the task with its newer lease, or removes it if there is none.
    pub(super) fn next_lease(mut self) -> Option<Self> {
        // Under one lock, so that a concurrent claim finds the task either in flight or not.
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

    fn lease(receipt: &str, attempt: u32) -> HeldLease {
        HeldLease { receipt: receipt.parse().unwrap(), until: Instant::now(), attempt }
    }

    #[tokio::test]
    async fn a_task_still_held_is_not_fired_and_its_new_lease_is_put_by() {
        let held = InFlight::default();
        let task = held.take(&lane("t:0"), TaskId(1), lease("first", 1)).unwrap();
        assert!(held.take(&lane("t:0"), TaskId(1), lease("second", 2)).is_none());
        assert!(held.take(&lane("t:0"), TaskId(1), lease("third", 3)).is_none());
        assert_eq!(task.lease().receipt.as_str(), "first", "the lease of the running call");
        let task = task.next_lease().unwrap();
        assert_eq!((task.lease().receipt.as_str(), task.lease().attempt), ("third", 3));
        assert!(held.take(&lane("t:0"), TaskId(2), lease("other", 1)).is_some());
        assert!(task.next_lease().is_none());
        assert!(held.take(&lane("t:0"), TaskId(1), lease("fourth", 4)).is_some());
    }

    fn lane(name: &str) -> Lane {
        name.parse().unwrap()
    }

    /// One task's call delayed the other task, and its end was taken for the other's.
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
