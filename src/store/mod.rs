//! ② Kept: what the road of a task asks of a store, and the two stores that answer.
//!
//! The verbs of [`Store`] and its parts are the arrows of the life cycle. Two backends implement
//! them, `embedded` (SQLite, one process) and `redis` (several instances share the work);
//! [`AnyStore`] picks one at start, and one conformance suite (`tests/store_conformance`) runs
//! whole against both, so that no caller can tell which it has.
//!
//! # The receipts of a task
//!
//! A task that was ever claimed has a *current* receipt (its holder's, or the last holder's whose
//! lease ran out and that nobody superseded) and *past* ones of the same revision, at most
//! [`MAX_RECEIPTS`] together.
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
//! A `Keep` is an extension that makes the lease a receiver's ([`LeaseKind::Receiver`]) and leaves
//! [`KEPT`] as the last outcome. It ends nothing: a pending cancel goes on waiting, and the row of
//! expiries goes on. Where a cancel is pending, `Retry`, `Dead`, `Release` and the sweep make the
//! task cancelled, and the settle answers done (a `Release` then leaves the attempts as they are).
//! *Swept*: the lease ran out and a claim put the task back on its schedule, due at its deadline
//! (at now, if the deadline is further away than [`FURTHEST_DEADLINE`]); each sweep in a row counts
//! one expiry, any other settle ends the row, and the sweep at which [`MAX_EXPIRIES`] is reached
//! makes the task dead. A sweep leaves [`LEASE_RAN_OUT`] as the last outcome. `cancel` and
//! `reschedule` count no expiry; but where a cancel waited for the end of a lease that has run out,
//! they find the task cancelled.
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
//! 2. Its **key** (`options.key`) names a task of the lane that waits (a lease that has run out
//!    counts as waiting; one with a pending cancel does not, it is cancelled by this look): that
//!    task gets the new moment, destination, content and options, a new revision and fresh
//!    attempts, and keeps its id, moment of creation and origin ([`Novelty::Replaced`]). Its
//!    `on_dead` id stays, if it has one.
//! 3. Its key names a task that is leased: a cancel is marked on that one (any end of its lease but
//!    success makes it cancelled), and the key goes to the new task. A task that has ended lets its
//!    key go to the new task.
//! 4. The lane holds [`NewTask::quota`] waiting and leased tasks: [`Error::OverQuota`], and 3 marks
//!    nothing.
//!
//! Within a batch, tasks are looked at in order. An add that is refused leaves no idempotency key
//! behind. A key belongs to the newest task that was added with it: `replay` of an older one does
//! not take it back, so that both wait then. `reschedule` keeps key and options.
//!
//! # Expiry, pauses, and calls for the dead
//!
//! - A task with `options.expires_after` is worth delivering until its stored due moment (the
//!   record's, which a retry does not move) plus that. From the next millisecond on it is never
//!   handed out: a claim of its lane that comes upon it, wanted or not, makes it expired
//!   ([`EXPIRED`], receipts as for `cancel`). One that is leased at that moment may still succeed;
//!   if it comes back, it expires. `next_due` and the outlook's next moment include the earliest
//!   such millisecond of what waits (pulled tasks as well), so that nothing has to be pulled for
//!   that. `reschedule`, `replay` and a push-back by key move that moment, for they move the stored
//!   due moment.
//! - A waiting task that is due, and whose due moment (a retry's, too) lies in one of the claim's
//!   [`Misfire`]s, becomes what that says if its destination is wanted, instead of being handed
//!   out. It takes no slot. One that dies so keeps its receipts, as at a sweep.
//! - A claim goes on in this order: it sweeps leases; it ends what has expired, the earliest first;
//!   then, destination by destination as they are wanted, it ends what lies in the misfires, the
//!   earliest of each first, and hands out. Where [`MAX_ENDED`] leaves some over, it hands out
//!   nothing behind those.
//! - A task with `options.on_dead` that dies (settled dead, by a sweep, unreadable options apart,
//!   or by a misfire) has in the same step a new task of its lane: id
//!   [`OnDead::task_id`](crate::model::task::OnDead), destination `sn`, due now, no options but the origin
//!   of the dead, and as its body the JSON object
//!   `{"sn", "url", "task_id", "topic", "attempts", "outcome", "content"}` (`task_id` that of the
//!   dead, exact; `content` its body as a string). If a task of that id is there already, nothing
//!   happens.
//!
//! # From one store to another
//!
//! Whoever moves tasks to another store is a consumer, who takes them before they are due:
//! [`Admin::lend`] here, [`Admin::adopt`] there, and `Moved` here.
//!
//! - A lent task is leased, but has not been fired: its attempts and its last outcome stay, and the
//!   kind of its lease says what it waited for ([`LeaseKind::Mover`]). If it comes back (a
//!   `Release`, or its lease runs out) it waits for that again, with the attempts, the outcome and
//!   the row of expiries as they were (a `Release` ends the row); its current receipt goes to the
//!   front of the past ones, so that nothing but a success counts by it. A `Keep` changes neither
//!   its kind nor its outcome. Where a cancel is pending it becomes cancelled, as any other, and is
//!   lent on all the same, so that the next mover
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
//! - It keeps its origin: the store that accepted it first, whose id its `webhook-id` begins with.
//!   Without one, this store is its origin.
//! - It is the same task if its origin, its moment of creation, its stored due moment and its
//!   content are the same: one that was changed by hand on either side is not.
//! - An id belongs to one task of the store. If another task of any topic has it, the adopted one
//!   is refused ([`Adopted::Taken`]). A lent one ([`Adoptee::lent`]) goes on at the other store. So
//!   it competes for its key all the same: an owner here that was set before is cancelled, or both
//!   would fire.
//!
//! # Deadlines
//!
//! The stores alone bound how long a verb takes; neither the API nor the workers set a timer around
//! one. Each answers a call that is made on behalf of a caller with [`Error::Unavailable`] rather
//! than late: the embedded store after about a second (`embedded/writes.rs`, and
//! `embedded/reader.rs` for reads that get nowhere), Redis after `store.redis.timeout` for each
//! request (`redis/transport/link.rs`) and for what waits to be sent with others (`redis/add/`,
//! `redis/transport/confirming.rs`). What was asked for may still be done. A worker's own claims, settles and
//! extensions wait for the disk as long as it takes: what was called must be settled.
//!
//! # Invariants
//!
//! - Time is the store's own: due moments, leases and `delay` count by its clock, never by a
//!   caller's.
//! - A lease is named by the [`Receipt`](crate::model::task::Receipt) of the claim that gave it, and has a
//!   [`LeaseKind`]. An extension keeps the kind, also of a lease that was swept. *Superseded* means
//!   that another claim took the task since; an expired lease that nobody took may still settle or
//!   extend.
//! - A **revision** is the set of receipts given out since the task was last (re)scheduled by hand.
//!   `reschedule` and `replay` forget those receipts; so a late success counts only for the
//!   revision that was claimed.
//! - A finished task keeps its final receipt: the same settle repeated answers success.
//! - Every verb treats a leased task whose lease has run out as scheduled.
//! - A verb whose answer was lost may be repeated.
//! - A record that cannot be read is the trouble of its task alone. A claim that comes upon it
//!   makes the task dead ([`UNREADABLE`]) and hands out the others; a settle answers
//!   [`Settled::Unknown`]; a verb by hand fails for it.
//!
//! What is absent on purpose: HTTP, retry policy, service names' endpoints. The caller decides what
//! a failure means and says so with a [`Transition`].

