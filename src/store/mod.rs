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
//! | `Release` by current | scheduled at now, attempts − 1 | (no current) | stale | stale | done if by its receipt, else stale |
//! | any other receipt | stale | stale | stale | stale | stale |
//!
//! Where a cancel is pending, `Retry`, `Dead`, `Release` and the sweep make the task cancelled, and the settle
//! answers done. *Swept*: the lease ran out and a claim put the task back on its schedule, due at its deadline
//! (at now, if the deadline is further away than [`MAX_LEASE`]); each sweep in a row counts one expiry, any settle
//! ends the row, and the sweep at which [`MAX_EXPIRIES`] is reached makes the task dead.
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
//!
//! What is absent on purpose: HTTP, retry policy, service names' endpoints. The caller decides what a failure
//! means and says so with a [`Transition`].

use std::future::Future;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::clock::UnixMillis;
use crate::task::{Destination, Lane, Options, Receipt, State, TaskId, Topic};

mod any;
pub mod embedded;
mod error;
pub mod redis;

pub use any::AnyStore;
pub use error::{Error, Result};

/// The longest lease. A deadline further away than this is the mark of a clock that was set back, and counts
/// as run out.
pub const MAX_LEASE: Duration = Duration::from_secs(12 * 3600);

/// How many leases in a row may run out before the task dies: the end of a crash loop. Attempts do not count
/// here, for an expiry alone never buries a task.
pub const MAX_EXPIRIES: u32 = 16;

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

    /// Ends leases. One answer per settle, in order.
    fn settle(&self, settles: Vec<Settle>) -> impl Future<Output = Result<Vec<Settled>>> + Send;

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
    /// of a called destination, or the earliest lease deadline.
    fn next_due(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

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

    /// Registers a topic unless it is there, and answers the entry that won.
    fn register(&self, entry: TopicEntry) -> impl Future<Output = Result<TopicEntry>> + Send;

    /// All registered topics.
    fn topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;

    /// Finds lanes that hold tasks though nobody registered them (a failover may lose the entry), registers
    /// their topics, and answers them. Slow; runs in the background.
    fn recover_topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;

    /// Whether the store answers, and its now.
    fn ping(&self) -> impl Future<Output = Result<UnixMillis>> + Send;

    /// Listens for adds: those of this process, and those that other instances hint at. A lane is named with the
    /// earliest due moment of a batch. Only saves time; a hint may be lost.
    fn hints(&self) -> broadcast::Receiver<Hint>;

    /// Ends the store's own threads and connections after everything accepted is on its way to disk.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What an accepted add survives; the names are the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk before the answer.
    Fsynced,
    /// Redis with `appendfsync always`.
    AofAlways,
    /// Redis with `appendfsync everysec`: a second may be lost with the machine.
    AofEverysec,
    /// Redis without AOF, or with `appendfsync no`: lost with the server.
    Volatile,
}

impl Durability {
    /// The name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fsynced => "fsynced",
            Self::AofAlways => "aof-always",
            Self::AofEverysec => "aof-everysec",
            Self::Volatile => "volatile",
        }
    }
}

/// When a task falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At a moment; one in the past means the store's now.
    At(UnixMillis),
    /// So long after the store's now.
    After(Duration),
}

/// A lane has work from a moment on, perhaps earlier than its worker knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The lane.
    pub lane: Lane,
    /// The earliest new due moment.
    pub due: UnixMillis,
}

/// A task to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTask {
    /// Its topic, as registered.
    pub topic: TopicEntry,
    /// Who gets it.
    pub destination: Destination,
    /// When.
    pub moment: Moment,
    /// Its own settings.
    pub options: Options,
    /// The body, kept byte for byte.
    pub content: String,
}

/// A stored task's name and due moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The drawn id.
    pub id: TaskId,
    /// The due moment by the store's clock.
    pub due: UnixMillis,
}

/// A look into one lane, and a grab at what is due.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lane.
    pub lane: Lane,
    /// The destinations with free slots, and how many each. Empty: only sweep and look.
    pub wants: Vec<Want>,
    /// How long the tasks are held.
    pub lease: Duration,
    /// Who claims under the lane's lock. `None` goes past the lock (pull: consumers do not stand in each other's
    /// way, the claim's atomicity keeps them apart).
    pub holder: Option<Holder>,
    /// The holder has more free slots than `wants` says, and keeps the lock if more is due.
    pub more: bool,
    /// How many due destinations the outlook passes over, to see those behind a full one.
    pub skip: usize,
}

/// A destination and its free slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Who.
    pub destination: Destination,
    /// The most tasks to take, from 1.
    pub slots: usize,
}

