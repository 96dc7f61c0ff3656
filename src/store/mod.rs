//! ② Kept: what the road of a task asks of a store, and the two stores that answer.
//!
//! The verbs of [`Store`] are the arrows of the life cycle. Two backends implement them, `embedded` (SQLite,
//! one process) and `redis` (several instances share the work); [`AnyStore`] picks one at start, and one
//! conformance suite (`tests/store_conformance`) runs whole against both, so that no caller can tell which it has.
//!
//! # The receipts of a task
//!
//! A task that was ever claimed has a *current* receipt (its holder's, or the last holder's whose lease ran out
//! and that nobody superseded) and *past* ones of the same revision, at most [`MAX_RECEIPTS`] together.
//!
//! | verb | current | past |
//! |---|---|---|
//! | claim | the new one | the current one, if any, goes to the front |
//! | sweep of an expired lease | stays | stays |
//! | settle `Retry` | none | the current one goes to the front |
//! | settle `Release` | none | stays |
//! | settle `Keep`, extend | stays | stays |
//! | settle `Delivered`, `Dead` | the settling one | stays while dead, else forgotten |
//! | cancel at once, reschedule, replay | none | none |
//!
//! # What a settle does
//!
//! | settle | leased (run out or not), or swept | waiting otherwise | dead | delivered | cancelled, expired |
//! |---|---|---|---|---|---|
//! | `Delivered` by current or past | delivered | delivered | delivered | done if by its receipt, else stale | stale |
//! | `Retry` by current | scheduled at now + after | (no current) | stale | stale | done if by its receipt, else stale |
//! | `Retry` by the newest past | stale if leased to another | done, unchanged: a repeat | stale | stale | stale |
//! | `Dead` by current | dead | (no current) | done: a repeat | stale | done if by its receipt, else stale |
//! | `Keep` by current | leased until now + lease | (no current; if swept: leased again) | stale | stale | stale |
//! | `Release` by current | scheduled at now, attempts − 1 | (no current) | stale | stale | done if by its receipt, else stale |
//! | any other receipt | stale | stale | stale | stale | stale |
//!
//! A `Keep` is an extension that leaves [`KEPT`] as the last outcome. It ends nothing: a pending cancel goes on waiting, and the row of expiries goes on.
//! Where a cancel is pending, `Retry`, `Dead`, `Release` and the sweep make the task cancelled, and the settle
//! answers done (a `Release` then leaves the attempts as they are). *Swept*: the lease ran out and a claim put the task back on its schedule, due at its deadline
//! (at now, if the deadline is further away than [`MAX_LEASE`]); each sweep in a row counts one expiry, any other
//! settle ends the row, and the sweep at which [`MAX_EXPIRIES`] is reached makes the task dead. A sweep leaves
//! [`LEASE_RAN_OUT`] as the last outcome. `cancel` and `reschedule` count no expiry; but where a cancel waited for the end of a
//! lease that has run out, they find the task cancelled.
//!
//! # Invariants
//!
//! - Time is the store's own: due moments, leases and `delay` count by its clock, never by a caller's.
//! - A lease is named by the [`Receipt`] of the claim that gave it. *Superseded* means that another claim took
//!   the task since; an expired lease that nobody took may still settle or extend.
//! - A **revision** is the set of receipts given out since the task was last (re)scheduled by hand. `reschedule`
//!   and `replay` forget those receipts; so a late success counts only for the revision that was claimed.
//! - A finished task keeps its final receipt: the same settle repeated answers success.
//! - Every verb treats a leased task whose lease has run out as scheduled.
//! - A verb whose answer was lost may be repeated.
//! - A record that cannot be read is the trouble of its task alone. A claim that comes upon it makes the task dead
//!   ([`UNREADABLE`]) and hands out the others; a settle answers [`Settled::Unknown`]; a verb by hand fails for it.
//!
//! What is absent on purpose: HTTP, retry policy, service names' endpoints. The caller decides what a failure
//! means and says so with a [`Transition`].

use std::future::Future;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::breaker;
use crate::clock::UnixMillis;
use crate::task::{Destination, Lane, Receipt, State, TaskId};

mod any;
mod check;
pub mod embedded;
mod error;
pub mod redis;
mod terms;

pub use any::AnyStore;
pub use check::{Checked, Cursor, Finding, Flaw};
pub use error::{Error, Result};
pub use terms::{
    Added, Cancelled, Claim, Claimed, Counts, Durability, Grant, Hint, Holder, LeasedTask, ListQuery, Listed, Moment,
    NewContent, NewTask, NextDue, Outlook, Rescheduled, Settle, Settled, Task, TopicEntry, Transition, Waiting, Want,
};

/// The longest lease; a longer one is cut to it. A deadline further away than this is the mark of a clock that was set back, and counts
/// as run out.
pub const MAX_LEASE: Duration = Duration::from_secs(12 * 3600);

/// How many leases in a row may run out before the task dies: the end of a crash loop. Attempts do not count
/// here, for an expiry alone never buries a task.
pub const MAX_EXPIRIES: u32 = 16;

/// The last outcome of a task whose lease ran out.
pub const LEASE_RAN_OUT: &str = "lease ran out";

/// The last outcome of a task in the hands of a receiver that will end the lease itself. By it the start of an embedded store knows the
/// leases that did not end with the process before.
pub const KEPT: &str = "202 Accepted, to be acknowledged";

/// The last outcome of a task that died because what is stored of it cannot be read. Nothing of it is deleted.
pub const UNREADABLE: &str = "record cannot be read";

