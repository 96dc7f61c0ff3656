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
//! | `Moved` by current or past | as `Delivered`; stale where a cancel is pending | as `Delivered` | as `Delivered` | as `Delivered` | stale |
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
//! (at now, if the deadline is further away than [`FURTHEST_DEADLINE`]); each sweep in a row counts one expiry, any other
//! settle ends the row, and the sweep at which [`MAX_EXPIRIES`] is reached makes the task dead. A sweep leaves
//! [`LEASE_RAN_OUT`] as the last outcome. `cancel` and `reschedule` count no expiry; but where a cancel waited for the end of a
//! lease that has run out, they find the task cancelled.
//!
//! # Sameness
//!
//! An add is looked at in this order, in one atomic step with its storing:
//!
//! 1. Its **idempotency key** was used in the topic with the same `key`, or both times without one,
//!    within the window (at u, and now is
//!    before u + window): the same fingerprint answers that task's id, the due moment that the
//!    first add answered, and the state in which
//!    the task is now ([`Novelty::Duplicate`]), another one [`Error::KeyReused`]. The lane alone
//!    can say so: the `key` leads to it, or,
//!    without one, the idempotency key.
//! 2. Its **key** (`options.key`) names a task of the lane that waits (a lease that has run out counts as waiting; one with a pending cancel
//!    does not, it is cancelled by this look): that task gets the new moment, destination, content and options, a new revision and fresh
//!    attempts, and keeps its id, moment of creation and origin ([`Novelty::Replaced`]). Its `on_dead` id stays, if it has one.
//! 3. Its key names a task that is leased: a cancel is marked on that one (any end of its lease but success makes it cancelled), and the
//!    key goes to the new task. A task that has ended lets its key go to the new task.
//! 4. The lane holds [`NewTask::quota`] waiting and leased tasks: [`Error::OverQuota`], and 3 marks nothing.
//!
//! Within a batch, tasks are looked at in order. An add that is refused leaves no idempotency key behind. A key belongs to the newest task
//! that was added with it: `replay` of an older one does not take it back, so that both wait then. `reschedule` keeps key and options.
//!
//! # Expiry, pauses, and calls for the dead
//!
//! - A task with `options.expires_after` is worth delivering until its stored due moment (the record's, which a retry does not move) plus
//!   that. From the next millisecond on it is never handed out: a claim of its lane that comes upon it, wanted or not, makes it expired
//!   ([`EXPIRED`], receipts as for `cancel`). One that is leased at that moment may still succeed; if it comes back, it expires.
//!   `next_due` and the outlook's next moment include the earliest such millisecond of what waits (pulled tasks as well), so that nothing has to be pulled for that.
//!   `reschedule`, `replay` and a push-back by key move that moment, for they move the stored due moment.
//! - A waiting task that is due, and whose due moment (a retry's, too) lies in one of the claim's [`Misfire`]s, becomes what that says if
//!   its destination is wanted, instead of being handed out. It takes no slot. One that dies so keeps its receipts, as at a sweep.
//! - A claim goes on in this order: it sweeps leases; it ends what has expired, the earliest first; then, destination by destination as they are wanted, it ends
//!   what lies in the misfires, the earliest of each first, and hands out. Where [`MAX_ENDED`] leaves some over, it hands out nothing behind those.
//! - A task with `options.on_dead` that dies (settled dead, by a sweep, unreadable options apart, or by a misfire) has in the same step a new
//!   task of its lane: id [`OnDead::task_id`](crate::task::OnDead), destination `sn`, due now, no options but the origin of the dead, and as its body the JSON object
//!   `{"sn", "url", "task_id", "topic", "attempts", "outcome", "content"}` (`task_id` that of the dead, exact; `content` its body as a string). If a task of that id is
//!   there already, nothing happens.
//!
//! # From one store to another
//!
//! Whoever moves tasks to another store is a consumer, who takes them before they are due:
//! [`Store::lend`] here, [`Store::adopt`] there, and `Moved` here.
//!
//! - A lent task is leased, but has not been fired: its attempts stay, and its last outcome says what it waited for ([`Lent`]). If it comes back (a
//!   `Release`, or its lease runs out) it waits for that again, with the attempts, the outcome and the row of expiries as they were (a `Release` ends the row); its current receipt goes to
//!   the front of the past ones, so that nothing but a success counts by it. A `Keep` leaves its
//!   outcome. Where a cancel is pending it becomes cancelled, as any other, and is lent on all the
//!   same, so that the next mover
//!   hears of the cancel.
//! - An adopted task has the id, the moments, the attempts and the content that it had. No quota
//!   is looked at, nobody is called for one that is dead, and no id is drawn below its own,
//!   or that of its call, afterwards.
//! - A waiting task whose key it was elsewhere ([`Adoptee::key_set`]) competes for the key here. If
//!   the key's owner here was set at that moment or later,
//!   whatever became of the owner since, the adopted task is not kept ([`Adopted::Superseded`]). If
//!   the owner was set before, it is cancelled (pending, if
//!   it is leased), and the adopted task is kept and has the key. Without `key_set` it takes the
//!   key if no task that waits or is leased has it, or both wait.
//! - A task that was delivered, cancelled or has expired elsewhere ends in the same way here, if
//!   the same task waits here ([`Adopted::Ended`], its receipts
//!   are forgotten). If it is leased here, a cancel is marked ([`Adopted::Cancelling`]).
//! - It keeps its origin: the store that accepted it first, whose id its `webhook-id` begins with. Without one, this store is its origin.
//! - It is the same task if its origin, its moment of creation, its stored due moment and its content are the same: one that was changed by
//!   hand on either side is not.
//! - An id belongs to one task of the store. If another task of any topic has it, the adopted one is refused ([`Adopted::Taken`]).
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
use crate::task::{Destination, Lane, Receipt, State, StoreId, TaskId, Topic, TopicPolicy};

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
    Added, Adopted, Adoptee, AttemptNote, Cancelled, Claim, Claimed, Counts, Durability, Forecast, Grant, Hint,
    Histories, History, Holder, Holds, Idempotency, LENT, LeasedTask, Lent, ListQuery, Listed, Look, Looked, MOVED,
    Misfire, Misfired, Moment, NewContent, NewTask, NextDue, Novelty, Outlook, Registered, Rescheduled, Revision,
    Settle, Settled, Spread, Standing, Summary, Task, TopicEntry, Transition, Waiting, Want,
};

