//! What a worker needs: hints, polls, claims, and the ends of leases.

use std::time::Duration;

use super::intake::Moment;
use super::sampling::Instance;
use super::signals::Signals;
use super::topics::{Misfire, Registered, Revision};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Options, Receipt, State, TaskId};
use crate::store::Result;

contract! {
    /// Hands tasks out and takes them back.
    pub trait Delivery: Signals {
        /// What each instance polls every second, in as few requests as possible: the registry
        /// unless its revision is the one that was `seen`, the manual holds, the next moments of
        /// lanes, as [`Self::next_due`] and [`Self::next_pull`], the earliest plans of recurring
        /// schedules, and the heartbeats. Each part may fail alone.
        async fn look(&self, look: Look) -> Looked => Poll;

        /// The store's now, and for each lane the next moment at which a claim would have work: a
        /// due moment of a called destination, or the earliest lease deadline. Fails only if
        /// nothing is known of any lane.
        async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> => Poll;

        /// As [`Self::next_due`], for consumers: a due moment of tasks that are pulled, or the
        /// earliest lease deadline.
        async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> => Poll;

        /// Sweeps expired leases of the lane, then leases due tasks of the wanted destinations, the
        /// earliest first. A claim without a holder is on behalf of a caller: it is answered in
        /// time, and what it takes too late is given back without counting an attempt.
        async fn claim(&self, claim: Claim) -> Result<Claimed> => Claim;

        /// Ends leases. One answer per settle, in order; an unreachable lane fails alone. A lease
        /// whose answer is an error may or may not have ended.
        async fn settle(
            &self,
            asker: Asker,
            settles: Vec<Settle>,
        ) -> Vec<Result<Settled>> => Settle;

        /// Sets a lease's deadline to the store's now + `lease`; the receipt stays. Leases a task
        /// again whose expired lease was not superseded.
        async fn extend(
            &self,
            asker: Asker,
            lane: &Lane,
            id: TaskId,
            receipt: &Receipt,
            lease: Duration,
        ) -> Result<Settled> => Extend;

        /// Writes notes of attempts, of one lane or many. Skips those of tasks that are gone. Best
        /// effort: no delivery depends on it.
        async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> => Note;
    }
}

/// Who asks for the end or the extension of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// This process. It waits as long as necessary. A power cut or a failover may undo what it was
    /// answered; then the task returns, and is called again.
    Worker,
    /// A caller. It is answered in time, and the answer is as durable as that of an add.
    Caller,
}

/// What an instance polls every second.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The revision of the registry that the instance knows.
    pub seen: Option<Revision>,
    /// The lanes that this instance looks at now.
    pub workers: Vec<Lane>,
    /// The lanes for which consumers wait at this instance.
    pub consumers: Vec<Lane>,
    /// The lanes whose recurring schedules this instance plans.
    pub planners: Vec<Lane>,
    /// The heartbeat of this instance.
    pub heartbeat: Option<Instance>,
}

/// The answer to a poll.
#[derive(Debug)]
pub struct Looked {
    /// The registry, and its revision, which was read first. `None` if the revision was seen
    /// before.
    pub registry: Result<Option<(Revision, Vec<Registered>)>>,
    /// The manual holds and the releases that are remembered.
    pub holds: Result<Holds>,
    /// When workers have something to do. `None` if the poll named no lane.
    pub next: Result<Option<NextDue>>,
    /// When consumers have something to pull. `None` if the poll named no lane.
    pub pulls: Result<Option<NextDue>>,
    /// When planners have something to plan: the earliest planned moment of each lane. `None` if
    /// the poll named no lane.
    pub plans: Result<Option<NextDue>>,
    /// The lanes of consumers of which nothing is known, because their server did not answer.
    pub unknown: Vec<Lane>,
    /// The lanes of workers whose server did not answer. Empty if `next` is an error.
    pub unanswered: Vec<Lane>,
    /// The instances that sent a heartbeat within [`INSTANCE_TTL`](crate::store::INSTANCE_TTL),
    /// with this one if it sent one now, sorted by name.
    pub instances: Result<Vec<Instance>>,
}