/// The lane lock's token: one per instance. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder(pub std::sync::Arc<str>);

/// What became of a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// Another instance holds the lane; look again then.
    Refused {
        /// The rest of its lock.
        retry_in: Duration,
    },
    /// What was due.
    Granted(Grant),
}

/// The fruit of a claim.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The store's now.
    pub now: UnixMillis,
    /// The lease's name.
    pub receipt: Receipt,
    /// The leased tasks, per wanted destination in order of due moment.
    pub tasks: Vec<LeasedTask>,
    /// What is next.
    pub outlook: Outlook,
}

/// What a lane holds for its worker after a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Called destinations that still have due tasks, earliest first, at most [`MAX_OUTLOOK`] after the skipped.
    pub due: Vec<Destination>,
    /// The next later moment: a due moment, or a lease deadline.
    pub next: Option<UnixMillis>,
}

/// A task in the hands of its claimer.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedTask {
    /// Its id.
    pub id: TaskId,
    /// Who gets it.
    pub destination: Destination,
    /// This attempt's number, from 1.
    pub attempt: u32,
    /// The due moment it was stored with.
    pub due: UnixMillis,
    /// Its own settings.
    pub options: Options,
    /// The body.
    pub content: String,
}

/// The end of one lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The lane.
    pub lane: Lane,
    /// The task.
    pub id: TaskId,
    /// The lease's name.
    pub receipt: Receipt,
    /// Where the task goes.
    pub transition: Transition,
}

/// Where a leased task goes. The texts say why in a few words (at most [`MAX_OUTCOME`] bytes are kept).
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// Done. Also ends a task whose lease was lost, if the receipt is of its current revision.
    Delivered {
        /// Such as `200 OK`.
        outcome: String,
    },
    /// Scheduled again, the attempt spent.
    Retry {
        /// From the store's now.
        after: Duration,
        /// Such as `503 Service Unavailable`.
        outcome: String,
    },
    /// Dead.
    Dead {
        /// Such as `410 Gone`.
        outcome: String,
    },
    /// Given back, due at the store's now, the attempt unspent: nothing was fired. The receipt is forgotten.
    Release,
}

/// What became of a settle or an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// So it stands now (also: so it stood already, by this receipt).
    Done,
    /// The lease was lost to another, or the task has ended otherwise; nothing changed.
    Stale {
        /// The task's state.
        state: State,
    },
    /// No such task.
    Unknown,
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

/// A task as `get` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: State,
    /// Who gets it.
    pub destination: Destination,
    /// While it is scheduled, the moment it waits for (a retry's, too); otherwise the moment it was stored with.
    pub due: UnixMillis,
    /// When it was stored.
    pub created: UnixMillis,
    /// When it ended.
    pub finished: Option<UnixMillis>,
    /// Attempts begun.
    pub attempts: u32,
    /// The last attempt's outcome; empty before there was one.
    pub last_outcome: String,
    /// Its own settings.
    pub options: Options,
    /// The body.
    pub content: String,
}

/// A page of a lane's tasks in one state.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The lane.
    pub lane: Lane,
    /// The state.
    pub state: State,
    /// Not before this moment.
    pub from: UnixMillis,
    /// Not after this moment.
    pub to: UnixMillis,
    /// Only what comes after this entry in (moment, id) order: the last of the page before.
    pub after: Option<Listed>,
    /// The most entries.
    pub limit: usize,
}

/// An entry of a page. The derived order is the page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its moment in the state's time order.
    pub moment: UnixMillis,
    /// The task.
    pub id: TaskId,
}

/// The answer of `next_due`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The store's now.
    pub now: UnixMillis,
    /// Per asked lane, in order.
    pub lanes: Vec<Option<UnixMillis>>,
}

/// Exact counts of one lane by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting.
    pub scheduled: u64,
    /// Held (an expired lease counts here until a claim sweeps it).
    pub leased: u64,
    /// Acknowledged and still remembered.
    pub delivered: u64,
    /// Dead.
    pub dead: u64,
    /// Cancelled and still remembered.
    pub cancelled: u64,
    /// Expired and still remembered.
    pub expired: u64,
}

/// A topic in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicEntry {
    /// Its name.
    pub topic: Topic,
    /// Its number of lanes, from 1, fixed at creation.
    pub shards: u16,
}

impl TopicEntry {
    /// The most lanes of a topic.
    pub const MAX_SHARDS: u16 = 256;

    /// The lane of one of the topic's tasks.
    pub fn lane_of(&self, id: TaskId) -> Lane {
        Lane::of(self.topic.clone(), id, self.shards)
    }

    /// All lanes.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        (0..self.shards).map(|shard| Lane { topic: self.topic.clone(), shard })
    }
}
