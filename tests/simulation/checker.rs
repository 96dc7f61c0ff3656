//! Reads a history and reports the broken promises.
//!
//! The checker has its own [`Account`] of each task, from the requests and their answers. It never
//! asks the model, so a broken store cannot mislead it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, Receipt, State, TaskId};
use delayd::store::{Cancelled, MAX_EXPIRIES, Misfire, Transition};

use crate::account::{Account, destination_of};
use crate::history::{Asked, Call, CallId, Event, Heard, History, LifeId, What};
use crate::occurrences::Occurrences;
use crate::pauses::Pauses;
use crate::plan::Plan;
use crate::promptness::Promptness;

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Violation {
    /// A task that was stored or accepted is missing.
    Lost,
    /// It was handed out before its due millisecond, by the store's clock.
    Early,
    /// It was handed out during the lease of another holder, or one instance made two calls of it
    /// at once.
    TwoHolders,
    /// A call began under another's lease, or under a lease shorter than the call's timeout.
    CalledWithoutLease,
    /// The content of a call was not the content that was handed out.
    WrongContent,
    /// It was called again after a success, without a permitted cause.
    DuplicateWithoutCause,
    /// It was handed out after its cancel was answered.
    CancelledFired,
    /// It was handed out after it had expired.
    ExpiredFired,
    /// It was handed out by an instance that knew before that its topic is paused.
    PausedFired,
    /// It was handed out by an instance that knew that tasks due at its moment, in a pause, are not
    /// to be delivered.
    MisfireFired,
    /// An instance sent a claim with a pause that never existed.
    PauseMadeUp,
    /// It died, and its dead-letter callback was not made.
    DeathUntold,
    /// Its dead-letter callback was made before it died, or a second time.
    CallWithoutDeath,
    /// A task was handed out that was never added.
    MadeUp,
    /// One add was done twice.
    AddedTwice,
    /// A cancel by key was carried out on a task that the key had left.
    CancelledAnother,
    /// Two tasks of one key waited, or a task was moved that did not wait.
    TwoOfAKey,
    /// It was handed out after it had ended.
    FiredAfterEnd,
    /// A settle without the lease changed the task.
    LateHolderMoved,
    /// The success of an earlier revision ended the task.
    OldRevisionEnded,
    /// A worker's settle differs from the answer that the worker got.
    SettledOtherwise,
    /// It counts as delivered, dead or cancelled without a reason.
    EndedWithoutReason,
    /// It has not ended long after the faults stopped.
    Stalled,
    /// An instance sent too many requests to the store.
    Spinning,
    /// A plan was accepted though the schedule had changed since the planner read it.
    PlannedFromOld,
    /// Two occurrences of a schedule waited that were never handed out.
    TwoOccurrencesWait,
    /// A moment of a schedule was called under two `webhook-id`s.
    MomentTwice,
    /// Two moments of schedules were called under one `webhook-id`.
    TwoMomentsOfAnId,
    /// A moment of a schedule has two tasks that were called, without a failover.
    OccurrenceTwice,
    /// A moment of a schedule has no occurrence, and none stands for it.
    MomentMissing,
    /// An occurrence stands for a moment that has another one, or that has not come.
    MissedMiscounted,
    /// An occurrence was skipped though no earlier one ran.
    SkippedWithoutReason,
    /// An occurrence was handed out while an earlier one ran.
    Overlapped,
    /// It was called too late, without a fault that explains it.
    Late,
    /// Code of the product panicked.
    Panicked,
}

/// The promise and the event that broke it.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) violation: Violation,
    /// Beyond the last event for a promise of the whole history.
    pub(crate) event: usize,
    pub(crate) text: String,
}

/// The most requests of one life in one second. Twelve tasks in four lanes need no more.
pub(crate) const MOST_REQUESTS: u32 = 150;