/// The longest lease; a longer one is cut to it.
pub const MAX_LEASE: Duration = Duration::from_secs(12 * 3600);

/// A deadline further away than this is the mark of a clock that was set back, and counts as run out: nobody could wait for it. It is an hour more
/// than the longest lease, so that a clock set back by less, if only by a millisecond, takes not even that one from its holder.
pub const FURTHEST_DEADLINE: Duration = Duration::from_secs(13 * 3600);

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

/// The most body bytes that one claim hands out, together with what the caller has in hand (a single larger body still goes).
pub const MAX_CLAIM_BYTES: usize = 4 << 20;

/// The most expired leases that one claim sweeps.
pub const MAX_SWEEP: usize = 256;

/// The most due destinations that one [`Outlook`] names.
pub const MAX_OUTLOOK: usize = 1024;

/// The most receipts of one revision that are remembered; older holders are refused even a late success.
pub const MAX_RECEIPTS: usize = 4;

/// The longest outcome text that is kept, in bytes.
pub const MAX_OUTCOME: usize = 200;

/// The outcome of a task that expired.
pub const EXPIRED: &str = "not delivered in time";

/// The outcome of a task that fell due while its topic was paused, and was not to be delivered late.
pub const MISFIRED: &str = "fell due while the topic was paused";

/// The most pauses of a topic that are remembered; older ones' tasks are delivered late.
pub const MAX_MISFIRES: usize = 16;

/// The most tasks that one claim ends because they expired or fell due in a pause. While more are left, the outlook's next moment is now.
pub const MAX_ENDED: usize = 512;

/// How long a release by hand is remembered: longer than any `Retry-After` hold that it could lift.
pub const RELEASES_KEPT: Duration = Duration::from_secs(25 * 3600);

/// The most notes of attempts that are kept of one task; the oldest go first.
pub const MAX_NOTES: usize = 16;

/// The most of an answer's body that a note keeps, in bytes.
pub const MAX_ANSWER: usize = 2048;

/// The most steps of a forecast.
pub const MAX_FORECAST: usize = 1000;

