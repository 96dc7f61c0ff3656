//! Recurring schedules: what is stored of them, and the atomic steps that plan their occurrences.
//!
//! The store compares and writes; it evaluates no cron expression. `docs/SCHEDULES.md` says what
//! holds.

use super::intake::NewTask;
use super::topics::TopicEntry;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, ScheduleName, StoreId, TaskId};
use crate::store::{Reader, Result};

contract! {
    /// Keeps recurring schedules. A schedule is in the lane of its name
    /// ([`ScheduleName::lane_in`]), and so are its planned occurrences.
    pub trait Schedules {
        /// Creates a schedule, or changes it. A change removes the occurrence that was never handed
        /// out. A changed schedule that was paused stays paused. One that was moved
        /// ([`NewSchedule::moved`]) only replaces itself, if it was set at the source since. The
        /// first moment is not planned here: the caller then calls [`Self::plan`].
        ///
        /// Fails with [`Error::StaleEntry`](crate::store::Error::StaleEntry) as an add does.
        async fn set_schedule(
            &self,
            topic: &TopicEntry,
            new: NewSchedule,
        ) -> Result<ScheduleSet> => Change;

        /// The schedules with these names, in order. `None` if the lane has no such schedule.
        async fn schedules(
            &self,
            reader: Reader,
            lane: &Lane,
            names: Vec<ScheduleName>,
        ) -> Result<Vec<Option<Schedule>>> => Read;

        /// The names of a lane's schedules, in order, after this one.
        async fn schedule_names(
            &self,
            lane: &Lane,
            after: Option<ScheduleName>,
            limit: usize,
        ) -> Result<Vec<ScheduleName>> => Read;

        /// Pauses a schedule, or ends its pause. A pause removes the occurrence that was never
        /// handed out. After a pause by an operator, only moments after the store's now are
        /// planned; after [`Pause::Move`], all moments after the last one that was handed out.
        /// Returns the schedule as it is now; `None` if there is none.
        async fn pause_schedule(
            &self,
            lane: &Lane,
            name: &ScheduleName,
            pause: Option<Pause>,
        ) -> Result<Option<Schedule>> => Change;

        /// Deletes a schedule, and its occurrence if that was never handed out. Returns whether
        /// there was a schedule.
        async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> => Change;

        /// Deletes a schedule that another store has, if it is paused and has this revision.
        /// Returns whether it is gone. May be repeated.
        async fn forget_schedule(
            &self,
            lane: &Lane,
            name: &ScheduleName,
            revision: u64,
        ) -> Result<bool> => Migrate;

        /// Plans the next occurrence, in one atomic step with the comparison that [`Plan`]
        /// describes.
        async fn plan(&self, plan: Plan) -> Result<Planned> => Add;

        /// The schedules of a lane whose planned moment has passed, the earliest first, at most
        /// [`MAX_DUE_SCHEDULES`]. Leaves out the first `skip`.
        /// [`Delivery::look`](super::Delivery::look) tells whether there are any.
        async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> => Poll;
    }
}

/// The most schedules of a lane that one look names.
pub const MAX_DUE_SCHEDULES: usize = 64;

/// The most schedules of one lane. A `set` beyond it is refused
/// ([`ScheduleSet::TooMany`]).
pub const MAX_SCHEDULES: usize = 10_000;

/// The most past occurrences that a schedule remembers.
pub const MAX_RECENT: usize = 8;

/// The outcome of an occurrence that was removed with its schedule, or by a change of it.
pub const UNPLANNED: &str = "its schedule was changed, paused or deleted";

/// The outcome of an occurrence that fell due while an earlier one still ran.
pub const SKIPPED: &str = "an earlier occurrence has not ended";

/// A schedule to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// Its name.
    pub name: ScheduleName,
    /// What it says, as JSON. Two equal texts are the same schedule.
    pub definition: String,
    /// The revision that it gets if this changes something: random.
    pub revision: u64,
    /// Where it continues, if it comes from another store.
    pub moved: Option<ContinuedSchedule>,
}

/// Where a schedule of another store continues.
#[derive(Clone, Debug, PartialEq)]
pub struct ContinuedSchedule {
    /// The store that it was created in; its occurrences have that store's `webhook-id`s.
    pub origin: StoreId,
    /// When it was last set there.
    pub set: UnixMillis,
    /// As [`Schedule::since`].
    pub since: UnixMillis,
    /// As [`Schedule::cursor`].
    pub cursor: Option<String>,
    /// Whether an operator had paused it.
    pub is_paused: bool,
}

