//! The expected state of one task, from the requests and their answers.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, Receipt, State, TaskId};
use delayd::store::{
    Cancelled, FURTHEST_DEADLINE, MAX_EXPIRIES, Misfire, Misfired, Moment, Rescheduled, Settled,
    Transition,
};

use crate::checker::Violation;
use crate::history::{Asked, Call, LifeId};
use crate::pauses::covers;

/// A task. Each function returns the promise that was broken, if any.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) lane: Lane,
    pub(crate) content: String,
    pub(crate) is_accepted: bool,
    /// Raised by each reschedule and replay.
    pub(crate) revision: u32,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    pub(crate) expiries: u32,
    /// A cancel was answered as done, or as pending until the end of the lease.
    pub(crate) is_cancelled: bool,
    pub(crate) lease: Option<Lease>,
    pub(crate) grants: HashMap<Receipt, Grant>,
    /// It fell due in a pause, and the end of the pause ended it.
    pub(crate) has_misfired: bool,
    /// It has died, and its dead-letter callback was not made yet.
    pub(crate) owes_call: bool,
    /// The destination and the id of its dead-letter callback.
    on_dead: Option<(Destination, TaskId)>,
    /// The dead-letter callbacks that were made for it.
    made: HashSet<TaskId>,
    /// The moment that it waits for.
    pub(crate) due: Option<UnixMillis>,
    /// The moment that it was added or moved for, and how long after it the task expires.
    wished: UnixMillis,
    expires_after: Option<Duration>,
    /// The receipt that allows a settle.
    current: Option<Receipt>,
    /// Settles that were accepted and may be repeated.
    taken: HashSet<(Receipt, &'static str)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) receipt: Receipt,
    pub(crate) until: UnixMillis,
}

impl Lease {
    pub(crate) fn holds(&self, now: UnixMillis) -> bool {
        // A deadline further away than any lease lasts was given before the clock was set back.
        now < self.until && self.until <= now + FURTHEST_DEADLINE
    }
}

/// How a task was handed out.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) to: LifeId,
    pub(crate) revision: u32,
    pub(crate) content: String,
    pub(crate) due: Option<UnixMillis>,
    /// The index of the event.
    pub(crate) event: usize,
}

fn moment(moment: Moment, now: UnixMillis) -> UnixMillis {
    match moment {
        Moment::At(at) => at.max(now),
        Moment::After(wait) => now + wait,
    }
}

fn kind(transition: &Transition) -> &'static str {
    match transition {
        Transition::Delivered { .. } => "delivered",
        Transition::Retry { .. } => "retry",
        Transition::Moved => "moved",
        Transition::Dead { .. } => "dead",
        Transition::Release => "release",
        Transition::Keep { .. } => "keep",
    }
}

/// The service that a content names.
pub(crate) fn destination_of(content: &str) -> Destination {
    let content: serde_json::Value = serde_json::from_str(content).expect("contents are JSON");
    content["sn"].as_str().expect("it names a service").parse().expect("the name is valid")
}

impl Account {
    pub(crate) fn stored(lane: Lane, asked: &Asked, call: Option<TaskId>, now: UnixMillis) -> Self {
        let due = moment(asked.moment, now);
        Self {
            lane,
            content: asked.content.clone(),
            is_accepted: false,
            revision: 0,
            state: State::Scheduled,
            attempts: 0,
            expiries: 0,
            is_cancelled: false,
            lease: None,
            grants: HashMap::new(),
            has_misfired: false,
            owes_call: false,
            on_dead: asked.on_dead.clone().zip(call),
            made: HashSet::new(),
            due: Some(due),
            wished: due,
            expires_after: asked.expires_after,
            current: None,
            taken: HashSet::new(),
        }
    }

    /// A dead-letter callback.
    pub(crate) fn of_call(lane: Lane, call: &Call, now: UnixMillis) -> Self {
        let asked = Asked {
            moment: Moment::After(Duration::ZERO),
            content: call.content.clone(),
            key: None,
            idempotency_key: None,
            expires_after: None,
            on_dead: None,
        };
        Self::stored(lane, &asked, None, now)
    }

    /// Whether its content names this service.
    pub(crate) fn is_for(&self, destination: &Destination) -> bool {
        destination_of(&self.content) == *destination
    }