/// A request for the due tasks of one lane.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lane.
    pub lane: Lane,
    /// The wanted destinations and their free slots. Empty: only sweep, and say what is next.
    pub wants: Vec<Want>,
    /// How long the tasks are leased.
    pub lease: Duration,
    /// The holder of the lane's lock. `None` bypasses the lock, as pulls do: the claim is atomic,
    /// so consumers do not disturb each other.
    pub holder: Option<LockToken>,
    /// Whether the holder has more free slots than `wants` says. It then keeps the lock if more is
    /// due.
    pub more: bool,
    /// The position after which the outlook begins. `None`: it begins with the earliest due
    /// destination.
    pub after: Option<Position>,
    /// Bytes of content that the caller holds already, from other lanes. They count as if this
    /// claim had handed them out: the claim adds no content beyond
    /// [`MAX_CLAIM_BYTES`](crate::store::MAX_CLAIM_BYTES). With 0, a single larger content still
    /// goes.
    pub in_hand: usize,
    /// Past pauses of the topic, and what becomes of the tasks that fell due in them. At most
    /// [`MAX_MISFIRES`](crate::store::MAX_MISFIRES).
    pub misfires: Vec<Misfire>,
}

/// A position in the list of a lane's called destinations, ordered by the earliest due moment of
/// each. What is claimed or added elsewhere in the list does not move it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The earliest due moment.
    pub moment: UnixMillis,
    /// The destination that it follows within the moment. If that has another earliest moment by
    /// now, the position may be before the first destination of `moment`. `None`: after all of
    /// them.
    pub destination: Option<Destination>,
}

/// A destination and its free slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The destination.
    pub destination: Destination,
    /// The most tasks to take, at least 1.
    pub slots: usize,
}

/// The token of the lane's lock: one per instance, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockToken(pub std::sync::Arc<str>);

/// The answer to a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// Another instance holds the lane's lock.
    Refused {
        /// When the lock expires.
        retry_in: Duration,
    },
    /// The tasks that were due.
    Granted(Grant),
}

/// The tasks of a claim, and what is next.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The store's now.
    pub now: UnixMillis,
    /// The receipt of the new leases.
    pub receipt: Receipt,
    /// The leased tasks, per wanted destination in order of their due moments.
    pub tasks: Vec<LeasedTask>,
    /// What is next.
    pub outlook: Outlook,
    /// What the claim ended.
    pub swept: Swept,
}

/// What a claim ended, beside the tasks that it handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases of workers and receivers that ran out.
    pub push_leases: u32,
    /// Leases of consumers that ran out.
    pub pull_leases: u32,
    /// Tasks that are cancelled, because a cancel was pending when the lease ran out.
    pub cancelled: u32,
    /// Tasks that are dead, because too many leases in a row ran out.
    pub leases_ran_out: u32,
    /// Tasks that are dead, because their records cannot be read.
    pub unreadable: u32,
    /// Tasks that have expired.
    pub expired: u32,
    /// Tasks that have expired, because they fell due in a pause.
    pub misfired_expired: u32,
    /// Tasks that are dead, because they fell due in a pause.
    pub misfired_dead: u32,
    /// Occurrences that have expired, because an earlier one had not ended.
    pub skipped: u32,
}

/// What a lane holds for its worker after a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Called destinations that still have due tasks: those after the position that the claim
    /// names, the earliest first, at most [`MAX_OUTLOOK`](crate::store::MAX_OUTLOOK); then the
    /// wanted ones that are not among them. Those are left out that cannot be read, or whose due
    /// tasks must not be handed out yet.
    pub due: Vec<Destination>,
    /// Where the next page begins. `None`: no destination is due behind this page.
    pub end: Option<Position>,
    /// The next later moment: a due moment, or a lease's deadline.
    pub next: Option<UnixMillis>,
}

/// The kind of a lease: who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// A worker, which calls the destination.
    Worker,
    /// A consumer, which pulled the task.
    Consumer,
    /// A receiver that was called and acknowledges later ([`Transition::Keep`]).
    Receiver,
    /// A mover, which takes the task to another store. If the task returns, it waits for `due` as
    /// before.
    Mover {
        /// The moment that the task waited for.
        due: UnixMillis,
    },
}

