//! Calls of operators and producers: about one task, many tasks and destinations; migration;
//! checks.

use std::time::Duration;

use super::delivery::{AttemptNote, Holds, LeaseKind};
use super::intake::Moment;
use super::lookup::{Condition, Selected, TaskName};
use super::migration::{Adopted, Adoptee};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Options, Receipt, State, TaskId};
use crate::store::{CheckCursor, CheckStep, Result};

contract! {
    /// Shows and changes what is stored, on request.
    pub trait Admin {
        /// One task, with its content.
        async fn get(
            &self,
            reader: Reader,
            lane: &Lane,
            id: TaskId,
        ) -> Result<Option<Task>> => Read;

        /// For each of the lanes, the id of the task that has this name there. The task of an
        /// idempotency key may have been removed. Fails if the server of a lane does not answer.
        async fn find(
            &self,
            name: &TaskName,
            lanes: Vec<Lane>,
        ) -> Result<Vec<Option<TaskId>>> => Read;

        /// The tasks with these ids, without content, in order. `None` if the lane has no such
        /// task.
        async fn summaries(
            &self,
            lane: &Lane,
            ids: Vec<TaskId>,
        ) -> Result<Vec<Option<Summary>>> => Read;

        /// The notes of a task, the newest last, at most [`MAX_NOTES`](crate::store::MAX_NOTES).
        async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> => Read;

        /// Cancels a scheduled or dead task. A leased one is marked: unless it succeeds, it ends
        /// cancelled. A task that does not meet the condition, which the store checks in the same
        /// step, stays as it is, and is [`Cancelled::Unknown`].
        async fn cancel(
            &self,
            lane: &Lane,
            id: TaskId,
            only: Option<&Condition>,
        ) -> Result<Cancelled> => Change;

        /// Sets the due moment of a scheduled task, and its content if there is a new one. Begins
        /// a new revision with no attempts. The condition is as in [`Self::cancel`].
        async fn reschedule(
            &self,
            lane: &Lane,
            id: TaskId,
            only: Option<&Condition>,
            moment: Moment,
            content: Option<NewContent>,
        ) -> Result<Rescheduled> => Change;

        /// Schedules dead tasks again, in order and as `spread` says, each with a new revision, a
        /// new stored due moment and no attempts. With an outcome, only tasks with this last
        /// outcome, which the store checks in the same step. Returns how many were dead.
        async fn replay(
            &self,
            lane: &Lane,
            ids: Vec<TaskId>,
            outcome: Option<&str>,
            spread: Spread,
        ) -> Result<usize> => Change;

        /// Removes those of the tasks that ended in `state`, with content, keys and notes. The
        /// outcome is as in [`Self::replay`]. Returns how many.
        async fn discard(
            &self,
            lane: &Lane,
            state: State,
            ids: Vec<TaskId>,
            outcome: Option<&str>,
        ) -> Result<usize> => Change;

        /// Removes up to `limit` tasks of the lane that are not leased, in any state, with their
        /// keys. If these were all, it marks a cancel on leased tasks, `limit` of them if there are
        /// as many: unless they succeed, they end cancelled. A lane that is empty then loses its
        /// idempotency keys too.
        async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> => Change;

        /// How many waiting tasks fall due in each of up to
        /// [`MAX_FORECAST`](crate::store::MAX_FORECAST) steps from now.
        async fn forecast(
            &self,
            lane: &Lane,
            step: Duration,
            steps: usize,
        ) -> Result<LaneForecast> => Read;

        /// How many tasks wait for each destination that is called, by name. A destination without
        /// waiting tasks may be missing.
        async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> => Read;

        /// The destinations that operators hold, and the releases that are remembered.
        async fn holds(&self) -> Result<Holds> => Read;

        /// Holds a destination for all instances, until an operator releases it; or releases it.
        /// Workers poll the holds every second; the store itself still hands out the tasks. A
        /// release is remembered for [`RELEASES_KEPT`](crate::store::RELEASES_KEPT) if there are
        /// other instances, even if no operator had held the destination: it lifts the
        /// `Retry-After` hold of each instance.
        async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> => Change;

        /// Leases waiting tasks to a mover, due or not, without counting an attempt. Tasks that
        /// another mover has are leased to this one. Sweeps expired leases that it meets. Returns
        /// for each task whether this receipt holds it now.
        async fn lend(
            &self,
            lane: &Lane,
            ids: Vec<TaskId>,
            receipt: &Receipt,
            lease: Duration,
        ) -> Result<Vec<bool>> => Migrate;

        /// Stores tasks that come from another store. One answer per task, in order. A task whose
        /// answer is an error may or may not be stored. It is not if the error is
        /// [`Error::StaleEntry`](crate::store::Error::StaleEntry): the registry has another number
        /// of lanes.
        async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> => Migrate;

        /// One bounded step of a check of everything that is stored; repairs what it finds if asked
        /// to. Begins at [`CheckCursor::start`] and continues with [`CheckStep::next`]. Safe beside
        /// live traffic; writes nothing without `repair`.
        async fn check(&self, from: CheckCursor, repair: bool) -> Result<CheckStep> => Maintain;
    }
}

