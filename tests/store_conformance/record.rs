//! One task in the model: where it is, what it remembers, and what each verb makes of it.
//!
//! ```text
//!        claim            settle Delivered | Dead; or a cancel was pending
//! Waiting ──────▶ Leased ──────▶ Ended
//!   ▲ ▲              │             │ ▲
//!   │ └──────────────┘             │ └── cancel, of a waiting task
//!   │  settle Retry | Release,     │
//!   │  sweep                       │
//!   └──────────────────────────────┘
//!      replay, of a dead task
//! ```
//!
//! Not drawn: a claim ends a waiting task that has expired, or that fell due in a pause.
//!
//! [`Record::settle`], [`Record::sweep`] and [`Record::cancel`] are the tables of [`delayd::store`]
//! as code: to check either, read them side by side.

use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{ContentDigest, Destination, Lane, Options, Receipt, State, TaskId};
use delayd::store::{
    Adopted, AdoptedStanding, Adoptee, Cancelled, FURTHEST_DEADLINE, KEPT, LEASE_RAN_OUT,
    LeaseKind, LeasedTask, MAX_EXPIRIES, MAX_LEASE, MAX_OUTCOME, MAX_RECEIPTS, MOVED, NewContent,
    Rescheduled, Settled, Summary, Task, Transition,
};

/// The part of a task that an add sets.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) destination: Destination,
    pub(crate) options: Options,
    pub(crate) content: String,
}

impl Body {
    /// Whether the contents are the same; either may have been removed.
    fn is_same_content(&self, options: &Options, content: &str) -> bool {
        if self.options.removed.is_none() && options.removed.is_none() {
            return self.content == content;
        }
        let digest = |of: &Options, text: &str| of.removed.unwrap_or(ContentDigest::of(text));
        digest(&self.options, &self.content) == digest(options, content)
    }
}

/// One task.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) lane: Lane,
    pub(crate) body: Body,
    /// The due moment that it was stored with or moved to by an admin verb.
    pub(crate) due: UnixMillis,
    created: UnixMillis,
    place: Place,
    attempts: u32,
    /// How many leases in a row were swept.
    expiries: u32,
    /// Who holds it, or held it until its lease was swept.
    pub(crate) kind: Option<LeaseKind>,
    /// A cancel is pending: it is cancelled when its lease ends, unless it succeeds.
    cancelling: bool,
    receipts: Receipts,
    outcome: String,
}

/// The place of a task in its life cycle.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Waiting { due: UnixMillis },
    Leased { until: UnixMillis },
    Ended { state: State, at: UnixMillis },
}

/// The receipts that a task remembers, all of one revision.
#[derive(Clone, Debug, Default, PartialEq)]
struct Receipts {
    current: Option<Receipt>,
    /// Newest first.
    past: Vec<Receipt>,
}

impl Receipts {
    fn is_current(&self, receipt: &Receipt) -> bool {
        self.current.as_ref() == Some(receipt)
    }

    fn knows(&self, receipt: &Receipt) -> bool {
        self.is_current(receipt) || self.past.contains(receipt)
    }

    /// Moves the current receipt to the front of the past ones and keeps the newest `most` of
    /// those.
    fn retire(&mut self, most: usize) {
        self.past.splice(0..0, self.current.take());
        self.past.truncate(most);
    }
}

/// Whether a lease with this deadline still holds. A deadline too far away was given before the
/// clock was set back.
fn lasts(until: UnixMillis, now: UnixMillis) -> bool {
    now < until && until <= now + FURTHEST_DEADLINE
}

/// The moment at which a task becomes due again whose lease had this deadline and has expired.
fn due_again(until: UnixMillis, now: UnixMillis) -> UnixMillis {
    until.min(now)
}

impl Record {
    pub(crate) fn new(lane: Lane, body: Body, due: UnixMillis, now: UnixMillis) -> Self {
        Self {
            lane,
            body,
            due,
            created: now,
            place: Place::Waiting { due },
            attempts: 0,
            expiries: 0,
            kind: None,
            cancelling: false,
            receipts: Receipts::default(),
            outcome: String::new(),
        }
    }