impl LeaseKind {
    /// The kind of lease that a claim of this destination gives.
    pub fn of_claim(destination: &Destination) -> Self {
        if destination.is_pull() { Self::Consumer } else { Self::Worker }
    }

    /// The moment that the task waits for again if the lease ends without any effect. `None` if no
    /// moment is fixed.
    pub fn returns_to(self) -> Option<UnixMillis> {
        if let Self::Mover { due } = self { Some(due) } else { None }
    }
}

/// A task that a claim leased.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedTask {
    /// Its id.
    pub id: TaskId,
    /// Where it goes.
    pub destination: Destination,
    /// This attempt's number, from 1.
    pub attempt: u32,
    /// Its stored due moment: from the add, or set since.
    pub due: UnixMillis,
    /// When it was added.
    pub created: UnixMillis,
    /// Until when the store held it back, if a slow disk had not made it durable yet.
    pub held_until: Option<UnixMillis>,
    /// Its own settings.
    pub options: Options,
    /// The content.
    pub content: String,
}

/// The end of one lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The lane.
    pub lane: Lane,
    /// The task.
    pub id: TaskId,
    /// The lease's receipt.
    pub receipt: Receipt,
    /// What becomes of the task.
    pub transition: Transition,
}

/// What becomes of a leased task. Of an outcome text, [`MAX_OUTCOME`](crate::store::MAX_OUTCOME)
/// bytes are kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// Delivered. Also ends a task whose lease was superseded, if the receipt is of its current
    /// revision.
    Delivered {
        /// Such as `200 OK`.
        outcome: String,
    },
    /// Scheduled again; the attempt counts.
    Retry {
        /// When it is due.
        due: Moment,
        /// Such as `503 Service Unavailable`.
        outcome: String,
    },
    /// Stored in another store, and so delivered here, with the outcome
    /// [`MOVED`](crate::store::MOVED). Stale if a cancel is pending, which stays pending.
    Moved,
    /// Dead.
    Dead {
        /// Such as `410 Gone`.
        outcome: String,
    },
    /// Given back: due at the store's now, the attempt does not count. The receipt is forgotten.
    Release,
    /// Not ended yet: the receiver has the receipt and ends the lease with it. Sets the deadline as
    /// an extension does.
    Keep {
        /// The time from the store's now to the deadline.
        lease: Duration,
    },
}

/// The result of a settle or an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The task stands as asked. Also if it did already, by this receipt.
    Done,
    /// The lease has ended, and with it the task, because a cancel was pending. A repeat is
    /// [`Settled::Done`].
    Cancelled,
    /// The lease was superseded, or the task has ended in another way; nothing changed.
    Stale {
        /// The task's state.
        state: State,
    },
    /// No such task.
    Unknown,
}

impl Settled {
    /// Whether the lease has ended, or was extended, as asked.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

/// The answer of `next_due` and `next_pull`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The store's now.
    pub now: UnixMillis,
    /// One answer per lane of the request, in order. `None` if nothing is coming, or if the lane's
    /// server is unreachable.
    pub lanes: Vec<Option<UnixMillis>>,
}

/// A note of one attempt, for people. It is written separately from the settle, and may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptNote {
    /// The task's lane.
    pub lane: Lane,
    /// The task.
    pub id: TaskId,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// When the attempt began.
    pub started: UnixMillis,
    /// How long the attempt took.
    pub took: Duration,
    /// How long the task then waits for its next attempt; `None` after a success and after the last
    /// attempt, and in notes of older versions.
    pub wait: Option<Duration>,
    /// The outcome, such as `503 Service Unavailable`; cut to
    /// [`MAX_OUTCOME`](crate::store::MAX_OUTCOME) bytes.
    pub outcome: String,
    /// The beginning of the response's body; cut to [`MAX_ANSWER`](crate::store::MAX_ANSWER) bytes.
    pub answer: String,
}

/// The destinations that operators hold, and recent releases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The destinations that are held.
    pub held: Vec<Destination>,
    /// Released destinations, and when each was last released, for the other instances. Always
    /// empty in a store of one process.
    pub released: Vec<(Destination, UnixMillis)>,
}
