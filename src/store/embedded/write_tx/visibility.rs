//! When a task that is put on a schedule becomes visible: which hint tells of it, and from which
//! claims it is hidden.

use super::hints::TxHints;
use super::unsynced::UnsyncedTasks;
use super::{EarliestDue, WriteTx};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, TaskId};

impl WriteTx<'_> {
    /// Notes that a task was put on the destination's schedule. After the commit, or once it is
    /// durable, a hint tells the lane's worker, or its consumers, its due moment. There is none for
    /// a called task behind the destination's earliest moment, which the worker knows, unless that
    /// may be the moment of a task that is hidden from it. So the worker learns of every task that
    /// is put on a schedule, except by a sweep of a holder's lease (it knows these ends from its
    /// own claims and polls) or by a check's repair.
    pub(crate) fn hint(
        &mut self,
        lane: &Lane,
        destination: i64,
        due: UnixMillis,
    ) -> rusqlite::Result<()> {
        let EarliestDue { called, earliest, .. } = *self.schedule(destination)?;
        if called && earliest != Some(due) && self.hidden(destination).is_none() {
            return Ok(());
        }
        let hints = if self.awaits_sync { &mut self.hints_once_durable } else { &mut self.hints };
        hints.add(lane.clone(), !called, due);
        Ok(())
    }

    /// Called when a task is put on the schedule of a destination.
    pub(crate) fn hide_until_durable(&mut self, id: TaskId, destination: i64) {
        if self.awaits_sync
            && let Some(unsynced) = &mut self.unsynced
        {
            unsynced.insert(id, destination);
        }
    }

    /// The tasks that are hidden from this claim, if the destination may have some.
    pub(crate) fn hidden(&self, destination: i64) -> Option<&UnsyncedTasks> {
        let is_for_worker = !self.awaits_sync;
        self.unsynced.as_deref().filter(|unsynced| is_for_worker && unsynced.is_of(destination))
    }

    /// Called when a claim passed over hidden tasks that fell due at a moment: the lane's worker
    /// gets a hint of that moment once some of them are durable.
    pub(crate) fn passed_over(&mut self, lane: &Lane, due: UnixMillis) {
        self.passed_over.add(lane.clone(), false, due);
    }

    pub(super) fn into_hints(self) -> TxHints {
        let oldest = match self.passed_over.is_empty() {
            true => None,
            false => self.unsynced.and_then(|unsynced| unsynced.oldest()),
        };
        TxHints {
            at_commit: self.hints,
            once_durable: self.hints_once_durable,
            awaited: oldest.map(|commit| (commit, self.passed_over)),
        }
    }
}