    /// A task from another store, as it was there.
    pub(crate) fn adopted(task: Adoptee) -> Self {
        let lane = task.topic.lane_of(task.id);
        let body =
            Body { destination: task.destination, options: task.options, content: task.content };
        let place = match task.standing {
            AdoptedStanding::Waiting { due } => Place::Waiting { due },
            AdoptedStanding::Ended { state, finished } => Place::Ended { state, at: finished },
        };
        let (attempts, outcome) = (task.attempts, cut(&task.outcome));
        Self { place, attempts, outcome, ..Self::new(lane, body, task.due, task.created) }
    }

    pub(crate) fn is_same(&self, task: &Adoptee) -> bool {
        let same_origin = self.body.options.origin == task.options.origin;
        same_origin
            && self.created == task.created
            && self.due == task.due
            && self.body.is_same_content(&task.options, &task.content)
    }

    /// Dead tasks keep theirs.
    pub(crate) fn remove_content(&mut self) {
        let has_ended = matches!(self.place, Place::Ended { state, .. } if state != State::Dead);
        if has_ended && self.body.options.removed.is_none() {
            self.body.options.removed = Some(ContentDigest::of(&self.body.content));
            self.body.content.clear();
        }
    }

    /// The state that callers see: an expired lease counts as scheduled.
    pub(crate) fn state(&self, now: UnixMillis) -> State {
        match self.place {
            Place::Leased { until } if lasts(until, now) => State::Leased,
            Place::Waiting { .. } | Place::Leased { .. } => State::Scheduled,
            Place::Ended { state, .. } => state,
        }
    }

    pub(crate) fn has_outcome(&self, outcome: Option<&str>) -> bool {
        outcome.is_none_or(|outcome| self.outcome == outcome)
    }

    pub(crate) fn ran_out(&self, now: UnixMillis) -> bool {
        matches!(self.place, Place::Leased { until } if !lasts(until, now))
    }

    /// The entry in the time order of the task's structure. An expired lease stays among the leased
    /// until a sweep.
    pub(crate) fn listed(&self) -> (State, UnixMillis) {
        match self.place {
            Place::Waiting { due } => (State::Scheduled, due),
            Place::Leased { until } => (State::Leased, until),
            Place::Ended { state, at } => (state, at),
        }
    }

    /// Whether it has not ended, no claim counted an attempt, and no cancel is pending.
    pub(crate) fn is_never_handed_out(&self) -> bool {
        let has_ended = matches!(self.place, Place::Ended { .. });
        self.attempts == 0 && !has_ended && !self.cancelling
    }

    pub(crate) fn was_attempted(&self) -> bool {
        self.attempts > 0
    }

    /// Ends a task that was never handed out; one that is lent gets a pending cancel.
    pub(crate) fn withdraw(&mut self, outcome: &str, now: UnixMillis) {
        if self.state(now) == State::Leased {
            self.cancelling = true;
            return;
        }
        self.cancel(now);
        self.outcome = outcome.into();
    }

    /// The moment that it waits for, unless it is leased or has ended.
    pub(crate) fn waits_for(&self) -> Option<UnixMillis> {
        if let Place::Waiting { due } = self.place { Some(due) } else { None }
    }

    /// The moment from which it has expired, if it waits.
    pub(crate) fn expires(&self) -> Option<UnixMillis> {
        let after = self.body.options.expires_after?;
        self.waits_for()?;
        Some(self.due + after.0 + Duration::from_millis(1))
    }

    /// The moment at which a claim has to end its lease, if it has one: its deadline, or now if the
    /// deadline is too far away.
    pub(crate) fn to_be_swept(&self, now: UnixMillis) -> Option<UnixMillis> {
        match self.place {
            Place::Leased { until } if until > now + FURTHEST_DEADLINE => Some(now),
            Place::Leased { until } => Some(until),
            _ => None,
        }
    }

