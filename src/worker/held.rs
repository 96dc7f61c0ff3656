//! The tasks that this instance has in flight.
//!
//! A lease may run out while the call still runs (the machine slept, the store was away), and a claim may then hand the task to
//! the very instance that is calling. Firing it a second time would be a duplicate without need: the running call
//! adopts the new receipt instead, and settles with that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::task::{Receipt, TaskId};

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

/// All of them, by task.
#[derive(Debug, Default)]
pub(super) struct Held(Arc<Mutex<HashMap<TaskId, Lease>>>);

impl Held {
    fn leases(&self) -> MutexGuard<'_, HashMap<TaskId, Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a task in hand; `None` if it was there already, which then goes on under the new lease.
    pub(super) fn take(&self, id: TaskId, lease: Lease) -> Option<Holding> {
        let was_there = self.leases().insert(id, lease).is_some();
        (!was_there).then(|| Holding { id, leases: self.0.clone() })
    }
}

/// One task in hand; dropping it lets go.
#[derive(Debug)]
pub(super) struct Holding {
    id: TaskId,
    leases: Arc<Mutex<HashMap<TaskId, Lease>>>,
}

impl Holding {
    /// The task.
    pub(super) fn id(&self) -> TaskId {
        self.id
    }

    /// The lease as it stands now.
    pub(super) fn lease(&self) -> Lease {
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.get(&self.id).cloned().expect("a holding keeps its lease until it is dropped")
    }

    /// Notes an extension of the lease named `receipt`.
    pub(super) fn extended(&self, receipt: &Receipt, until: Instant) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = leases.get_mut(&self.id)
            && lease.receipt == *receipt
        {
            lease.until = until;
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(receipt: &str, attempt: u32) -> Lease {
        Lease { receipt: receipt.parse().unwrap(), until: Instant::now(), attempt }
    }

    #[tokio::test]
    async fn a_task_still_held_adopts_the_new_receipt_and_is_not_fired() {
        let held = Held::default();
        let holding = held.take(TaskId(1), lease("first", 1)).unwrap();
        assert!(held.take(TaskId(1), lease("second", 2)).is_none());
        assert_eq!((holding.lease().receipt.as_str(), holding.lease().attempt), ("second", 2));
        drop(holding);
        assert!(held.take(TaskId(1), lease("third", 3)).is_some());
    }
}