/// The result of a `set`.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleSet {
    /// There was no schedule of this name.
    Created(Schedule),
    /// It had another definition.
    Changed(Schedule),
    /// It had this definition, or it was moved here before, and may have changed since. Nothing
    /// changed.
    Unchanged(Schedule),
    /// The lane has [`MAX_SCHEDULES`].
    TooMany,
    /// The store's format is older than schedules; see `delayd format --raise`.
    OldFormat,
    /// Another schedule has the name of one that was moved. Neither is changed.
    Taken,
    /// The schedule was moved from this very store, which still has it. Nothing changed.
    Own,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// Its definition, as it was set.
    pub definition: String,
    /// Random; new with each change of the definition, and never reused.
    pub revision: u64,
    /// When its definition was last set. Intervals count from this moment, unless they have a
    /// start.
    pub set: UnixMillis,
    /// Only moments after this one are planned.
    pub since: UnixMillis,
    /// The nominal local time of the last planned occurrence, its fold and its zone. Only later
    /// ones are planned.
    pub cursor: Option<String>,
    /// `since` and `cursor` before the last plan. With them, an occurrence that was never handed
    /// out counts as not planned. `None` before the first plan.
    pub before: Option<(UnixMillis, Option<String>)>,
    /// The pause, and since when.
    pub paused: Option<(Pause, UnixMillis)>,
    /// When a planner looks at it again. `None`: while it is paused, and after its end.
    pub look: Option<UnixMillis>,
    /// The store that it came from, if it was moved.
    pub origin: Option<StoreId>,
    /// The last planned occurrences, the newest first, at most [`MAX_RECENT`]. The newest may not
    /// be handed out yet.
    pub recent: Vec<PlannedOccurrence>,
    /// The store's now, when this was read.
    pub now: UnixMillis,
}

/// Why a schedule is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// An operator paused it.
    Operator,
    /// A mover takes it to another store.
    Move,
}

/// An occurrence that was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedOccurrence {
    /// Its task, in the schedule's lane.
    pub task: TaskId,
    /// Its nominal moment.
    pub moment: UnixMillis,
}

/// A plan of the next occurrence. The store compares `revision`, `cursor` and `since` with the
/// schedule, and does nothing if one differs ([`Planned::Stale`]).
///
/// Otherwise the store looks at the last planned occurrence. If that waits and was never handed
/// out, it stands for all moments that have passed: the store writes `missed` into it, sets
/// `since` to `until`, and looks again at `look_again`. If not, the store adds `next`.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The topic.
    pub topic: TopicEntry,
    /// The schedule.
    pub name: ScheduleName,
    /// As [`Schedule::revision`].
    pub revision: u64,
    /// As [`Schedule::cursor`].
    pub cursor: Option<String>,
    /// As [`Schedule::since`].
    pub since: UnixMillis,
    /// What to add. `None`: the schedule has ended.
    pub next: Option<NextOccurrence>,
    /// How many moments the waiting occurrence stands for, and until when they were counted.
    /// `None`: nothing was missed.
    pub missed: Option<(u64, UnixMillis)>,
    /// When to look again, if the last planned occurrence still waits.
    pub look_again: UnixMillis,
}

/// An occurrence to be added.
#[derive(Clone, Debug, PartialEq)]
pub struct NextOccurrence {
    /// The task. Its options name the schedule, the nominal moment and the cursor.
    pub task: NewTask,
    /// The new value of [`Schedule::since`].
    pub since: UnixMillis,
    /// When a planner looks at the schedule again.
    pub look: UnixMillis,
}

/// The result of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// The occurrence is stored.
    Added {
        /// Its task.
        task: TaskId,
        /// When it falls due.
        due: UnixMillis,
    },
    /// The last occurrence waits and was never handed out.
    Waits,
    /// The schedule has no further moment.
    Ended,
    /// The schedule was planned, changed, paused or deleted since. Nothing changed.
    Stale,
}

/// The answer of `due_schedules`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueSchedules {
    /// The store's now.
    pub now: UnixMillis,
    /// Their names.
    pub names: Vec<ScheduleName>,
}