    /// The receipts that it remembers, the current one first.
    pub(crate) fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.current.iter().chain(&self.receipts.past)
    }

    pub(crate) fn lease(&mut self, receipt: &Receipt, until: UnixMillis) {
        self.place = Place::Leased { until };
        self.kind = Some(LeaseKind::of_claim(&self.body.destination));
        self.attempts += 1;
        self.receipts.retire(MAX_RECEIPTS - 1);
        self.receipts.current = Some(receipt.clone());
    }

    pub(crate) fn is_lent(&self, now: UnixMillis) -> bool {
        self.state(now) == State::Leased && self.returns_to().is_some()
    }

    /// Leases the task to a mover. Returns whether the mover holds it.
    pub(crate) fn lend(&mut self, receipt: &Receipt, until: UnixMillis, now: UnixMillis) -> bool {
        if self.ran_out(now) {
            self.sweep(now);
        }
        match self.place {
            Place::Waiting { due } => self.kind = Some(LeaseKind::Mover { due }),
            Place::Leased { .. } if self.is_lent(now) => {}
            _ => return false,
        }
        if !self.receipts.is_current(receipt) {
            self.receipts.retire(MAX_RECEIPTS - 1);
            self.receipts.current = Some(receipt.clone());
        }
        self.place = Place::Leased { until };
        true
    }

    fn returns_to(&self) -> Option<UnixMillis> {
        self.kind.and_then(LeaseKind::returns_to)
    }

    /// Returns a task that a mover holds to what it waited for, unless a cancel is pending. Returns
    /// whether it did.
    fn give_back(&mut self) -> bool {
        let Some(due) = self.returns_to().filter(|_| !self.cancelling) else { return false };
        (self.place, self.kind) = (Place::Waiting { due }, None);
        self.receipts.retire(MAX_RECEIPTS);
        true
    }

    /// Ends an expired lease. Its receipt stays current, since no other has replaced it.
    pub(crate) fn sweep(&mut self, now: UnixMillis) {
        let Place::Leased { until } = self.place else { return };
        if self.give_back() {
            return;
        }
        self.expiries += 1;
        self.outcome = LEASE_RAN_OUT.into();
        if self.cancelling {
            self.end(State::Cancelled, now);
        } else if self.expiries >= MAX_EXPIRIES {
            self.end(State::Dead, now);
        } else {
            self.place = Place::Waiting { due: due_again(until, now) };
        }
    }

    /// Past receipts no longer matter, except for a dead task, which a late success still ends.
    fn end(&mut self, state: State, now: UnixMillis) {
        self.place = Place::Ended { state, at: now };
        if state != State::Dead {
            self.receipts.past.clear();
        }
    }

    /// Ends it as expired.
    pub(crate) fn expire(&mut self, outcome: &str, now: UnixMillis) {
        self.receipts = Receipts::default();
        self.outcome = outcome.into();
        self.end(State::Expired, now);
    }

    /// Ends it as dead, since it is not to be delivered late. Its receipts stay.
    pub(crate) fn die(&mut self, outcome: &str, now: UnixMillis) {
        self.outcome = outcome.into();
        self.end(State::Dead, now);
    }

    pub(crate) fn settle(&mut self, by: &Receipt, to: &Transition, now: UnixMillis) -> Settled {
        let state = self.state(now);
        let is_current = self.receipts.is_current(by);
        if *to == Transition::Moved {
            let has_ended = matches!(self.place, Place::Ended { .. });
            return match self.cancelling && !has_ended {
                true => Settled::Stale { state },
                false => self.settle(by, &Transition::Delivered { outcome: MOVED.into() }, now),
            };
        }
        match (to, state) {
            (Transition::Delivered { outcome }, State::Scheduled | State::Leased | State::Dead)
                if self.receipts.knows(by) =>
            {
                self.outcome = cut(outcome);
                self.receipts.current = Some(by.clone());
                self.end(State::Delivered, now);
                Settled::Done
            }
            (
                Transition::Retry { .. } | Transition::Dead { .. } | Transition::Release,
                State::Scheduled | State::Leased,
            ) if is_current => {
                self.fail(to, now);
                match self.state(now) {
                    State::Cancelled => Settled::Cancelled,
                    _ => Settled::Done,
                }
            }
            (Transition::Keep { lease }, State::Scheduled | State::Leased) if is_current => {
                self.place = Place::Leased { until: now + (*lease).min(MAX_LEASE) };
                if self.returns_to().is_none() {
                    (self.kind, self.outcome) = (Some(LeaseKind::Receiver), KEPT.into());
                }
                Settled::Done
            }
            // Repeats of a settle whose first answer was lost.
            (Transition::Delivered { .. }, State::Delivered)
            | (Transition::Dead { .. }, State::Dead)
            | (
                Transition::Retry { .. } | Transition::Dead { .. } | Transition::Release,
                State::Cancelled | State::Expired,
            ) if is_current => Settled::Done,
            (Transition::Retry { .. }, State::Scheduled)
                if self.receipts.current.is_none() && self.receipts.past.first() == Some(by) =>
            {
                Settled::Done
            }
            _ => Settled::Stale { state },
        }
    }

    /// Ends the holder's lease without success.
    fn fail(&mut self, to: &Transition, now: UnixMillis) {
        self.expiries = 0;
        if matches!(to, Transition::Release) && self.give_back() {
            return;
        }
        if let Transition::Retry { outcome, .. } | Transition::Dead { outcome } = to {
            self.outcome = cut(outcome);
        }
        self.kind = None;
        match to {
            _ if self.cancelling => self.end(State::Cancelled, now),
            Transition::Retry { due, .. } => {
                self.receipts.retire(MAX_RECEIPTS);
                self.place = Place::Waiting { due: due.due(now) };
            }
            Transition::Release => {
                self.receipts.current = None;
                self.attempts -= 1;
                self.place = Place::Waiting { due: now };
            }
            Transition::Dead { .. }
            | Transition::Delivered { .. }
            | Transition::Moved
            | Transition::Keep { .. } => {
                self.end(State::Dead, now);
            }
        }
    }

    pub(crate) fn extend(&mut self, by: &Receipt, until: UnixMillis, now: UnixMillis) -> Settled {
        let is_live = !matches!(self.place, Place::Ended { .. });
        if !is_live || !self.receipts.is_current(by) {
            return Settled::Stale { state: self.state(now) };
        }
        self.place = Place::Leased { until };
        Settled::Done
    }

    /// Marks a cancel on a leased task. Returns whether none was pending.
    pub(crate) fn cancel_lease(&mut self) -> bool {
        let is_leased = matches!(self.place, Place::Leased { .. });
        let is_news = is_leased && !self.cancelling;
        self.cancelling |= is_leased;
        is_news
    }

    pub(crate) fn cancel(&mut self, now: UnixMillis) -> Cancelled {
        self.fulfil_pending_cancel(now);
        match self.state(now) {
            State::Leased => {
                self.cancelling = true;
                Cancelled::Pending
            }
            State::Scheduled | State::Dead => {
                self.receipts = Receipts::default();
                self.end(State::Cancelled, now);
                Cancelled::Done
            }
            State::Cancelled => Cancelled::Done,
            state @ (State::Delivered | State::Expired) => Cancelled::Refused { state },
        }
    }

    pub(crate) fn reschedule(
        &mut self,
        due: UnixMillis,
        content: Option<NewContent>,
        now: UnixMillis,
    ) -> Rescheduled {
        self.fulfil_pending_cancel(now);
        match self.state(now) {
            State::Scheduled => {
                if content.as_ref().is_some_and(|new| {
                    new.keeps_mode && new.destination.is_pull() != self.body.destination.is_pull()
                }) {
                    return Rescheduled::OtherMode;
                }
                self.begin_revision(due);
                if let Some(new) = content {
                    (self.body.destination, self.body.content) = (new.destination, new.content);
                }
                Rescheduled::Done { due }
            }
            state => Rescheduled::Refused { state },
        }
    }

    /// Prepares the task for another add with its key. Returns the state in which the add finds it.
    pub(crate) fn met(&mut self, now: UnixMillis) -> State {
        self.fulfil_pending_cancel(now);
        self.state(now)
    }

    /// Ends it as it has ended in another store.
    pub(crate) fn take_end(&mut self, end: State, outcome: &str, now: UnixMillis) -> Adopted {
        let was_cancelled = self.cancelling && self.ran_out(now);
        match self.met(now) {
            State::Leased => {
                self.cancelling = true;
                Adopted::Cancelling
            }
            State::Scheduled if !was_cancelled => {
                self.receipts = Receipts::default();
                self.outcome = cut(outcome);
                self.end(end, now);
                Adopted::Ended
            }
            _ => Adopted::Known,
        }
    }

    fn is_cancelling(&self) -> bool {
        self.cancelling && matches!(self.place, Place::Leased { .. })
    }

    /// Gives a waiting task new content under its old id.
    pub(crate) fn replace(&mut self, mut body: Body, due: UnixMillis) {
        let call = self.body.options.on_dead.as_ref().and_then(|on_dead| on_dead.task_id);
        if let (Some(on_dead), Some(_)) = (&mut body.options.on_dead, call) {
            on_dead.task_id = call;
        }
        body.options.origin = self.body.options.origin;
        self.begin_revision(due);
        self.body = body;
    }

    /// For an admin verb, an expired lease counts as scheduled. A pending cancel is fulfilled at
    /// that moment.
    fn fulfil_pending_cancel(&mut self, now: UnixMillis) {
        if self.cancelling && self.ran_out(now) {
            self.sweep(now);
        }
    }

    pub(crate) fn begin_revision(&mut self, due: UnixMillis) {
        self.due = due;
        self.place = Place::Waiting { due };
        (self.attempts, self.expiries, self.cancelling, self.kind) = (0, 0, false, None);
        self.receipts = Receipts::default();
        self.outcome = String::new();
    }

    pub(crate) fn as_leased_task(&self, id: TaskId) -> LeasedTask {
        LeasedTask {
            id,
            destination: self.body.destination.clone(),
            attempt: self.attempts,
            due: self.due,
            created: self.created,
            held_until: None,
            options: self.body.options.clone(),
            content: self.body.content.clone(),
        }
    }

    /// The task as `get` returns it, without the moment at which its key was set.
    pub(crate) fn as_task(&self, id: TaskId, now: UnixMillis) -> Task {
        let (due, finished) = match self.place {
            Place::Waiting { due } => (due, None),
            Place::Leased { until } if !lasts(until, now) => (due_again(until, now), None),
            Place::Leased { .. } => (self.due, None),
            Place::Ended { at, .. } => (self.due, Some(at)),
        };
        Task {
            id,
            state: self.state(now),
            lease: self.kind.filter(|_| self.state(now) == State::Leased),
            destination: self.body.destination.clone(),
            due,
            created: self.created,
            finished,
            attempts: self.attempts,
            last_outcome: self.outcome.clone(),
            cancelling: self.is_cancelling(),
            key_set: None,
            options: self.body.options.clone(),
            content: self.body.content.clone(),
        }
    }

    /// The same as [`Record::as_task`], without the body.
    pub(crate) fn as_summary(&self, id: TaskId, now: UnixMillis) -> Summary {
        let Task {
            id,
            state,
            lease,
            destination,
            due,
            created,
            finished,
            attempts,
            last_outcome,
            options,
            ..
        } = self.as_task(id, now);
        Summary {
            id,
            state,
            lease,
            destination,
            due,
            created,
            finished,
            attempts,
            last_outcome,
            key: options.key,
        }
    }
}

/// The part of an outcome's text that is stored.
fn cut(outcome: &str) -> String {
    beginning(outcome, MAX_OUTCOME)
}

/// At most `bytes` bytes of a text, in whole characters.
pub(crate) fn beginning(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}