/// All broken promises of a history.
pub(crate) fn check(plan: &Plan, history: &History) -> Vec<Broken> {
    let mut checker = Checker {
        plan,
        history,
        tasks: BTreeMap::new(),
        owners: BTreeMap::new(),
        asked: BTreeSet::new(),
        calls: BTreeMap::new(),
        pauses: Pauses::default(),
        promptness: Promptness::of(plan, history),
        occurrences: Occurrences::default(),
        has_jumped: false,
        schedules_end: Duration::MAX,
        broken: Vec::new(),
    };
    for (at, event) in history.events.iter().enumerate() {
        checker.take(at, event);
    }
    checker.conclude();
    checker.broken
}

/// One call of a task.
#[derive(Debug)]
struct Called {
    id: TaskId,
    by: LifeId,
    receipt: Receipt,
    revision: u32,
    heard: Option<Heard>,
    is_running: bool,
}

/// A claim that was done.
#[derive(Clone, Copy)]
struct Claimed<'a> {
    at: usize,
    now: UnixMillis,
    by: LifeId,
    lane: &'a Lane,
    lease: Duration,
    receipt: &'a Receipt,
    misfires: &'a [Misfire],
    sent: usize,
}

struct Checker<'a> {
    plan: &'a Plan,
    history: &'a History,
    tasks: BTreeMap<TaskId, Account>,
    /// The task that a key belongs to.
    owners: BTreeMap<(Lane, String), TaskId>,
    /// The idempotency keys of the adds that were done.
    asked: BTreeSet<String>,
    calls: BTreeMap<CallId, Called>,
    pauses: Pauses,
    promptness: Promptness<'a>,
    occurrences: Occurrences,
    /// Whether the store's clock has jumped.
    has_jumped: bool,
    /// When all schedules were deleted.
    schedules_end: Duration,
    broken: Vec<Broken>,
}

