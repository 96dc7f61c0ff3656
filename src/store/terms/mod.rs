//! The nouns of the contract: what the verbs of [`Store`](super::Store) take and answer.

use std::time::Duration;

use crate::clock::UnixMillis;
use crate::task::{Destination, Lane, Options, Receipt, State, TaskId};

mod identity;
mod manage;
mod topic;
mod transfer;

pub use identity::{Idempotency, Novelty};
pub use manage::{AttemptNote, Forecast, Holds, Spread, Summary};
pub use topic::{Look, Looked, Misfire, Misfired, Registered, Revision, TopicEntry};
pub use transfer::{Adopted, Adoptee, LENT, Lent, MOVED, Standing};

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

    /// What the operator should know of it.
    pub fn warning(self) -> Option<&'static str> {
        let is_lost = self == Self::Volatile;
        is_lost.then_some("Redis keeps no append-only file: tasks are lost when it stops (durability: volatile)")
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

impl Moment {
    /// When that is, if it is `now` by the store's clock.
    pub fn due(self, now: UnixMillis) -> UnixMillis {
        match self {
            Self::At(moment) => moment.max(now),
            Self::After(wait) => now + wait,
        }
    }
}

/// A lane has work from a moment on, perhaps earlier than its worker knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The lane.
    pub lane: Lane,
    /// The earliest new due moment.
    pub due: UnixMillis,
    /// For consumers who wait, not for the lane's worker.
    pub is_pull: bool,
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
    /// Refuses to store it twice.
    pub idempotency: Option<Idempotency>,
    /// The most waiting and leased tasks of its lane, itself included; [`Error::OverQuota`](super::Error::OverQuota) beyond.
    pub quota: Option<u64>,
}

impl NewTask {
    /// The shard that the task has to lie in: that of its `key`, else of its idempotency key, so that the lane alone can say whether there
    /// is one already. `None`: any.
    pub fn pinned_shard(&self) -> Option<u16> {
        let idempotency_key = self.idempotency.as_ref().map(|idempotency| &*idempotency.key);
        let key = self.options.key.as_deref().or(idempotency_key)?;
        Some(Lane::shard_of_key(key, self.topic.shards))
    }

    /// The name under which its lane remembers its idempotency key.
    pub fn idempotency_name(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.idempotency.as_ref().map(|idempotency| idempotency.name(self.options.key.as_deref()))
    }
}

/// A stored task's name and due moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its id: the drawn one, or that of the task that was there.
    pub id: TaskId,
    /// The due moment by the store's clock.
    pub due: UnixMillis,
    /// Whether there was such a task already.
    pub novelty: Novelty,
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
    /// Bytes of bodies that the caller has in hand already, from other lanes. They count as if this claim had handed them out: it adds no
    /// body that makes them more than [`MAX_CLAIM_BYTES`](super::MAX_CLAIM_BYTES). With none in hand a single larger body still goes.
    pub in_hand: usize,
    /// Pauses of the topic that are over, and what becomes of the tasks that fell due in them. At most [`MAX_MISFIRES`](super::MAX_MISFIRES).
    pub misfires: Vec<Misfire>,
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
    /// Called destinations that still have due tasks, earliest first, at most [`MAX_OUTLOOK`](super::MAX_OUTLOOK) after the skipped.
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
    /// The due moment it was stored with, or was moved to by hand.
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

/// Where a leased task goes. The texts say why in a few words (at most [`MAX_OUTCOME`](super::MAX_OUTCOME) bytes are kept).
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
    /// Kept by another store, and so delivered here, with [`MOVED`]. Not where a cancel is pending:
    /// that goes on waiting, and the answer is stale.
    Moved,
    /// Dead.
    Dead {
        /// Such as `410 Gone`.
        outcome: String,
    },
    /// Given back, due at the store's now, the attempt unspent: nothing was fired. The receipt is forgotten.
    Release,
    /// No end yet: whoever was called has the receipt, and will end the lease by it. Moves the deadline as an extension does.
    Keep {
        /// From the store's now.
        lease: Duration,
    },
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

/// The answer of `next_due` and of `next_pull`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The store's now.
    pub now: UnixMillis,
    /// Per asked lane, in order; `None` where nothing is coming, or where that cannot be said because the lane's server is away.
    pub lanes: Vec<Option<UnixMillis>>,
}

/// The answer of `histories`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// The store's now.
    pub now: UnixMillis,
    /// Per asked lane, in order; `None` where that cannot be said because the lane's server is away.
    pub lanes: Vec<Option<History>>,
}

/// What a lane has to be forgotten, in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How many of its tasks were delivered, cancelled or expired.
    pub ended: u64,
    /// When the first of them ended.
    pub oldest: Option<UnixMillis>,
    /// Whether a purge has something to do besides: idempotency keys whose window is over, or calls that a full disk left owed.
    pub has_leftovers: bool,
}

/// How many tasks wait for one destination, over all lanes that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The destination; never `@pull`.
    pub destination: Destination,
    /// Those on its schedules, due or not.
    pub count: u64,
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
    /// The earliest due moment of what waits, pulled or called: if it has passed, that of the oldest overdue task.
    pub earliest: Option<UnixMillis>,
}