/// Who reads a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A caller that only looks. No other kind of work waits behind it.
    Viewer,
    /// This process, or a call that changes what it reads. It waits behind no viewer.
    Worker,
}

/// A task as `get` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Its state.
    pub state: State,
    /// The kind of its lease, while it is leased.
    pub lease: Option<LeaseKind>,
    /// Where it goes.
    pub destination: Destination,
    /// While it is scheduled, the moment that it waits for, also for a retry; otherwise its stored
    /// due moment.
    pub due: UnixMillis,
    /// When it was stored.
    pub created: UnixMillis,
    /// When it ended.
    pub finished: Option<UnixMillis>,
    /// Attempts begun.
    pub attempts: u32,
    /// The last attempt's outcome; empty before there was one.
    pub last_outcome: String,
    /// Whether a cancel is pending until its lease ends.
    pub cancelling: bool,
    /// When an add last set the task by its key. `None` if it has no key, or another task has the
    /// key now.
    pub key_set: Option<UnixMillis>,
    /// Its own settings.
    pub options: Options,
    /// The content.
    pub content: String,
}

/// A task without its content, for lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its id.
    pub id: TaskId,
    /// Its state.
    pub state: State,
    /// The kind of its lease, while it is leased.
    pub lease: Option<LeaseKind>,
    /// Where it goes.
    pub destination: Destination,
    /// As [`Task::due`](Task::due).
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

impl Summary {
    /// The task as a caller selects it by this summary.
    pub fn selected(&self) -> Selected {
        Selected {
            state: self.state,
            destination: self.destination.clone(),
            due: self.due,
            outcome: self.last_outcome.clone(),
        }
    }
}

/// The result of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The task will not fire. Also if it was cancelled before.
    Done,
    /// The task is leased; it is cancelled when the lease ends, unless it succeeds.
    Pending,
    /// The task has ended in another way; nothing changed.
    Refused {
        /// The task's state.
        state: State,
    },
    /// No such task, or one that does not meet the condition.
    Unknown,
}

/// What a clear did. If it is nothing, no task is left without a lease, and each leased one has a
/// pending cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// The tasks that it removed.
    pub removed: usize,
    /// The leased tasks on which it marked a cancel.
    pub cancelling: usize,
}

/// Content that replaces a task's.
#[derive(Clone, Debug, PartialEq)]
pub struct NewContent {
    /// Where the task goes.
    pub destination: Destination,
    /// The content.
    pub content: String,
    /// Refuses it for a task that is pulled if the new destination is called, or the reverse.
    pub keeps_mode: bool,
}

/// The result of a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescheduled {
    /// The new content is for the other delivery mode ([`NewContent::keeps_mode`]); nothing
    /// changed.
    OtherMode,
    /// The task is due at the new moment.
    Done {
        /// The new due moment.
        due: UnixMillis,
    },
    /// The task is leased or has ended; nothing changed.
    Refused {
        /// The task's state.
        state: State,
    },
    /// No such task, or one that does not meet the condition.
    Unknown,
}

/// When replayed tasks fall due: the first after `first`, each further one `step` later, counted
/// from the store's now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The delay of the first.
    pub first: Duration,
    /// The interval between two.
    pub step: Duration,
}

/// How many waiting tasks of a lane fall due in each step of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneForecast {
    /// The store's now.
    pub now: UnixMillis,
    /// Tasks that are due by now.
    pub overdue: u64,
    /// Tasks that fall due within each step. Step i begins after now + i × step and includes now +
    /// (i + 1) × step.
    pub steps: Vec<u64>,
}

/// How many tasks wait for one destination, over all lanes of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The destination; never `@pull`.
    pub destination: Destination,
    /// The tasks on its schedules, due or not.
    pub count: u64,
}
