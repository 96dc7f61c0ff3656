//! What operators and producers ask and do by hand: one task, many tasks, destinations, moves to
//! another store, checks.

use std::future::Future;
use std::time::Duration;

use super::delivery::{AttemptNote, Holds, LeaseKind};
use super::intake::Moment;
use super::transfer::{Adopted, Adoptee};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Options, Receipt, State, TaskId};
use crate::store::{Checked, Cursor, Result};

/// Shows and changes what is stored, on request.
pub trait Admin: Send + Sync + 'static {
    /// One task, with its content.
    fn get(&self, lane: &Lane, id: TaskId) -> impl Future<Output = Result<Option<Task>>> + Send;

    /// The tasks of these ids without their bodies, in order; `None` where there is no such task in
    /// the lane.
    fn summaries(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
    ) -> impl Future<Output = Result<Vec<Option<Summary>>>> + Send;

    /// The notes kept of a task, the newest last, at most [`MAX_NOTES`](crate::store::MAX_NOTES).
    fn notes(
        &self,
        lane: &Lane,
        id: TaskId,
    ) -> impl Future<Output = Result<Vec<AttemptNote>>> + Send;

    /// Cancels a scheduled or dead task. A leased one is marked: any end of its lease but success
    /// cancels it.
    fn cancel(&self, lane: &Lane, id: TaskId) -> impl Future<Output = Result<Cancelled>> + Send;

    /// Moves a scheduled task's due moment, and its content if there is a new one. Raises the
    /// revision; attempts start anew.
    fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> impl Future<Output = Result<Rescheduled>> + Send;

    /// Schedules dead tasks, attempts, revision and stored due moment anew, the dead ones in order
    /// as `spread` says. Answers how many of them were dead.
    fn replay(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        spread: Spread,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Forgets those of the tasks that ended in `state`, bodies, keys and notes and all. Answers
    /// how many.
    fn discard(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Forgets up to `limit` tasks of the lane that are not leased, in any state, with their keys.
    /// Answers how many; 0: none is left. A lane that is empty then forgets its idempotency keys as
    /// well.
    fn clear(&self, lane: &Lane, limit: usize) -> impl Future<Output = Result<usize>> + Send;

    /// How many waiting tasks fall due in each of up to
    /// [`MAX_FORECAST`](crate::store::MAX_FORECAST) steps from now.
    fn forecast(
        &self,
        lane: &Lane,
        step: Duration,
        steps: usize,
    ) -> impl Future<Output = Result<Forecast>> + Send;

    /// How many tasks wait for each called destination, by name; one for which none waits may be
    /// missing.
    fn waiting(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<Vec<Waiting>>> + Send;

    /// The destinations that are held by hand, and the releases that are remembered.
    fn holds(&self) -> impl Future<Output = Result<Holds>> + Send;

    /// Holds a destination by hand, for all instances and until it is released, or releases it.
    /// Those who work look once a second: the store itself hands its tasks out as before. A release
    /// is remembered for [`RELEASES_KEPT`](crate::store::RELEASES_KEPT) where other instances can
    /// ask for it, also if nothing was held by hand: it lifts what a `Retry-After` holds on each of
    /// them.
    fn set_hold(
        &self,
        destination: &Destination,
        is_held: bool,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Leases waiting tasks to whoever takes them to another store, due or not, and without an
    /// attempt; those that are lent already, to him. Sweeps what it comes upon whose lease has run
    /// out. Answers for each whether it is lent by this receipt now.
    fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>>> + Send;

    /// Keeps tasks of another store. One answer per task, in order. A task whose answer is an error
    /// may or may not be kept; by an entry with another number of lanes than the registry's it is
    /// not ([`Error::StaleEntry`](crate::store::Error::StaleEntry)).
    fn adopt(&self, tasks: Vec<Adoptee>) -> impl Future<Output = Vec<Result<Adopted>>> + Send;

    /// One step of a look at everything that is kept, for what no verb leaves behind; repairs it if
    /// told to. Begins at [`Cursor::start`] and goes on with [`Checked::next`]. Safe beside live
    /// traffic; bounded; a look writes nothing.
    fn check(&self, from: Cursor, repair: bool) -> impl Future<Output = Result<Checked>> + Send;
}

/// A task as `get` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: State,
    /// Who holds it, while it is leased.
    pub lease: Option<LeaseKind>,
    /// Who gets it.
    pub destination: Destination,
    /// While it is scheduled, the moment it waits for (a retry's, too); otherwise the moment it was
    /// stored with.
    pub due: UnixMillis,
    /// When it was stored.
    pub created: UnixMillis,
    /// When it ended.
    pub finished: Option<UnixMillis>,
    /// Attempts begun.
    pub attempts: u32,
    /// The last attempt's outcome; empty before there was one.
    pub last_outcome: String,
    /// A cancel waits for the end of its lease.
    pub cancelling: bool,
    /// When an add last set the task by its key; `None`: it has none, or the key has gone to
    /// another task.
    pub key_set: Option<UnixMillis>,
    /// Its own settings.
    pub options: Options,
    /// The body.
    pub content: String,
}

/// A task without its body, for lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: State,
    /// Who holds it, while it is leased.
    pub lease: Option<LeaseKind>,
    /// Who gets it.
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

/// What became of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not fire (also: it was cancelled before).
    Done,
    /// It is leased; it is cancelled when the lease ends, unless it succeeds.
    Pending,
    /// It has ended otherwise; nothing changed.
    Refused {
        /// The task's state.
        state: State,
    },
    /// No such task.
    Unknown,
}

/// A body that takes the place of a task's.
#[derive(Clone, Debug, PartialEq)]
pub struct NewContent {
    /// Who gets it.
    pub destination: Destination,
    /// The body.
    pub content: String,
}

/// What became of a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescheduled {
    /// Due then.
    Done {
        /// The new due moment.
        due: UnixMillis,
    },
    /// It is leased or has ended; nothing changed.
    Refused {
        /// The task's state.
        state: State,
    },
    /// No such task.
    Unknown,
}

/// When replayed tasks fall due: the first after `first`, each further one `step` later, from the
/// store's now.
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
    /// Those that fall due within each step: number i after now + i × step, up to and with now +
    /// (i + 1) × step.
    pub steps: Vec<u64>,
}

/// How many tasks wait for one destination, over all lanes that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The destination; never `@pull`.
    pub destination: Destination,
    /// Those on its schedules, due or not.
    pub count: u64,
}