/// A kept task road. See the module's page for the invariants.
pub trait Store: Send + Sync + 'static {
    /// The store's own id, which the `webhook-id` of its tasks begins with. At most a second old, unless the server that has it is away:
    /// `delayd store new-id` may give the store another.
    fn id(&self) -> impl Future<Output = Result<StoreId>> + Send;

    /// What an accepted add survives.
    fn durability(&self) -> Durability;

    /// Stores new tasks, each at most once, and draws their ids. One answer per task, in order. A task whose
    /// answer is an error may or may not be stored ([`Error::Unavailable`]). One whose entry says another number of lanes than the
    /// registry is not stored ([`Error::StaleEntry`]).
    fn add(&self, tasks: Vec<NewTask>) -> impl Future<Output = Vec<Result<Added>>> + Send;

    /// Sweeps expired leases of the lane, then leases due tasks of the wanted destinations, earliest first.
    fn claim(&self, claim: Claim) -> impl Future<Output = Result<Claimed>> + Send;

    /// Ends leases. One answer per settle, in order: a lane out of reach is no other lane's trouble. A lease whose answer is an error may or
    /// may not have been ended.
    fn settle(&self, settles: Vec<Settle>) -> impl Future<Output = Vec<Result<Settled>>> + Send;

    /// As [`Store::settle`], on behalf of a caller: what is answered outlasts the loss of as many servers as an add does. A worker need not
    /// wait for that: a settle of its that is lost brings the task back, which then is called again.
    fn settle_confirmed(&self, settles: Vec<Settle>) -> impl Future<Output = Vec<Result<Settled>>> + Send {
        self.settle(settles)
    }

    /// As [`Store::extend`], on behalf of a caller: see [`Store::settle_confirmed`].
    fn extend_confirmed(
        &self,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> impl Future<Output = Result<Settled>> + Send {
        self.extend(lane, id, receipt, lease)
    }

    /// Which of the store's servers has the lane now: lanes of one number are out of reach together. Who sends each number's settles
    /// by themselves sees to it that one server's outage holds up its own lanes alone.
    fn server_of(&self, _lane: &Lane) -> u64 {
        0
    }

    /// The circuit breaker around the store; of several servers, the worst. Closed where there is none.
    fn breaker(&self) -> breaker::State {
        breaker::State::Closed
    }

    /// Waits for `call` on behalf of the edge, for which a store that has fallen silent may cost a second and no more: once it is known to
    /// be silent, the answer is [`Error::Unavailable`] at once. What was asked for may still be done. Where each request has a limit of its own
    /// already, as with Redis, this is the call itself.
    fn promptly<T: Send>(
        &self,
        call: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send {
        call
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

    /// The tasks of these ids without their bodies, in order; `None` where there is no such task in the lane.
    fn summaries(&self, lane: &Lane, ids: Vec<TaskId>) -> impl Future<Output = Result<Vec<Option<Summary>>>> + Send;

    /// Schedules dead tasks, attempts, revision and stored due moment anew, the dead ones in order as `spread` says. Answers how many of them were dead.
    fn replay(&self, lane: &Lane, ids: Vec<TaskId>, spread: Spread) -> impl Future<Output = Result<usize>> + Send;

    /// Forgets those of the tasks that ended in `state`, bodies, keys and notes and all. Answers how many.
    fn discard(&self, lane: &Lane, state: State, ids: Vec<TaskId>) -> impl Future<Output = Result<usize>> + Send;

    /// Forgets up to `limit` tasks of the lane that are not leased, in any state, with their keys. Answers how many; 0: none is left. A
    /// lane that is empty then forgets its idempotency keys as well.
    fn clear(&self, lane: &Lane, limit: usize) -> impl Future<Output = Result<usize>> + Send;

    /// How many waiting tasks fall due in each of up to [`MAX_FORECAST`] steps from now.
    fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> impl Future<Output = Result<Forecast>> + Send;

    /// Writes notes of attempts, of one lane or many; those of tasks that are gone are passed over. Best effort, off the road.
    fn note(&self, notes: Vec<AttemptNote>) -> impl Future<Output = Result<()>> + Send;

    /// The notes kept of a task, the newest last, at most [`MAX_NOTES`].
    fn notes(&self, lane: &Lane, id: TaskId) -> impl Future<Output = Result<Vec<AttemptNote>>> + Send;

    /// Leases waiting tasks to whoever takes them to another store, due or not, and without an attempt; those that are lent already, to him. Sweeps what it
    /// comes upon whose lease has run out. Answers for each whether it is lent by this receipt now.
    fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>>> + Send;

    /// Keeps tasks of another store. One answer per task, in order. A task whose answer is an error may or may not be kept; by an entry with
    /// another number of lanes than the registry's it is not ([`Error::StaleEntry`]).
    fn adopt(&self, tasks: Vec<Adoptee>) -> impl Future<Output = Vec<Result<Adopted>>> + Send;

    /// The store's now, and per lane the next moment at which a claim would have something to do: a due moment
    /// of a called destination, or the earliest lease deadline. An error only if nothing can be said of any lane.
    fn next_due(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

    /// As [`Store::next_due`], for consumers: a due moment of the tasks that are pulled, or the earliest lease deadline.
    fn next_pull(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<NextDue>> + Send;

    /// The store's now, and what each lane has to be forgotten. An error only if nothing can be said of any lane.
    fn histories(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<Histories>> + Send;

    /// Exact counts of one lane.
    fn stats(&self, lane: &Lane) -> impl Future<Output = Result<Counts>> + Send;

    /// Forgets up to `limit` tasks that ended in `state` before `before`, the earliest first, bodies, keys and notes and all; and as many idempotency keys whose
    /// window is over. Answers how many tasks.
    fn purge(
        &self,
        lane: &Lane,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Holds a destination by hand, for all instances and until it is released, or releases it. Those who work look once a second:
    /// the store itself hands its tasks out as before. A release is remembered for [`RELEASES_KEPT`] where other instances can ask for it,
    /// also if nothing was held by hand: it lifts what a `Retry-After` holds on each of them.
    fn set_hold(&self, destination: &Destination, is_held: bool) -> impl Future<Output = Result<()>> + Send;

    /// The destinations that are held by hand, and the releases that are remembered.
    fn holds(&self) -> impl Future<Output = Result<Holds>> + Send;

    /// How many tasks wait for each called destination, by name; one for which none waits may be missing.
    fn waiting(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<Vec<Waiting>>> + Send;

    /// Registers a topic unless it is there, and answers the entry that won.
    fn register(&self, entry: TopicEntry) -> impl Future<Output = Result<TopicEntry>> + Send;

    /// One topic, if it is registered: costs the same however many others there are.
    fn topic(&self, topic: &Topic) -> impl Future<Output = Result<Option<Registered>>> + Send;

    /// All registered topics.
    fn topics(&self) -> impl Future<Output = Result<Vec<Registered>>> + Send;

    /// What each instance looks for every second, in as few requests as the store can: the registry unless its revision is the one that was
    /// `seen`, what is held by hand, and the next moments of lanes, as [`Store::next_due`] and [`Store::next_pull`]. Each part may fail by itself.
    fn look(&self, look: Look) -> impl Future<Output = Looked> + Send {
        // A store that counts no revisions has its registry read each time.
        let Look { seen: _, workers, consumers } = look;
        async move {
            let next = if workers.is_empty() { Ok(None) } else { self.next_due(workers).await.map(Some) };
            let pulls = if consumers.is_empty() { Ok(None) } else { self.next_pull(consumers).await.map(Some) };
            let holds = self.holds().await;
            // Last: a pause that has been read must not wait for the others.
            let registry = self.topics().await.map(|topics| Some((Revision::default(), topics)));
            Looked { registry, holds, next, pulls }
        }
    }

    /// Sets a topic's policy. Answers whether there is such a topic.
    fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> impl Future<Output = Result<bool>> + Send;

    /// Pauses a topic from the store's now on, or leaves it paused. Answers since when; `None`: no such topic. Those who claim see it in
    /// the registry: the store itself hands its tasks out as before.
    fn pause(&self, topic: &Topic) -> impl Future<Output = Result<Option<UnixMillis>>> + Send;

    /// Ends a topic's pause at the store's now, and remembers it as a [`Misfire`] if what fell due in it is not to be delivered late.
    /// Answers whether it was paused; `None`: no such topic.
    fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> impl Future<Output = Result<Option<bool>>> + Send;

    /// Forgets a pause of the topic that is over; its other pauses stay. Nothing happens where there is none like it.
    fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> impl Future<Output = Result<()>> + Send;

    /// Takes a topic out of the registry, with its policy, its pauses and its lanes' idempotency keys, if none of its lanes holds any task.
    /// Answers whether there is no such topic now. What is added at the same moment registers it again.
    fn unregister(&self, entry: &TopicEntry) -> impl Future<Output = Result<bool>> + Send;

    /// Finds lanes that hold tasks though nobody registered them (a failover may lose the entry), registers
    /// their topics, and answers them. Slow; runs in the background.
    fn recover_topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;

    /// One step of a look at everything that is kept, for what no verb leaves behind; repairs it if told to. Begins at
    /// [`Cursor::start`] and goes on with [`Checked::next`]. Safe beside live traffic; bounded; a look writes nothing.
    fn check(&self, from: Cursor, repair: bool) -> impl Future<Output = Result<Checked>> + Send;

    /// Whether the store answers, and its now.
    fn ping(&self) -> impl Future<Output = Result<UnixMillis>> + Send;

    /// Listens for what is put on the lanes' schedules, by this process and by others that hint at it: what is added or adopted, put back by a settle or
    /// by hand, or is a call for the dead. A lane is named with the earliest due moment of a batch, apart for those called and those pulled; no word
    /// need be lost on a called task behind the earliest of its destination, nor on what a claim sweeps. Only saves time; a hint may be lost.
    fn hints(&self) -> broadcast::Receiver<Hint>;

    /// Ends the store's own threads and connections after everything accepted is on its way to disk.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