impl Checker<'_> {
    fn report(&mut self, violation: Violation, event: usize, text: impl Into<String>) {
        self.broken.push(Broken { violation, event, text: text.into() });
    }

    fn take(&mut self, at: usize, event: &Event) {
        let now = event.now;
        let mut about: Option<(TaskId, Violation)> = None;
        match &event.what {
            What::Stored { id, lane, asked, call } => {
                self.tasks.insert(*id, Account::stored(lane.clone(), asked, *call, now));
                self.asked_for(at, *id, asked);
                let owner = asked
                    .key
                    .as_ref()
                    .and_then(|key| self.owners.insert((lane.clone(), key.clone()), *id));
                let broken = owner.and_then(|owner| self.tasks.get_mut(&owner)?.overtaken(now));
                about = broken.map(|broken| (*id, broken));
            }
            What::Replaced { id, lane, asked, call } => {
                self.asked_for(at, *id, asked);
                let key = asked.key.clone().expect("the event is that of an add with a key");
                let is_owner = self.owners.get(&(lane.clone(), key)) == Some(id);
                let broken =
                    self.tasks.get_mut(id).and_then(|task| task.replaced(asked, *call, now));
                let broken = broken.or((!is_owner).then_some(Violation::TwoOfAKey));
                about = broken.map(|broken| (*id, broken));
            }
            What::Accepted { id } => match self.tasks.get_mut(id) {
                Some(task) => task.is_accepted = true,
                None => about = Some((*id, Violation::Lost)),
            },
            What::Claimed {
                by,
                lane,
                lease,
                receipt,
                wants,
                misfires,
                sent,
                ids,
                skipped,
                calls,
            } => {
                let claimed = Claimed {
                    at,
                    now,
                    by: *by,
                    lane,
                    lease: *lease,
                    receipt,
                    misfires,
                    sent: *sent,
                };
                self.claimed(&claimed, wants, (ids, skipped), calls);
            }
            What::Extended { id, receipt, lease, answer, .. } => {
                let task = self.tasks.get_mut(id);
                about = task
                    .and_then(|task| task.extended(receipt, *lease, *answer, now))
                    .map(|broken| (*id, broken));
            }
            What::Settled { id, .. } if self.occurrences.forgotten.contains(id) => {}
            What::Settled { by, id, receipt, transition, answer, calls } => {
                if !self.was_heard(*by, *id, receipt, transition) {
                    self.report(Violation::SettledOtherwise, at, format!("task {id}"));
                }
                let ends = matches!(transition, Transition::Delivered { .. })
                    && *answer == delayd::store::Settled::Done;
                let Some(task) = self.tasks.get_mut(id) else { return };
                about = task.settled(receipt, transition, *answer, now).map(|broken| (*id, broken));
                let (revision, lane) = (task.revision, task.lane.clone());
                let left = self.called_for(at, &lane, calls);
                self.check_calls(at, &lane, &left);
                if ends
                    && about.is_none()
                    && !self.was_taken(*id, revision)
                    && self.was_taken_ever(*id)
                {
                    about = Some((*id, Violation::OldRevisionEnded));
                }
            }
            What::Cancelled { answer: Cancelled::Unknown, .. } => {}
            What::Cancelled { id, key, answer } => {
                let Some(task) = self.tasks.get_mut(id) else { return };
                let owner =
                    key.as_ref().map(|key| self.owners.get(&(task.lane.clone(), key.clone())));
                let is_another = owner.is_some_and(|owner| owner != Some(id));
                let broken = task.cancelled(*answer, now);
                let another = is_another.then_some(Violation::CancelledAnother);
                about = another.or(broken).map(|broken| (*id, broken));
            }
            What::Rescheduled { id, moment, content, answer } => {
                let Some(task) = self.tasks.get_mut(id) else { return };
                task.rescheduled(*moment, content.clone(), *answer, now);
            }
            What::Replayed { id } => {
                self.tasks.get_mut(id).expect("a dead task has an account").begin_revision(now);
            }
            What::TopicPaused { topic } => self.pauses.paused(topic, at, now),
            What::TopicResumed { topic, becomes } => self.pauses.resumed(topic, *becomes, at, now),
            What::Looked { by, read } => self.pauses.looked(*by, at, *read),
            What::CallBegan { call, by, id, receipt, timeout, content, occurrence } => {
                if let Some(called) = occurrence {
                    let moments = (event.at, now);
                    let broken = self.occurrences.called(*id, called, moments, self.has_jumped);
                    about = broken.map(|broken| (*id, broken));
                }
                self.call_began(at, *call, (*by, *id, receipt), *timeout, content);
            }
            What::CallEnded { call, heard } => {
                // A call of an unknown task was reported before.
                if let Some(call) = self.calls.get_mut(call) {
                    (call.heard, call.is_running) = (Some(*heard), false);
                }
            }
            What::CallDropped { call } => {
                self.calls.get_mut(call).into_iter().for_each(|call| call.is_running = false);
            }
            What::Crashed { life } => {
                self.calls
                    .values_mut()
                    .filter(|call| call.by == *life)
                    .for_each(|call| call.is_running = false);
            }
            What::Found { id, state, missed, .. } => {
                self.occurrences.found(*id, *state, *missed, event.at);
                self.found(at, *id, *state);
            }
            What::ScheduleSet { lane, new, change } => {
                self.occurrences.set(&mut self.tasks, (lane, &**new), *change, now);
            }
            What::SchedulePaused { lane, name, is_paused } => {
                self.occurrences.paused(&mut self.tasks, (lane, name), *is_paused, now);
            }
            What::ScheduleDeleted { lane, name } => {
                let is_at_the_end = event.at >= self.schedules_end;
                self.occurrences.deleted(&mut self.tasks, (lane, name), is_at_the_end);
            }
            What::Planned { lane, plan, answer } => {
                let broken =
                    self.occurrences.planned(&mut self.tasks, (lane, &**plan), *answer, now);
                if let Some(broken) = broken {
                    self.report(broken, at, format!("schedule {}", plan.name));
                }
            }
            What::PlanForgotten { id } => self.occurrences.forgot(&mut self.tasks, *id),
            What::SchedulesEnd => self.schedules_end = event.at,
            What::Jumped { .. } => self.has_jumped = true,
            What::Panicked { message } => self.report(Violation::Panicked, at, message),
            What::Repeated { .. }
            | What::Recounted { .. }
            | What::AddedStale { .. }
            | What::Processed { .. }
            | What::Started { .. }
            | What::Paused { .. }
            | What::Stops { .. }
            | What::Drained { .. }
            | What::Untold { .. }
            | What::PlanStale
            | What::InstanceJumped { .. }
            | What::StoreFailed { .. }
            | What::Healed => {}
        }
        if let Some((id, violation)) = about {
            self.report(violation, at, format!("task {id}"));
        }
    }

    /// In the order of the store: expired leases and expired tasks first, then for each service
    /// misfires and tasks that are handed out.
    fn claimed(
        &mut self,
        claimed: &Claimed<'_>,
        wants: &[Destination],
        (ids, skipped): (&[TaskId], &[TaskId]),
        calls: &[Call],
    ) {
        let Claimed { at, now, lane, misfires, .. } = *claimed;
        for task in self.tasks.values_mut().filter(|task| task.lane == *lane) {
            task.sweep(now);
            task.expire(now);
        }
        for id in skipped {
            if let Some(broken) = self.occurrences.skipped(&mut self.tasks, *id) {
                self.report(broken, at, format!("task {id}"));
            }
        }
        let mut calls = self.called_for(at, lane, calls);
        if misfires.iter().any(|misfire| !self.pauses.was(&lane.topic, misfire)) {
            self.report(Violation::PauseMadeUp, at, format!("{lane}"));
        }
        let mut left = ids.to_vec();
        for want in wants {
            if !misfires.is_empty() {
                let wanted =
                    self.tasks.values_mut().filter(|task| task.lane == *lane && task.is_for(want));
                wanted.for_each(|task| task.misfire(misfires, now));
                calls = self.called_for(at, lane, &calls);
            }
            let its = |id: &mut TaskId| self.tasks.get(id).is_some_and(|task| task.is_for(want));
            for id in left.extract_if(.., its).collect::<Vec<_>>() {
                self.hand_out(claimed, id);
            }
        }
        for id in left {
            self.report(Violation::MadeUp, at, format!("task {id}"));
        }
        self.check_calls(at, lane, &calls);
    }

    fn hand_out(&mut self, claimed: &Claimed<'_>, id: TaskId) {
        let Claimed { at, now, by, lane, lease, receipt, sent, .. } = *claimed;
        if let Some(broken) = self.occurrences.handed_out(&self.tasks, id, now) {
            self.report(broken, at, format!("task {id}"));
        }
        let task = self.tasks.get_mut(&id).expect("the task was found before");
        let misfires = |due| self.pauses.is_known_to_misfire(&lane.topic, due, by, sent);
        let unwanted = if self.pauses.is_known_to_hold(&lane.topic, by, sent) {
            Some(Violation::PausedFired)
        } else {
            task.due.is_some_and(misfires).then_some(Violation::MisfireFired)
        };
        let broken = task.hand_out(by, receipt, lease, now, at);
        if let Some(broken) = broken.or(unwanted) {
            self.report(broken, at, format!("task {id}"));
        }
    }

    /// Records the owed dead-letter callbacks and returns the others.
    fn called_for(&mut self, at: usize, lane: &Lane, calls: &[Call]) -> Vec<Call> {
        let is_owed = |call: &Call| self.tasks.get(&call.dead).is_some_and(|task| task.owes_call);
        let (owed, others): (Vec<Call>, Vec<Call>) = calls.iter().cloned().partition(is_owed);
        owed.iter().for_each(|call| self.call(at, lane, call));
        others
    }

    fn call(&mut self, at: usize, lane: &Lane, call: &Call) {
        self.tasks
            .insert(call.id, Account::of_call(lane.clone(), call, self.history.events[at].now));
        let dead = self.tasks.get_mut(&call.dead).expect("only added tasks have callbacks");
        if let Some(broken) = dead.called_for(call.dead, call) {
            self.report(broken, at, format!("task {}, for task {}", call.id, call.dead));
        }
    }

    /// After a step of the store that may have killed tasks of a lane: a dead-letter callback was
    /// made for each dead task, and for no other.
    fn check_calls(&mut self, at: usize, lane: &Lane, left: &[Call]) {
        left.iter().for_each(|call| self.call(at, lane, call));
        let owing = self.tasks.iter_mut().filter(|(_, task)| task.lane == *lane && task.owes_call);
        let untold: Vec<TaskId> = owing
            .map(|(id, task)| {
                task.owes_call = false;
                *id
            })
            .collect();
        untold
            .into_iter()
            .for_each(|id| self.report(Violation::DeathUntold, at, format!("task {id}")));
    }

    /// An add was done. It must not be done a second time.
    fn asked_for(&mut self, at: usize, id: TaskId, asked: &Asked) {
        if asked.idempotency_key.clone().is_some_and(|key| !self.asked.insert(key)) {
            self.report(Violation::AddedTwice, at, format!("task {id}"));
        }
    }

    /// Whether the settle matches what the worker may have heard of a call, or the worker made no
    /// call under this lease.
    fn was_heard(
        &self,
        by: LifeId,
        id: TaskId,
        receipt: &Receipt,
        transition: &Transition,
    ) -> bool {
        let mut calls = self.calls.values().filter(|call| call.by == by && call.id == id);
        match transition {
            Transition::Delivered { .. } => calls.any(|call| call.heard == Some(Heard::Success)),
            Transition::Retry { .. } => calls.any(|call| call.heard == Some(Heard::Failure)),
            Transition::Dead { .. } => {
                calls.any(|call| matches!(call.heard, Some(Heard::Failure | Heard::Final)))
            }
            // The simulated receiver says at once how it ended.
            Transition::Keep { .. } | Transition::Moved => false,
            Transition::Release => calls.all(|call| call.receipt != *receipt),
        }
    }

    /// Whether the receiver has accepted the task in that revision and a worker has heard so.
    fn was_taken(&self, id: TaskId, revision: u32) -> bool {
        self.successes(id).any(|call| call.revision == revision)
    }

    fn was_taken_ever(&self, id: TaskId) -> bool {
        self.successes(id).next().is_some()
    }

    fn successes(&self, id: TaskId) -> impl Iterator<Item = &Called> {
        self.calls.values().filter(move |call| call.id == id && call.heard == Some(Heard::Success))
    }

    fn call_began(
        &mut self,
        at: usize,
        call: CallId,
        (by, id, receipt): (LifeId, TaskId, &Receipt),
        timeout: Duration,
        content: &str,
    ) {
        let now = self.history.events[at].now;
        let Some(task) = self.tasks.get(&id) else { return };
        let Some(grant) = task.grants.get(receipt).filter(|grant| grant.to == by).cloned() else {
            return self.report(
                Violation::CalledWithoutLease,
                at,
                format!("task {id}: its receipt is made up"),
            );
        };
        // The success of an earlier lease may have ended the task since. Whether the call may be
        // made again is checked below.
        let has_ended = task.state == State::Delivered;
        let lasts = |lease: &crate::account::Lease| {
            lease.receipt == *receipt && now + timeout <= lease.until
        };
        // A jump of the clock may end a lease at any moment. The worker learns that only from the
        // next answer of the store.
        if !has_ended
            && !task.lease.as_ref().is_some_and(lasts)
            && !self.clock_jumped(grant.event..at)
        {
            self.report(Violation::CalledWithoutLease, at, format!("task {id}"));
        }
        if grant.content != content {
            self.report(Violation::WrongContent, at, format!("task {id}, of {}", grant.content));
        }
        if self.calls.values().any(|other| other.id == id && other.by == by && other.is_running) {
            self.report(
                Violation::TwoHolders,
                at,
                format!("task {id}: the instance is calling it already"),
            );
        }
        let again = self.successes(id).filter(|other| other.revision == grant.revision);
        let unexplained =
            again.filter(|other| !self.explains_duplicate(other, (by, grant.event), at)).count()
                > 0;
        if unexplained {
            self.report(Violation::DuplicateWithoutCause, at, format!("task {id}"));
        }
        let destination = destination_of(content);
        let is_late = |due: &UnixMillis| {
            let since_start = self.history.events[at].at;
            self.promptness.is_late(since_start, now.since(*due), by, &destination)
        };
        if let Some(due) = grant.due.filter(is_late) {
            self.report(Violation::Late, at, format!("task {id}: due at {due}"));
        }
        let called = Called {
            id,
            by,
            receipt: receipt.clone(),
            revision: grant.revision,
            heard: None,
            is_running: true,
        };
        self.calls.insert(call, called);
    }

    /// Whether a fault between the first grant and event `to` explains the duplicate. It may
    /// concern the instance with the success `call`, whose settle may not have reached the store in
    /// time, or the instance that calls again.
    fn explains_duplicate(&self, call: &Called, again: (LifeId, usize), to: usize) -> bool {
        let first = self.tasks[&call.id].grants[&call.receipt].event.min(again.1);
        let (from, until) = (&self.history.events[first], &self.history.events[to]);
        let is_its_instance = |life: &LifeId| *life == call.by || *life == again.0;
        self.history.events[..to].iter().enumerate().any(|(at, event)| match &event.what {
            What::Paused { life, span } => {
                is_its_instance(life) && event.at + *span > from.at && event.at <= until.at
            }
            What::Crashed { life } | What::StoreFailed { by: life, .. } => {
                at > first && is_its_instance(life)
            }
            What::Drained { life, cut_off } => at > first && is_its_instance(life) && *cut_off > 0,
            What::Jumped { .. } => at > first,
            _ => false,
        })
    }

    fn clock_jumped(&self, between: std::ops::Range<usize>) -> bool {
        self.history.events[between].iter().any(|event| matches!(event.what, What::Jumped { .. }))
    }

    /// Checks whether the task may be in the state in which it was found.
    fn found(&mut self, at: usize, id: TaskId, state: State) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let (revision, attempts, is_cancelled) = (task.revision, task.attempts, task.is_cancelled);
        let had_expired = task.state == State::Expired;
        task.state = state;
        let died_uncalled = task.expiries >= MAX_EXPIRIES || task.has_misfired;
        let is_found = match state {
            State::Scheduled | State::Leased => {
                return self.report(Violation::Stalled, at, format!("task {id}"));
            }
            State::Delivered => self.was_taken(id, revision),
            State::Dead => {
                let in_revision = |call: &&Called| call.id == id && call.revision == revision;
                let was_final = |call: &Called| call.heard == Some(Heard::Final);
                let is_final = self.calls.values().filter(in_revision).any(was_final);
                is_final || attempts >= self.plan.settings.max_attempts || died_uncalled
            }
            State::Cancelled => is_cancelled,
            State::Expired => had_expired,
        };
        if !is_found {
            self.report(
                Violation::EndedWithoutReason,
                at,
                format!("task {id}, {}", state.as_str()),
            );
        }
    }

    fn conclude(&mut self) {
        let end = self.history.events.len();
        let found: Vec<TaskId> = self.history.events.iter().filter_map(found_id).collect();
        let lost: Vec<TaskId> =
            self.tasks.keys().filter(|id| !found.contains(id)).copied().collect();
        for id in lost {
            self.report(Violation::Lost, end, format!("task {id}"));
        }
        let healed = self.history.events.iter().find(|event| matches!(event.what, What::Healed));
        if let Some(healed) = healed.filter(|_| !self.has_jumped) {
            for (broken, text) in
                self.occurrences.missing((healed.at, healed.now), self.schedules_end)
            {
                self.report(broken, end, text);
            }
        }
        for ((life, second), count) in &self.history.requests {
            if *count > MOST_REQUESTS {
                self.report(
                    Violation::Spinning,
                    end,
                    format!("{life:?} made {count} requests in second {second}"),
                );
            }
        }
    }
}

fn found_id(event: &Event) -> Option<TaskId> {
    if let What::Found { id, .. } = event.what { Some(id) } else { None }
}
