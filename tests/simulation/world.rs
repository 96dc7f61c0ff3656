//! What all parts of a schedule share: the store's real state, its clock, chance, and the history.
//!
//! The real state is the specification of the conformance suite, which both real stores have to
//! match. The specification has no lane lock, so one is added that works as in Redis. The sabotages
//! of the store are here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{Lane, Options, Receipt, ScheduleName, State, TaskId, Topic};
use delayd::store::{
    Added, Cancelled, Claim, Claimed, INSTANCE_TTL, Instance, ListQuery, LockToken, MAX_LEASE,
    Message, Misfired, Moment, NewContent, NewTask, Novelty, Registered, Rescheduled, Result,
    Settle, Settled, Spread, Task, TaskName, TopicEntry, Transition,
};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::history::{Asked, Call, Event, History, LifeId, What};
use crate::life::Life;
use crate::model::Model;
use crate::plan::{Ailment, Plan};
use crate::sabotage::Sabotage;
use recurring::LastPlan;

mod recurring;

/// The store's time at the beginning of a schedule.
const START: UnixMillis = UnixMillis(1_800_000_000_000);

/// How long the lock of a lane lasts.
const LOCK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    /// The store's clock.
    pub(crate) clock: Clock,
    sabotage: Option<Sabotage>,
    began: Instant,
    is_healed: AtomicBool,
    numbers: AtomicU32,
    /// Requests whose caller has given up, and that are still to be done.
    pub(crate) late: AtomicU32,
    /// How often a pause began or ended.
    edition: AtomicU32,
    /// All lives so far.
    lives: Mutex<Vec<Arc<Life>>>,
    kept: Mutex<Kept>,
    history: Mutex<History>,
}

