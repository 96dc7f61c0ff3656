//! What a worker needs: hints and looks, claims, and the ends of leases.

use std::future::Future;
use std::time::Duration;

use tokio::sync::broadcast;

use super::topics::{Misfire, Registered, Revision};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Options, Receipt, State, StoreId, TaskId};
use crate::store::Result;

/// Hands tasks out and takes them back. All that a worker needs of a store.
pub trait Delivery: Send + Sync + 'static {
    /// The store's own id, which the `webhook-id` of its tasks begins with. At most a second old,
    /// unless the server that has it is away: `delayd store new-id` may give the store another.
    fn id(&self) -> impl Future<Output = Result<StoreId>> + Send;

    /// Listens for what is put on the lanes' schedules, by this process and by others that hint at
    /// it: what is added or adopted, put back by a settle or by hand, or is a call for the dead. A
    /// lane is named with the earliest due moment of a batch, apart for those called and those
    /// pulled; no word need be lost on a called task behind the earliest of its destination, nor on
    /// what a claim sweeps. Only saves time; a hint may be lost.
    fn hints(&self) -> broadcast::Receiver<Hint>;

    /// What each instance looks for every second, in as few requests as the store can: the registry
    /// unless its revision is the one that was `seen`, what is held by hand, and the next moments
    /// of lanes, as [`Self::next_due`] and [`Self::next_pull`]. Each part may fail by itself.
    fn look(&self, look: Look) -> impl Future<Output = Looked> + Send;

    /// The store's now, and per lane the next moment at which a claim would have something to do: a
    /// due moment of a called destination, or the earliest lease deadline. An error only if nothing
    /// can be said of any lane.
    fn next_due(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

    /// As [`Self::next_due`], for consumers: a due moment of the tasks that are pulled, or the
    /// earliest lease deadline.
    fn next_pull(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

    /// Which of the store's servers has the lane now: lanes of one number are out of reach
    /// together. Who sends each number's settles by themselves sees to it that one server's outage
    /// holds up its own lanes alone.
    fn server_of(&self, _lane: &Lane) -> u64 {
        0
    }

    /// Sweeps expired leases of the lane, then leases due tasks of the wanted destinations,
    /// earliest first. A claim without a holder is made on behalf of a caller: it is answered in
    /// time, and what it takes too late is given back unspent.
    fn claim(&self, claim: Claim) -> impl Future<Output = Result<Claimed>> + Send;

    /// Ends leases. One answer per settle, in order: a lane out of reach is no other lane's
    /// trouble. A lease whose answer is an error may or may not have been ended.
    fn settle(&self, settles: Vec<Settle>) -> impl Future<Output = Vec<Result<Settled>>> + Send;

    /// As [`Self::settle`], on behalf of a caller: it is answered in time, and what is answered
    /// outlasts the loss of as many servers as an add does. A worker need not wait for that: a
    /// settle of its that is lost brings the task back, which then is called again.
    fn settle_confirmed(
        &self,
        settles: Vec<Settle>,
    ) -> impl Future<Output = Vec<Result<Settled>>> + Send {
        self.settle(settles)
    }

    /// Moves a lease's deadline to the store's now + `lease`; the receipt stays. An expired lease
    /// that nobody took is leased again.
    fn extend(
        &self,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> impl Future<Output = Result<Settled>> + Send;

    /// As [`Self::extend`], on behalf of a caller: see [`Self::settle_confirmed`].
    fn extend_confirmed(
        &self,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> impl Future<Output = Result<Settled>> + Send {
        self.extend(lane, id, receipt, lease)
    }

    /// Writes notes of attempts, of one lane or many; those of tasks that are gone are passed over.
    /// Best effort, off the road.
    fn note(&self, notes: Vec<AttemptNote>) -> impl Future<Output = Result<()>> + Send;
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

/// What an instance looks for each second.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The revision of the registry that is known already.
    pub seen: Option<Revision>,
    /// The lanes that are worked here.
    pub workers: Vec<Lane>,
    /// The lanes for whose tasks consumers wait here.
    pub consumers: Vec<Lane>,
}

/// What was found.
#[derive(Debug)]
pub struct Looked {
    /// The registry and its revision, which was read first; `None`: it is the one that was seen
    /// before.
    pub registry: Result<Option<(Revision, Vec<Registered>)>>,
    /// The destinations that are held by hand, and the releases that are remembered.
    pub holds: Result<Holds>,
    /// When workers have something to do; `None`: no lane was asked for.
    pub next: Result<Option<NextDue>>,
    /// When consumers have something to pull; `None`: no lane was asked for.
    pub pulls: Result<Option<NextDue>>,
    /// The lanes of consumers whose server did not answer, so that nothing is known of them.
    pub unknown: Vec<Lane>,
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
    /// Who claims under the lane's lock. `None` goes past the lock (pull: consumers do not stand in
    /// each other's way, the claim's atomicity keeps them apart).
    pub holder: Option<Holder>,
    /// The holder has more free slots than `wants` says, and keeps the lock if more is due.
    pub more: bool,
    /// How many due destinations the outlook passes over, to see those behind a full one.
    pub skip: usize,
    /// Bytes of bodies that the caller has in hand already, from other lanes. They count as if this
    /// claim had handed them out: it adds no body that makes them more than
    /// [`MAX_CLAIM_BYTES`](crate::store::MAX_CLAIM_BYTES). With none in hand a single larger body
    /// still goes.
    pub in_hand: usize,
    /// Pauses of the topic that are over, and what becomes of the tasks that fell due in them. At
    /// most [`MAX_MISFIRES`](crate::store::MAX_MISFIRES).
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
    /// Called destinations that still have due tasks, earliest first, at most
    /// [`MAX_OUTLOOK`](crate::store::MAX_OUTLOOK) after the skipped.
    pub due: Vec<Destination>,
    /// The next later moment: a due moment, or a lease deadline.
    pub next: Option<UnixMillis>,
}

/// Who holds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// A worker, which calls the destination.
    Worker,
    /// A consumer, which pulled the task.
    Consumer,
    /// A receiver, which was called and acknowledges later ([`Transition::Keep`]).
    Receiver,
    /// A mover, which takes the task to another store. If the task comes back, it waits for `due`
    /// as before.
    Mover {
        /// The moment that the task waited for.
        due: UnixMillis,
    },
}

impl LeaseKind {
    /// The kind that a claim of this destination gives.
    pub fn of_claim(destination: &Destination) -> Self {
        if destination.is_pull() { Self::Consumer } else { Self::Worker }
    }

    /// What the task waits for again if the lease ends without anything having been done; `None`:
    /// that is not fixed.
    pub fn returns_to(self) -> Option<UnixMillis> {
        if let Self::Mover { due } = self { Some(due) } else { None }
    }
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

/// Where a leased task goes. The texts say why in a few words (at most
/// [`MAX_OUTCOME`](crate::store::MAX_OUTCOME) bytes are kept).
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
    /// Kept by another store, and so delivered here, with [`MOVED`](crate::store::MOVED). Not where
    /// a cancel is pending: that goes on waiting, and the answer is stale.
    Moved,
    /// Dead.
    Dead {
        /// Such as `410 Gone`.
        outcome: String,
    },
    /// Given back, due at the store's now, the attempt unspent: nothing was fired. The receipt is
    /// forgotten.
    Release,
    /// No end yet: whoever was called has the receipt, and will end the lease by it. Moves the
    /// deadline as an extension does.
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

/// The answer of `next_due` and of `next_pull`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The store's now.
    pub now: UnixMillis,
    /// Per asked lane, in order; `None` where nothing is coming, or where that cannot be said
    /// because the lane's server is away.
    pub lanes: Vec<Option<UnixMillis>>,
}

/// What one attempt at a task came to, for eyes. Written beside the road, and may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptNote {
    /// The task's lane.
    pub lane: Lane,
    /// The task.
    pub id: TaskId,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// When it began.
    pub started: UnixMillis,
    /// How long it took.
    pub took: Duration,
    /// Such as `503 Service Unavailable`; cut to [`MAX_OUTCOME`](crate::store::MAX_OUTCOME) bytes.
    pub outcome: String,
    /// The beginning of the answer's body; cut to [`MAX_ANSWER`](crate::store::MAX_ANSWER) bytes.
    pub answer: String,
}

/// What is held by hand, and what was released lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The destinations that are held.
    pub held: Vec<Destination>,
    /// Destinations that were released, and when each was last, for the other instances. Always
    /// empty for a store of one process.
    pub released: Vec<(Destination, UnixMillis)>,
}
