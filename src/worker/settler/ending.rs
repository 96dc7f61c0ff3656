//! The end of one lease.

use crate::metrics::TaskEnd;
use crate::model::task::{Lane, TaskId};
use crate::store::{Settle, Transition};
use crate::worker::in_flight::{HeldLease, HeldTask};

/// The end of a lease, which the store is to be told.
///
/// The task stays in flight until the store has answered. A claim that returns it to this instance
/// before then must not call it again.
///
/// A released task is not in flight any more: nothing of it runs, and the store hands it out only
/// once it has the release. If it stayed in flight, a claim between the store's answer and its
/// arrival here would release it again, over and over.
#[derive(Debug)]
pub(in crate::worker) struct LeaseEnding {
    pub(super) lane: Lane,
    pub(super) id: TaskId,
    pub(super) lease: HeldLease,
    pub(super) task: Option<HeldTask>,
    pub(super) transition: Transition,
    /// How the task ends by this, if it does.
    pub(super) end: Option<TaskEnd>,
}

impl LeaseEnding {
    pub(in crate::worker) fn of(lane: Lane, task: HeldTask, transition: Transition) -> Self {
        let (id, mut lease) = (task.id(), task.lease());
        let mut task = Some(task);
        if transition == Transition::Release {
            // Of several leases of one task, only the newest can be released.
            while let Some(newer) = task.take().and_then(HeldTask::next_lease) {
                lease = newer.lease();
                task = Some(newer);
            }
        }
        let end = match &transition {
            Transition::Delivered { .. } => Some(TaskEnd::Callback),
            Transition::Dead { .. } => Some(TaskEnd::AttemptsUsedUp),
            _ => None,
        };
        Self { lane, id, lease, task, transition, end }
    }

    /// The same, if the receiver refused the task for good.
    pub(in crate::worker) fn refused(self) -> Self {
        Self { end: Some(TaskEnd::Refused), ..self }
    }

    pub(super) fn settle(&self) -> Settle {
        Settle {
            lane: self.lane.clone(),
            id: self.id,
            receipt: self.lease.receipt.clone(),
            transition: self.transition.clone(),
        }
    }
}