/// The content of the store.
#[derive(Debug)]
struct Kept {
    model: Model,
    /// The last heartbeat of each instance.
    heartbeats: BTreeMap<String, Instance>,
    locks: BTreeMap<Lane, (LockToken, Instant)>,
    /// Tasks that a sabotage has ended. In the model they are cancelled.
    falsely_delivered: BTreeSet<TaskId>,
    leased_before: BTreeSet<TaskId>,
    /// The dead-letter callbacks that may still be made, by their ids, each with its task.
    owed: BTreeMap<TaskId, TaskId>,
    /// The last plan of each schedule.
    last_plans: BTreeMap<(Lane, ScheduleName), LastPlan>,
    /// The occurrences that were planned.
    occurrences: BTreeMap<TaskId, Lane>,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, sabotage: Option<Sabotage>) -> Self {
        let mut model = Model::new(START);
        for topic in &plan.topics {
            model.register(topic.clone());
        }
        Self {
            plan,
            dice: Dice::new(seed),
            clock: Clock::running(START),
            sabotage,
            began: Instant::now(),
            is_healed: AtomicBool::new(false),
            numbers: AtomicU32::new(1),
            late: AtomicU32::new(0),
            edition: AtomicU32::new(0),
            lives: Mutex::default(),
            kept: Mutex::new(Kept {
                model,
                heartbeats: BTreeMap::new(),
                locks: BTreeMap::new(),
                falsely_delivered: BTreeSet::new(),
                leased_before: BTreeSet::new(),
                owed: BTreeMap::new(),
                last_plans: BTreeMap::new(),
                occurrences: BTreeMap::new(),
            }),
            history: Mutex::default(),
        }
    }

    /// The schedule's time.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) async fn until(&self, moment: Duration) {
        tokio::time::sleep_until(self.began + moment).await;
    }

    pub(crate) fn is_sabotaged(&self, how: Sabotage) -> bool {
        self.sabotage == Some(how)
    }

    /// A number that was not used before.
    pub(crate) fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// When the last pause of an instance is over.
    pub(crate) fn last_pause_ends(&self) -> Duration {
        let history = self.history.lock().unwrap();
        let ends = history.events.iter().filter_map(|event| match event.what {
            What::Paused { span, .. } => Some(event.at + span),
            _ => None,
        });
        ends.max().unwrap_or_default()
    }

    /// Ends all faults but the pauses of instances.
    pub(crate) fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
        self.write(What::Healed);
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.is_healed.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, what: What) {
        let event = Event { at: self.elapsed(), now: self.clock.now(), what };
        self.history.lock().unwrap().events.push(event);
    }

    /// How many events have happened.
    pub(crate) fn events(&self) -> usize {
        self.history.lock().unwrap().events.len()
    }

    /// A new life begins.
    pub(crate) fn join(&self, life: Arc<Life>) {
        self.lives.lock().unwrap().push(life);
    }

    pub(crate) fn living(&self) -> Vec<Arc<Life>> {
        self.lives.lock().unwrap().iter().filter(|life| !life.is_dead()).cloned().collect()
    }

    /// A worker's message to all other instances. It reaches each of them, or is lost.
    pub(crate) fn tell_others(&self, by: LifeId, message: &Message) {
        for life in self.living().into_iter().filter(|life| life.id != by) {
            if self.is_of_old_version(&life) && !matches!(message, Message::Due { .. }) {
                continue;
            }
            let mut throw = self.dice.throw(("message", by, life.id));
            if !self.is_healed() && throw.per_mille(self.plan.lost_messages) {
                self.write(What::Untold { by, to: life.id, message: message.clone() });
            } else {
                let _ = life.messages.send(message.clone());
            }
        }
    }

    /// Keeps a heartbeat, and returns those that are not too old.
    pub(crate) fn beat(&self, own: &Instance) -> Vec<Instance> {
        let mut kept = self.kept();
        let now = self.clock.now();
        kept.heartbeats.insert(own.id.clone(), Instance { seen: now, ..own.clone() });
        let is_living =
            |one: &&Instance| u128::from(now.0.abs_diff(one.seen.0)) < INSTANCE_TTL.as_millis();
        if self.is_sabotaged(Sabotage::DeathUnnoticed) {
            kept.heartbeats.values_mut().for_each(|one| one.seen = now);
        }
        kept.heartbeats.values().filter(is_living).cloned().collect()
    }

    /// Why this life cannot call now, if it cannot.
    pub(crate) fn ailment_of(&self, life: &Life) -> Option<Ailment> {
        self.plan.ailment.filter(|_| life.instance == Some(0) && !self.is_healed())
    }

    /// Whether this life has an earlier version.
    pub(crate) fn is_of_old_version(&self, life: &Life) -> bool {
        life.instance.is_some_and(|instance| self.plan.of_old_version.contains(&instance))
    }

    /// Counts a request, and returns how many its life has made in this second.
    pub(crate) fn count_request(&self, by: LifeId) -> u32 {
        let second = self.elapsed().as_secs();
        let mut history = self.history.lock().unwrap();
        let count = history.requests.entry((by, second)).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn take_history(&self) -> History {
        std::mem::take(&mut self.history.lock().unwrap())
    }

    /// The real state, at the store's now.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock().unwrap();
        kept.model.now = self.clock.now();
        kept
    }

    /// Reads the real state.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Model) -> T) -> T {
        look(&mut self.kept().model)
    }

    pub(crate) fn add(&self, task: NewTask) -> Result<Added> {
        let mut kept = self.kept();
        if self.is_sabotaged(Sabotage::AnswerBeforeCommit)
            && self.dice.throw("sabotage").per_mille(300)
        {
            let mut elsewhere = kept.model.clone();
            return elsewhere.add(task);
        }
        let (topic, asked) = (task.topic.clone(), Asked::of(&task));
        let task = self.sabotaged(&kept.model, task);
        let added = if self.is_sabotaged(Sabotage::LanesNotCompared) {
            kept.model.add_by_its_entry(task)?
        } else {
            kept.model
                .add(task)
                .inspect_err(|_| self.write(What::AddedStale { topic: topic.topic.clone() }))?
        };
        let (id, lane) = (added.id, topic.lane_of(added.id));
        let stored = kept.model.get(&lane, id);
        let call = stored.and_then(|task| task.options.on_dead?.task_id);
        let is_made = |call: &TaskId| kept.model.get(&lane, *call).is_some();
        let owed = call.filter(|call| !is_made(call)).map(|call| (call, id));
        kept.owed.extend(owed);
        self.write(match added.novelty {
            Novelty::New => What::Stored { id, lane, asked, call },
            Novelty::Replaced => What::Replaced { id, lane, asked, call },
            Novelty::Duplicate { .. } => What::Repeated { id },
        });
        Ok(added)
    }

    /// What a broken store does with an add.
    fn sabotaged(&self, model: &Model, mut task: NewTask) -> NewTask {
        if self.is_sabotaged(Sabotage::IdempotencyIgnored) {
            task.idempotency = None;
        }
        if self.is_sabotaged(Sabotage::ExpiryIgnored) {
            task.options.expires_after = None;
        }
        let namesakes = namesakes(model, &task);
        let is_leased = namesakes.iter().any(|namesake| namesake.state == State::Leased);
        if self.is_sabotaged(Sabotage::KeyIgnored)
            || is_leased && self.is_sabotaged(Sabotage::NamesakeGoesOn)
        {
            task.options.key = None;
        }
        let waits = namesakes.into_iter().find(|namesake| namesake.state == State::Scheduled);
        if let Some(waits) = waits {
            if self.is_sabotaged(Sabotage::PushBackKeepsMoment) {
                task.moment = Moment::At(waits.due);
            }
            if self.is_sabotaged(Sabotage::PushBackKeepsContent) {
                task.content = waits.content;
            }
        }
        task
    }

    /// A claim of an instance, sent when `sent` events had happened.
    pub(crate) fn claim(
        &self,
        (by, sent): (LifeId, usize),
        claim: &Claim,
        receipt: &Receipt,
    ) -> Claimed {
        let mut kept = self.kept();
        if let Some(refused) = kept.lock(claim) {
            return refused;
        }
        let mut claim = claim.clone();
        let lease = claim.lease;
        if self.is_sabotaged(Sabotage::LeaseCutShort) {
            claim.lease /= 10;
        }
        let misfires = claim.misfires.clone();
        if self.is_sabotaged(Sabotage::MisfireIgnored) {
            claim.misfires.clear();
        }
        if self.is_sabotaged(Sabotage::MisfireTooWide) {
            claim.misfires.iter_mut().for_each(|misfire| {
                (misfire.from, misfire.to) = (UnixMillis(0), UnixMillis(i64::MAX))
            });
        }
        if self.is_sabotaged(Sabotage::EarlyFire) {
            kept.model.now = kept.model.now + Duration::from_secs(3);
        }
        let mut grant = kept.model.claim(&claim, receipt.clone());
        grant.now = self.clock.now();
        kept.unlock(&claim, &grant);
        let ids: Vec<TaskId> = grant.tasks.iter().map(|task| task.id).collect();
        for id in &ids {
            if self.is_sabotaged(Sabotage::DeleteBeforeCallback) {
                let transition = Transition::Delivered { outcome: String::new() };
                kept.model.settle(&Settle {
                    lane: claim.lane.clone(),
                    id: *id,
                    receipt: receipt.clone(),
                    transition,
                });
            }
            if kept.leased_before.insert(*id) && self.is_sabotaged(Sabotage::LeaseNeverSwept) {
                kept.model.extend(&claim.lane, *id, receipt, MAX_LEASE);
            }
        }
        if self.is_sabotaged(Sabotage::CallBeforeDeath) {
            ids.iter().for_each(|id| kept.model.call_for(*id));
        }
        let wants = claim.wants.iter().map(|want| want.destination.clone()).collect();
        let skipped = match grant.swept.skipped {
            0 => Vec::new(),
            _ => kept.take_skipped(&claim.lane),
        };
        let (calls, receipt) = (self.calls(&mut kept, &claim.lane), receipt.clone());
        self.write(What::Claimed {
            by,
            lane: claim.lane,
            lease,
            receipt,
            wants,
            misfires,
            sent,
            ids,
            skipped,
            calls,
        });
        if self.is_sabotaged(Sabotage::BusyLoop) {
            grant.outlook.next = Some(grant.now);
        }
        Claimed::Granted(grant)
    }

    pub(crate) fn settle(&self, by: LifeId, settle: &Settle) -> Settled {
        let mut kept = self.kept();
        let mut done = settle.clone();
        let current = kept.model.receipts_of(settle.id).into_iter().next();
        if self.is_sabotaged(Sabotage::ReceiptNotCompared)
            && let Some(current) = current
        {
            done.receipt = current;
        }
        let answer = match &settle.transition {
            Transition::Retry { .. } if self.is_sabotaged(Sabotage::RetryUnscheduled) => {
                kept.model.extend(&done.lane, done.id, &done.receipt, MAX_LEASE)
            }
            Transition::Delivered { .. } if self.is_sabotaged(Sabotage::SuccessForgotten) => {
                Settled::Done
            }
            _ => kept.model.settle(&done),
        };
        let is_late_success = matches!(
            (&settle.transition, answer),
            (Transition::Delivered { .. }, Settled::Stale { .. })
        );
        let answer = if is_late_success && self.is_sabotaged(Sabotage::RevisionIgnored) {
            kept.model.cancel(&settle.lane, settle.id, None);
            kept.falsely_delivered.insert(settle.id);
            Settled::Done
        } else {
            answer
        };
        let calls = self.calls(&mut kept, &settle.lane);
        let Settle { id, receipt, transition, .. } = settle.clone();
        self.write(What::Settled { by, id, receipt, transition, answer, calls });
        answer
    }

    pub(crate) fn extend(
        &self,
        by: LifeId,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Settled {
        let mut kept = self.kept();
        let current = kept.model.receipts_of(id).into_iter().next();
        let brought = match current {
            Some(current) if self.is_sabotaged(Sabotage::ReceiptNotCompared) => current,
            _ => receipt.clone(),
        };
        let answer = kept.model.extend(lane, id, &brought, lease);
        self.write(What::Extended { by, id, receipt: receipt.clone(), lease, answer });
        answer
    }

    pub(crate) fn cancel(&self, lane: &Lane, id: TaskId, name: Option<&TaskName>) -> Cancelled {
        let mut kept = self.kept();
        let compared = name
            .filter(|_| !self.is_sabotaged(Sabotage::NameNotCompared))
            .and_then(TaskName::condition);
        let answer = if self.is_sabotaged(Sabotage::CancelIgnored) {
            kept.model.clone().cancel(lane, id, compared.as_ref())
        } else {
            kept.model.cancel(lane, id, compared.as_ref())
        };
        let key = name.map(|name| name.text().into_owned());
        self.write(What::Cancelled { id, key, answer });
        answer
    }

    pub(crate) fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        new: Option<NewContent>,
    ) -> Rescheduled {
        let mut kept = self.kept();
        let content = new.as_ref().map(|new| new.content.clone());
        let answer = kept.model.reschedule(lane, id, None, moment, new);
        self.write(What::Rescheduled { id, moment, content, answer });
        answer
    }

    pub(crate) fn replay(&self, lane: &Lane, ids: &[TaskId]) -> usize {
        let mut kept = self.kept();
        let replayed =
            |id: &&TaskId| kept.model.replay(lane, &[**id], None, Spread::default()) == 1;
        let replayed: Vec<TaskId> = ids.iter().filter(replayed).copied().collect();
        replayed.iter().for_each(|id| self.write(What::Replayed { id: *id }));
        replayed.len()
    }

    /// The dead-letter callbacks that were made since the last request.
    fn calls(&self, kept: &mut Kept, lane: &Lane) -> Vec<Call> {
        let made = |(id, dead): (&TaskId, &TaskId)| {
            let content = kept.model.get(lane, *id)?.content;
            Some(Call { id: *id, dead: *dead, content })
        };
        let mut calls: Vec<Call> = kept.owed.iter().filter_map(made).collect();
        for call in calls.clone() {
            kept.owed.remove(&call.id);
            if self.is_sabotaged(Sabotage::CallTwice) {
                calls.push(kept.call_again(lane, &call));
            }
            if self.is_sabotaged(Sabotage::CallForgotten) {
                kept.model.cancel(lane, call.id, None);
                kept.model.discard(lane, State::Cancelled, &[call.id], None);
                calls.retain(|kept| kept.id != call.id);
            }
        }
        calls
    }

    /// Deletes a topic that is empty and has no pending requests, and creates it again with another
    /// number of lanes.
    pub(crate) fn recount(&self, entry: &TopicEntry) {
        let mut kept = self.kept();
        let known = kept.model.topics().into_iter().find(|known| known.entry.topic == entry.topic);
        let is_plain = known.is_some_and(|known| {
            known == Registered::plain(known.entry.clone()) && known.entry != *entry
        });
        if is_plain && kept.model.unregister(entry) {
            kept.model.register(entry.clone());
            self.write(What::Recounted { topic: entry.topic.clone(), shards: entry.shards });
        }
    }

    pub(crate) fn pause(&self, topic: &Topic) -> Option<UnixMillis> {
        let mut kept = self.kept();
        let was_paused = kept
            .model
            .topics()
            .iter()
            .any(|known| known.entry.topic == *topic && known.paused.is_some());
        let since = kept.model.pause(topic);
        if !was_paused {
            self.edition.fetch_add(1, Ordering::Relaxed);
            self.write(What::TopicPaused { topic: topic.clone() });
        }
        since
    }

    pub(crate) fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Option<bool> {
        let answer = self.kept().model.resume(topic, becomes);
        if answer == Some(true) {
            self.edition.fetch_add(1, Ordering::Relaxed);
            self.write(What::TopicResumed { topic: topic.clone(), becomes });
        }
        answer
    }

    /// The registry, its edition, and how many events have happened.
    pub(crate) fn topics(&self) -> (Vec<Registered>, u32, usize) {
        let mut topics = self.look(|model| model.topics());
        if self.is_sabotaged(Sabotage::PauseUntold) {
            topics.iter_mut().for_each(|topic| topic.paused = None);
        }
        (topics, self.edition.load(Ordering::Relaxed), self.events())
    }

    pub(crate) fn get(&self, lane: &Lane, id: TaskId) -> Option<Task> {
        let kept = self.kept();
        let mut task = kept.model.get(lane, id)?;
        if kept.falsely_delivered.contains(&id) {
            task.state = State::Delivered;
        }
        Some(task)
    }
}