use std::time::Duration;

mod any;
mod check;
mod contract;
pub mod embedded;
mod error;
mod format;
pub mod redis;

pub use any::AnyStore;
pub use check::{Checked, Cursor, Finding, Flaw};
pub use contract::{
    Added, Admin, Adopted, Adoptee, AttemptNote, Cancelled, Claim, Claimed, Counts, Delivery,
    Durability, Forecast, Grant, Hint, Histories, History, Holder, Holds, Idempotency, Intake,
    LeaseKind, LeasedTask, ListQuery, Listed, Look, Looked, MOVED, Maintenance, Misfire, Misfired,
    Moment, NewContent, NewTask, NextDue, Novelty, Outlook, Registered, Rescheduled, Revision,
    Settle, Settled, Spread, Standing, Store, Summary, Task, TopicEntry, Topics, Transition,
    Waiting, Want, warning_of,
};
pub use error::{Error, Result};
pub use format::{FORMAT, Formats};

/// How long a [`Store::ping`] may take.
pub const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest lease; a longer one is cut to it.
pub const MAX_LEASE: Duration = Duration::from_secs(12 * 3600);

/// A deadline further away than this is the mark of a clock that was set back, and counts as run
/// out: nobody could wait for it. It is an hour more than the longest lease, so that a clock set
/// back by less, if only by a millisecond, takes not even that one from its holder.
pub const FURTHEST_DEADLINE: Duration = Duration::from_secs(13 * 3600);

/// How many leases in a row may run out before the task dies: the end of a crash loop. Attempts do
/// not count here, for an expiry alone never buries a task.
pub const MAX_EXPIRIES: u32 = 16;

/// The last outcome of a task whose lease ran out.
pub const LEASE_RAN_OUT: &str = "lease ran out";

/// The last outcome of a task whose receiver will end the lease itself.
pub const KEPT: &str = "202 Accepted, to be acknowledged";

/// The last outcome of a task that died because what is stored of it cannot be read. Nothing of it
/// is deleted.
pub const UNREADABLE: &str = "record cannot be read";

/// The most body bytes that one claim hands out, together with what the caller has in hand (a
/// single larger body still goes).
pub const MAX_CLAIM_BYTES: usize = 4 << 20;

/// The most expired leases that one claim sweeps.
pub const MAX_SWEEP: usize = 256;

/// The most due destinations that one [`Outlook`] names.
pub const MAX_OUTLOOK: usize = 1024;

/// The most receipts of one revision that are remembered; older holders are refused even a late
/// success.
pub const MAX_RECEIPTS: usize = 4;

/// The longest outcome text that is kept, in bytes.
pub const MAX_OUTCOME: usize = 200;

/// The outcome of a task that expired.
pub const EXPIRED: &str = "not delivered in time";

/// The outcome of a task that fell due while its topic was paused, and was not to be delivered
/// late.
pub const MISFIRED: &str = "fell due while the topic was paused";

/// The most pauses of a topic that are remembered; older ones' tasks are delivered late.
pub const MAX_MISFIRES: usize = 16;

/// The most tasks that one claim ends because they expired or fell due in a pause. While more are
/// left, the outlook's next moment is now.
pub const MAX_ENDED: usize = 512;

/// How long a release by hand is remembered: longer than any `Retry-After` hold that it could lift.
pub const RELEASES_KEPT: Duration = Duration::from_secs(25 * 3600);

/// The most notes of attempts that are kept of one task; the oldest go first.
pub const MAX_NOTES: usize = 16;

/// The most of an answer's body that a note keeps, in bytes.
pub const MAX_ANSWER: usize = 2048;

/// The most steps of a forecast.
pub const MAX_FORECAST: usize = 1000;