/// The most body bytes that one claim hands out (a single larger body still goes).
pub const MAX_CLAIM_BYTES: usize = 4 << 20;

/// The most expired leases that one claim sweeps.
pub const MAX_SWEEP: usize = 256;

/// The most due destinations that one [`Outlook`] names.
pub const MAX_OUTLOOK: usize = 1024;

/// The most receipts of one revision that are remembered; older holders are refused even a late success.
pub const MAX_RECEIPTS: usize = 4;

/// The longest outcome text that is kept, in bytes.
pub const MAX_OUTCOME: usize = 200;

/// A kept task road. See the module's page for the invariants.
pub trait Store: Send + Sync + 'static {
    /// What an accepted add survives.
    fn durability(&self) -> Durability;

    /// Stores new tasks, each at most once, and draws their ids. One answer per task, in order. A task whose
    /// answer is an error may or may not be stored ([`Error::Unavailable`]).
    fn add(&self, tasks: Vec<NewTask>) -> impl Future<Output = Vec<Result<Added>>> + Send;

    /// Sweeps expired leases of the lane, then leases due tasks of the wanted destinations, earliest first.
    fn claim(&self, claim: Claim) -> impl Future<Output = Result<Claimed>> + Send;

    /// Ends leases. One answer per settle, in order: a lane out of reach is no other lane's trouble. A lease whose answer is an error may or
    /// may not have been ended.
    fn settle(&self, settles: Vec<Settle>) -> impl Future<Output = Vec<Result<Settled>>> + Send;

    /// Which of the store's servers has the lane now: lanes of one number are out of reach together. Who sends each number's settles
    /// by themselves sees to it that one server's outage holds up its own lanes alone.
    fn server_of(&self, _lane: &Lane) -> u64 {
        0
    }

    /// The circuit breaker around the store; of several servers, the worst. Closed where there is none.
    fn breaker(&self) -> breaker::State {
        breaker::State::Closed
    }

    /// Moves a lease's deadline to the store's now + `lease`; the receipt stays. An expired lease that nobody
    /// took is leased again.
    fn extend(
        &self,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> impl Future<Output = Result<Settled>> + Send;

    /// Cancels a scheduled or dead task. A leased one is marked: any end of its lease but success cancels it.
    fn cancel(&self, lane: &Lane, id: TaskId) -> impl Future<Output = Result<Cancelled>> + Send;

    /// Moves a scheduled task's due moment, and its content if there is a new one. Raises the revision; attempts
    /// start anew.
    fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> impl Future<Output = Result<Rescheduled>> + Send;

    /// One task, with its content.
    fn get(&self, lane: &Lane, id: TaskId) -> impl Future<Output = Result<Option<Task>>> + Send;

    /// Ids of one state in time order: due moment for scheduled, deadline for leased, end for the others.
    fn list(&self, query: ListQuery) -> impl Future<Output = Result<Vec<Listed>>> + Send;

    /// Schedules dead tasks for now, attempts and revision anew. Answers how many of them were dead.
    fn replay(&self, lane: &Lane, ids: Vec<TaskId>) -> impl Future<Output = Result<usize>> + Send;

    /// The store's now, and per lane the next moment at which a claim would have something to do: a due moment
    /// of a called destination, or the earliest lease deadline. An error only if nothing can be said of any lane.
    fn next_due(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

    /// As [`Store::next_due`], for consumers: a due moment of the tasks that are pulled, or the earliest lease deadline.
    fn next_pull(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

    /// Exact counts of one lane.
    fn stats(&self, lane: &Lane) -> impl Future<Output = Result<Counts>> + Send;

    /// Forgets up to `limit` tasks that ended in `state` before `before`, bodies and all. Answers how many.
    fn purge(
        &self,
        lane: &Lane,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Holds a destination by hand, for all instances and until it is released, or releases it. Those who work look once a second:
    /// the store itself hands its tasks out as before.
    fn set_hold(&self, destination: &Destination, is_held: bool) -> impl Future<Output = Result<()>> + Send;

    /// The destinations that are held by hand.
    fn holds(&self) -> impl Future<Output = Result<Vec<Destination>>> + Send;

    /// How many tasks wait for each called destination, by name; one for which none waits may be missing.
    fn waiting(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<Vec<Waiting>>> + Send;

    /// Registers a topic unless it is there, and answers the entry that won.
    fn register(&self, entry: TopicEntry) -> impl Future<Output = Result<TopicEntry>> + Send;

    /// All registered topics.
    fn topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;

    /// Finds lanes that hold tasks though nobody registered them (a failover may lose the entry), registers
    /// their topics, and answers them. Slow; runs in the background.
    fn recover_topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;

    /// One step of a look at everything that is kept, for what no verb leaves behind; repairs it if told to. Begins at
    /// [`Cursor::start`] and goes on with [`Checked::next`]. Safe beside live traffic; bounded; a look writes nothing.
    fn check(&self, from: Cursor, repair: bool) -> impl Future<Output = Result<Checked>> + Send;

    /// Whether the store answers, and its now.
    fn ping(&self) -> impl Future<Output = Result<UnixMillis>> + Send;

    /// Listens for adds: those of this process, and those that other instances hint at. A lane is named with the
    /// earliest due moment of a batch, apart for those called and those pulled. Only saves time; a hint may be lost.
    fn hints(&self) -> broadcast::Receiver<Hint>;

    /// Ends the store's own threads and connections after everything accepted is on its way to disk.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