/// The tasks of the same key that wait or are leased.
fn namesakes(model: &Model, task: &NewTask) -> Vec<Task> {
    let (Some(key), Some(shard)) = (&task.options.key, task.pinned_shard()) else {
        return Vec::new();
    };
    let lane = Lane { topic: task.topic.topic.clone(), shard };
    let of_lane = [State::Scheduled, State::Leased].into_iter().flat_map(|state| {
        let (from, to) = (UnixMillis(0), UnixMillis(i64::MAX));
        model.list(&ListQuery { lane: lane.clone(), state, from, to, after: None, limit: 1_000 })
    });
    let tasks = of_lane.filter_map(|listed| model.get(&lane, listed.id));
    tasks.filter(|namesake| namesake.options.key.as_ref() == Some(key)).collect()
}

impl Kept {
    /// Makes a second task like a dead-letter callback.
    fn call_again(&mut self, lane: &Lane, call: &Call) -> Call {
        let made = self.model.get(lane, call.id).expect("the callback was made");
        let topics = self.model.topics();
        let registered = topics
            .into_iter()
            .find(|known| known.entry.topic == lane.topic)
            .expect("the lane exists");
        let again = NewTask {
            topic: registered.entry,
            destination: made.destination,
            moment: Moment::After(Duration::ZERO),
            options: Options::default(),
            content: made.content,
            idempotency: None,
            quota: None,
        };
        Call { id: self.model.add(again).expect("the add is valid").id, ..call.clone() }
    }

    /// Refuses if another holder has the lane's lock.
    fn lock(&self, claim: &Claim) -> Option<Claimed> {
        let (holder, until) = self.locks.get(&claim.lane)?;
        let retry_in = until.saturating_duration_since(Instant::now());
        let is_anothers = claim.holder.as_ref().is_some_and(|claimer| claimer != holder);
        (is_anothers && !retry_in.is_zero()).then_some(Claimed::Refused { retry_in })
    }

    /// The lock is kept only between the claims of one burst.
    fn unlock(&mut self, claim: &Claim, grant: &delayd::store::Grant) {
        let Some(holder) = &claim.holder else { return };
        let taken = |want: &delayd::store::Want| {
            grant.tasks.iter().filter(|task| task.destination == want.destination).count()
        };
        let is_cut = claim.wants.iter().any(|want| taken(want) == want.slots);
        if claim.more && is_cut && !grant.outlook.due.is_empty() {
            self.locks.insert(claim.lane.clone(), (holder.clone(), Instant::now() + LOCK));
        } else {
            self.locks.remove(&claim.lane);
        }
    }
}