    fn holds(&self, now: UnixMillis) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.holds(now))
    }

    /// Ends an expired lease.
    pub(crate) fn sweep(&mut self, now: UnixMillis) {
        let Some(lease) = self.lease.take_if(|lease| !lease.holds(now)) else { return };
        self.expiries += 1;
        if self.is_cancelled {
            self.state = State::Cancelled;
        } else if self.expiries >= MAX_EXPIRIES {
            self.die();
        } else {
            self.due = Some(lease.until.min(now));
        }
    }

    /// A claim of its lane finds it expired.
    pub(crate) fn expire(&mut self, now: UnixMillis) {
        let is_worthless = self.expires_after.is_some_and(|after| self.wished + after < now);
        if is_worthless && self.lease.is_none() && !self.state.is_final() {
            (self.state, self.due, self.current) = (State::Expired, None, None);
        }
    }

    /// A claim for its service finds that it fell due in a pause.
    pub(crate) fn misfire(&mut self, misfires: &[Misfire], now: UnixMillis) {
        let Some(due) = self.due.filter(|due| *due <= now && !self.state.is_final()) else {
            return;
        };
        let Some(misfire) = misfires.iter().find(|misfire| covers(misfire, due)) else { return };
        self.has_misfired = true;
        match misfire.becomes {
            Misfired::Expired => {
                (self.state, self.due, self.current) = (State::Expired, None, None)
            }
            Misfired::Dead => self.die(),
        }
    }

    /// A dead-letter callback is owed once, however often the task dies.
    fn die(&mut self) {
        (self.state, self.due) = (State::Dead, None);
        self.owes_call = self.on_dead.as_ref().is_some_and(|(_, call)| !self.made.contains(call));
    }

    /// Its dead-letter callback was made.
    pub(crate) fn called_for(&mut self, id: TaskId, call: &Call) -> Option<Violation> {
        let is_owed = std::mem::take(&mut self.owes_call);
        let (sn, made) = self.on_dead.as_ref()?;
        self.made.insert(call.id);
        let body: serde_json::Value =
            serde_json::from_str(&call.content).expect("contents are JSON");
        let told = (&body["sn"], &body["task_id"], &body["attempts"], &body["content"]);
        let is_told_right = told
            == (
                &sn.as_str().into(),
                &serde_json::json!(id),
                &self.attempts.into(),
                &self.content.as_str().into(),
            );
        if !is_owed || call.id != *made {
            Some(Violation::CallWithoutDeath)
        } else {
            (!is_told_right).then_some(Violation::WrongContent)
        }
    }

    pub(crate) fn hand_out(
        &mut self,
        to: LifeId,
        receipt: &Receipt,
        span: Duration,
        now: UnixMillis,
        event: usize,
    ) -> Option<Violation> {
        let violation = if self.holds(now) {
            Some(Violation::TwoHolders)
        } else if self.is_cancelled {
            Some(Violation::CancelledFired)
        } else if self.has_misfired {
            Some(Violation::MisfireFired)
        } else if self.state == State::Expired {
            Some(Violation::ExpiredFired)
        } else if self.state.is_final() {
            Some(Violation::FiredAfterEnd)
        } else if self.due.is_none_or(|due| now < due) {
            Some(Violation::Early)
        } else {
            None
        };
        let grant = Grant {
            to,
            revision: self.revision,
            content: self.content.clone(),
            due: self.due,
            event,
        };
        self.grants.insert(receipt.clone(), grant);
        self.lease = Some(Lease { receipt: receipt.clone(), until: now + span });
        self.current = Some(receipt.clone());
        self.due = None;
        self.attempts += 1;
        violation
    }

    pub(crate) fn extended(
        &mut self,
        receipt: &Receipt,
        span: Duration,
        answer: Settled,
        now: UnixMillis,
    ) -> Option<Violation> {
        if !answer.is_done() {
            return None;
        }
        if self.current.as_ref() != Some(receipt) {
            return Some(Violation::LateHolderMoved);
        }
        self.lease = Some(Lease { receipt: receipt.clone(), until: now + span });
        self.due = None;
        None
    }

    pub(crate) fn settled(
        &mut self,
        receipt: &Receipt,
        transition: &Transition,
        answer: Settled,
        now: UnixMillis,
    ) -> Option<Violation> {
        if !answer.is_done() {
            return None;
        }
        let is_repeat = !self.taken.insert((receipt.clone(), kind(transition)));
        let is_current = self.current.as_ref() == Some(receipt);
        if let Transition::Delivered { .. } = transition {
            let is_of_this_revision =
                self.grants.get(receipt).is_some_and(|grant| grant.revision == self.revision);
            (self.lease, self.due, self.state) = (None, None, State::Delivered);
            self.current = Some(receipt.clone());
            return (!is_of_this_revision).then_some(Violation::OldRevisionEnded);
        }
        if !is_current {
            // It waits, since a later holder gave it back. The store cannot distinguish that from a
            // repeated retry: it answers done, and nothing changes.
            let is_of_this_revision =
                self.grants.get(receipt).is_some_and(|grant| grant.revision == self.revision);
            let waits = self.current.is_none() && !self.state.is_final();
            let is_unmoved =
                matches!(transition, Transition::Retry { .. }) && waits && is_of_this_revision;
            return (!is_repeat && !is_unmoved).then_some(Violation::LateHolderMoved);
        }
        if self.state.is_final() {
            return None;
        }
        self.lease = None;
        self.expiries = 0;
        match transition {
            _ if self.is_cancelled => (self.state, self.due) = (State::Cancelled, None),
            Transition::Retry { due, .. } => (self.due, self.current) = (Some(due.due(now)), None),
            Transition::Release => {
                (self.due, self.current) = (Some(now), None);
                self.attempts -= 1;
            }
            Transition::Keep { .. } | Transition::Moved => {
                unreachable!("the simulated receiver says at once how it ended")
            }
            Transition::Dead { .. } | Transition::Delivered { .. } => self.die(),
        }
        None
    }

    pub(crate) fn cancelled(&mut self, answer: Cancelled, now: UnixMillis) -> Option<Violation> {
        self.fulfil_pending_cancel(now);
        match answer {
            Cancelled::Pending => self.is_cancelled = true,
            // It was cancelled already. Its last holder may still be told that its settle is done.
            Cancelled::Done if self.state == State::Cancelled => {}
            Cancelled::Done => {
                let fires_all_the_same = self.holds(now);
                self.is_cancelled = true;
                (self.state, self.due, self.lease, self.current) =
                    (State::Cancelled, None, None, None);
                return fires_all_the_same.then_some(Violation::CancelledFired);
            }
            Cancelled::Refused { .. } | Cancelled::Unknown => {}
        }
        None
    }

    pub(crate) fn rescheduled(
        &mut self,
        to: Moment,
        content: Option<String>,
        answer: Rescheduled,
        now: UnixMillis,
    ) {
        self.fulfil_pending_cancel(now);
        if let Rescheduled::Done { .. } = answer {
            self.begin_revision(moment(to, now));
            if let Some(content) = content {
                self.content = content;
            }
        }
    }

    /// Another add with its key moved it.
    pub(crate) fn replaced(
        &mut self,
        asked: &Asked,
        call: Option<TaskId>,
        now: UnixMillis,
    ) -> Option<Violation> {
        self.fulfil_pending_cancel(now);
        let waited = !self.holds(now) && !self.state.is_final();
        self.begin_revision(moment(asked.moment, now));
        (self.content, self.expires_after) = (asked.content.clone(), asked.expires_after);
        self.on_dead = asked.on_dead.clone().zip(call);
        (!waited).then_some(Violation::TwoOfAKey)
    }

    /// Another add with its key made a new task, although this one has the key.
    pub(crate) fn overtaken(&mut self, now: UnixMillis) -> Option<Violation> {
        self.fulfil_pending_cancel(now);
        let is_held = self.holds(now);
        self.is_cancelled |= is_held;
        (!is_held && !self.state.is_final()).then_some(Violation::TwoOfAKey)
    }

    /// A cancel that was pending for a lease that has expired is done by now.
    fn fulfil_pending_cancel(&mut self, now: UnixMillis) {
        if self.is_cancelled {
            self.sweep(now);
        }
    }

    pub(crate) fn begin_revision(&mut self, due: UnixMillis) {
        self.revision += 1;
        self.wished = due;
        (self.due, self.lease, self.current) = (Some(due), None, None);
        (self.state, self.attempts, self.expiries, self.has_misfired) =
            (State::Scheduled, 0, 0, false);
    }
}
