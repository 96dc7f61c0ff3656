//! The contract of [`delayd::store`] as the simplest program that fulfils it: the executable
//! specification.
//!
//! Nothing here is durable, fast or concurrent. There is one map of tasks, and every verb goes
//! through all of it: where a store has an index, the model has a filter. Its clock is the field
//! `now`, and a claim gets its receipt as an argument, so that the same calls always give the same
//! answers.
//!
//! [`crate::record`] says what happens to one task, [`crate::topics`] keeps the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, Options, Receipt, State, TaskId, Topic, TopicPolicy};
use delayd::store::{
    Added, Adopted, AdoptedStanding, Adoptee, AttemptNote, Cancelled, Claim, Cleared, Condition,
    Counts, Creator, EXPIRED, Error, Grant, Histories, Holds, Idempotency, LaneForecast,
    LaneHistory, LaneSample, LeaseKind, LeasedTask, ListQuery, Listed, MAX_ANSWER, MAX_CLAIM_BYTES,
    MAX_ENDED, MAX_FORECAST, MAX_NOTES, MAX_OUTCOME, MAX_OUTLOOK, MAX_SAMPLED, MAX_SWEEP, MISFIRED,
    Misfire, Misfired, Moment, NewContent, NewTask, NextDue, Novelty, Outlook, Position,
    Registered, Rescheduled, Result, SKIPPED, SampleAnswer, SampleQuery, ScheduleSample, Selected,
    Settle, Settled, Spread, Summary, Swept, Task, TaskName, TopicEntry, Waiting,
};

use crate::record::{Body, Record, beginning};
use crate::schedules_model::Schedules;
use crate::topics::Topics;

/// The content of the store.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The store's clock.
    pub(crate) now: UnixMillis,
    last_id: u64,
    pub(crate) tasks: BTreeMap<TaskId, Record>,
    /// The task that a key belongs to, and when an add last set it.
    owners: BTreeMap<(Lane, String), (TaskId, UnixMillis)>,
    /// The idempotency keys, by the names under which their lanes remember them.
    used: BTreeMap<(Lane, String), Used>,
    notes: BTreeMap<TaskId, Vec<AttemptNote>>,
    pub(crate) topics: Topics,
    holds: BTreeSet<Destination>,
    pub(crate) schedules: Schedules,
}

/// What an idempotency key was used for.
#[derive(Clone, Debug)]
struct Used {
    fingerprint: u128,
    until: UnixMillis,
    /// The answer to the first add.
    first: Added,
}

impl Model {
    /// An empty store.
    pub(crate) fn new(now: UnixMillis) -> Self {
        Self {
            now,
            last_id: 0,
            tasks: BTreeMap::new(),
            owners: BTreeMap::new(),
            used: BTreeMap::new(),
            notes: BTreeMap::new(),
            topics: Topics::default(),
            holds: BTreeSet::new(),
            schedules: Schedules::new(),
        }
    }

    /// Follows the steps for an add in [`delayd::store`], in their order.
    pub(crate) fn add(&mut self, task: NewTask) -> Result<Added> {
        if self.register(task.topic.clone()) != task.topic {
            return Err(Error::StaleEntry);
        }
        self.add_by_its_entry(task)
    }

    /// The same without a look at the registry.
    pub(crate) fn add_by_its_entry(&mut self, task: NewTask) -> Result<Added> {
        let entry = task.topic.clone();
        let id = self.draw(&entry, task.pinned_shard());
        let lane = entry.lane_of(id);
        if let Some(first) = self.added_before(&lane, &task)? {
            return Ok(first);
        }
        let due = self.due(task.moment);
        let name = task.idempotency_name().map(std::borrow::Cow::into_owned);
        let mut body =
            Body { destination: task.destination, options: task.options, content: task.content };
        if let Some(on_dead) = &mut body.options.on_dead {
            on_dead.task_id = Some(self.draw(&entry, Some(lane.shard)));
        }
        let key = body.options.key.clone();
        let namesake = self.namesake(&lane, key.as_deref());
        let added = match namesake {
            Some((id, State::Scheduled)) => {
                self.task(id).replace(body, due);
                self.owners.extend(key.map(|key| ((lane.clone(), key), (id, self.now))));
                Added { id, due, novelty: Novelty::Replaced }
            }
            _ if task.quota.is_some_and(|quota| self.pending(&lane) >= quota) => {
                return Err(Error::OverQuota);
            }
            _ => {
                if let Some((leased, State::Leased)) = namesake {
                    let now = self.now;
                    self.task(leased).cancel(now);
                }
                self.owners.extend(key.map(|key| ((lane.clone(), key), (id, self.now))));
                self.tasks.insert(id, Record::new(lane.clone(), body, due, self.now));
                Added { id, due, novelty: Novelty::New }
            }
        };
        if let (Some(name), Some(Idempotency { fingerprint, window, .. })) =
            (name, task.idempotency)
        {
            self.used
                .insert((lane, name), Used { fingerprint, until: self.now + window, first: added });
        }
        Ok(added)
    }

    /// Draws the next id, of one shard if that is given.
    pub(crate) fn draw(&mut self, entry: &TopicEntry, shard: Option<u16>) -> TaskId {
        self.last_id = self.last_id.max(self.now.0.unsigned_abs() / 1_000 * TaskId::PER_SECOND) + 1;
        while shard.is_some_and(|shard| entry.lane_of(TaskId(self.last_id)).shard != shard) {
            self.last_id += 1;
        }
        TaskId(self.last_id)
    }

    /// The answer to the first add with an idempotency key, within its window.
    fn added_before(&mut self, lane: &Lane, task: &NewTask) -> Result<Option<Added>> {
        let (Some(again), Some(name)) = (&task.idempotency, task.idempotency_name()) else {
            return Ok(None);
        };
        let used =
            self.used.get(&(lane.clone(), name.into_owned())).filter(|used| self.now < used.until);
        let Some(used) = used else { return Ok(None) };
        if used.fingerprint != again.fingerprint {
            return Err(Error::KeyReused);
        }
        let (first, now) = (used.first, self.now);
        let found = self.of_lane(lane, first.id).map(|record| (record.met(now), record.due));
        let (state, due) = found.map_or((None, first.due), |(state, due)| (Some(state), due));
        Ok(Some(Added { novelty: Novelty::Duplicate { state }, due, ..first }))
    }

    /// The task that a key belongs to, and its state.
    fn namesake(&mut self, lane: &Lane, key: Option<&str>) -> Option<(TaskId, State)> {
        let ((id, _), now) = (*self.owners.get(&(lane.clone(), key?.to_owned()))?, self.now);
        Some((id, self.tasks.get_mut(&id)?.met(now)))
    }

    /// The number of waiting and leased tasks.
    fn pending(&self, lane: &Lane) -> u64 {
        let Counts { scheduled, leased, .. } = self.stats(lane);
        scheduled + leased
    }

    pub(crate) fn task(&mut self, id: TaskId) -> &mut Record {
        self.tasks.get_mut(&id).expect("the task exists")
    }

    /// A moment in the past counts as now.
    pub(crate) fn due(&self, moment: Moment) -> UnixMillis {
        match moment {
            Moment::At(moment) => moment.max(self.now),
            Moment::After(wait) => self.now + wait,
        }
    }

    pub(crate) fn claim(&mut self, claim: &Claim, receipt: Receipt) -> Grant {
        let lane = &claim.lane;
        let mut swept = self.sweep(lane);
        let expired = self.expired(lane).into_iter().take(MAX_ENDED).collect::<Vec<_>>();
        let (now, mut may_end) = (self.now, MAX_ENDED - expired.len());
        swept.expired = expired.len() as u32;
        expired.into_iter().for_each(|(_, id)| self.task(id).expire(EXPIRED, now));
        let until = self.now + claim.lease;
        let mut tasks: Vec<LeasedTask> = Vec::new();
        let mut bytes = claim.in_hand;
        'full: for want in &claim.wants {
            for misfire in &claim.misfires {
                let ended: Vec<_> = self
                    .misfired(lane, &want.destination, misfire)
                    .into_iter()
                    .take(may_end)
                    .collect();
                may_end -= ended.len();
                match misfire.becomes {
                    Misfired::Expired => swept.misfired_expired += ended.len() as u32,
                    Misfired::Dead => swept.misfired_dead += ended.len() as u32,
                }
                ended.into_iter().for_each(|id| self.misfire(id, misfire.becomes));
            }
            let due = self.waiting(lane, &want.destination, self.now).into_iter();
            let due: Vec<_> =
                due.take_while(|(_, id)| !self.is_to_end(claim, *id)).take(want.slots).collect();
            for (_, id) in due {
                let record = self.task(id);
                bytes += record.body.content.len();
                if bytes > MAX_CLAIM_BYTES && (!tasks.is_empty() || claim.in_hand > 0) {
                    break 'full;
                }
                if self.skip(id, SKIPPED) {
                    swept.skipped += 1;
                    continue;
                }
                let record = self.task(id);
                record.lease(&receipt, until);
                tasks.push(record.as_leased_task(id));
            }
        }
        let mut outlook = self.outlook(claim);
        let is_wanted = |record: &Record| {
            claim.wants.iter().any(|want| want.destination == record.body.destination)
        };
        let is_left =
            |(id, record): (&TaskId, &Record)| is_wanted(record) && self.is_to_end(claim, *id);
        if may_end == 0 && self.tasks.iter().any(is_left) {
            outlook.next = outlook.next.min(Some(self.now)).or(Some(self.now));
        }
        Grant { now: self.now, receipt, tasks, outlook, swept }
    }

    /// Ends the expired leases of a lane, the earliest first. Then ends those whose deadline is too
    /// far away.
    fn sweep(&mut self, lane: &Lane) -> Swept {
        let (now, mut swept) = (self.now, Swept::default());
        let mut over: Vec<(bool, UnixMillis, TaskId)> = self
            .tasks
            .iter()
            .filter(|(_, record)| record.lane == *lane && record.ran_out(now))
            .map(|(id, record)| (record.listed().1 > now, record.listed().1, *id))
            .collect();
        over.sort_unstable();
        for (_, _, id) in over.into_iter().take(MAX_SWEEP) {
            let kind = self.task(id).kind;
            self.bearing_death(id, |record| record.sweep(now));
            let state = self.task(id).listed().0;
            match (kind, state) {
                (Some(LeaseKind::Mover { .. }), State::Scheduled) => {}
                (Some(LeaseKind::Consumer), _) => swept.pull_leases += 1,
                _ => swept.push_leases += 1,
            }
            match state {
                State::Cancelled => swept.cancelled += 1,
                State::Dead => swept.leases_ran_out += 1,
                _ => {}
            }
        }
        swept
    }

    /// The waiting tasks of a lane that have expired, the earliest first.
    fn expired(&self, lane: &Lane) -> Vec<(UnixMillis, TaskId)> {
        let of_lane = self.tasks.iter().filter(|(_, record)| record.lane == *lane);
        let mut expired: Vec<_> =
            of_lane.filter_map(|(id, record)| Some((record.expires()?, *id))).collect();
        expired.retain(|(expires, _)| *expires <= self.now);
        expired.sort_unstable();
        expired
    }

    /// The waiting tasks of a destination that fell due in a pause, the earliest first.
    fn misfired(&self, lane: &Lane, destination: &Destination, misfire: &Misfire) -> Vec<TaskId> {
        let due = self.waiting(lane, destination, misfire.to.min(self.now)).into_iter();
        due.filter(|(due, _)| *due >= misfire.from).map(|(_, id)| id).collect()
    }

    fn misfire(&mut self, id: TaskId, becomes: Misfired) {
        let now = self.now;
        self.bearing_death(id, |record| match becomes {
            Misfired::Expired => record.expire(MISFIRED, now),
            Misfired::Dead => record.die(MISFIRED, now),
        });
    }

    /// Whether a waiting task is to be ended by this claim or a later one.
    fn is_to_end(&self, claim: &Claim, id: TaskId) -> bool {
        let record = &self.tasks[&id];
        let is_covered =
            |due| claim.misfires.iter().any(|misfire| (misfire.from..=misfire.to).contains(&due));
        record.lane == claim.lane
            && (record.expires().is_some_and(|expires| expires <= self.now)
                || record.waits_for().is_some_and(|due| due <= self.now && is_covered(due)))
    }

    /// Applies a change to a task. If the task dies of it, makes its dead-letter callback.
    fn bearing_death<T>(&mut self, id: TaskId, change: impl FnOnce(&mut Record) -> T) -> T {
        let record = self.task(id);
        let was_dead = record.listed().0 == State::Dead;
        let answer = change(record);
        if record.listed().0 == State::Dead && !was_dead {
            self.call_for(id);
        }
        answer
    }

    /// Makes the dead-letter callback that a task asks for.
    pub(crate) fn call_for(&mut self, dead: TaskId) {
        let (record, now) = (&self.tasks[&dead], self.now);
        let Some(on_dead) = &record.body.options.on_dead else { return };
        let task = record.as_task(dead, now);
        let content = serde_json::json!({
            "sn": on_dead.sn,
            "url": on_dead.url,
            "task_id": dead,
            "topic": record.lane.topic.as_str(),
            "attempts": task.attempts,
            "outcome": task.last_outcome,
            "content": task.content,
        });
        let id = on_dead.task_id.expect("the id was drawn with the task's own");
        let options = Options { origin: record.body.options.origin, ..Options::default() };
        let body = Body { destination: on_dead.sn.clone(), options, content: content.to_string() };
        let call = Record::new(record.lane.clone(), body, now, now);
        self.tasks.entry(id).or_insert(call);
    }

    /// The tasks that wait for one destination and are due up to a moment, the earliest first.
    fn waiting(
        &self,
        lane: &Lane,
        destination: &Destination,
        to: UnixMillis,
    ) -> Vec<(UnixMillis, TaskId)> {
        let mut waiting: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, record)| record.lane == *lane && record.body.destination == *destination)
            .filter_map(|(id, record)| Some((record.waits_for()?, *id)))
            .filter(|(due, _)| *due <= to)
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// The lane's destinations with calls, by the earliest due moment of each. The order within one
    /// moment is not specified.
    pub(crate) fn heads(&self, lane: &Lane) -> Vec<(UnixMillis, Destination)> {
        let mut heads: BTreeMap<&Destination, UnixMillis> = BTreeMap::new();
        for record in self
            .tasks
            .values()
            .filter(|record| record.lane == *lane && !record.body.destination.is_pull())
        {
            if let Some(due) = record.waits_for() {
                let head = heads.entry(&record.body.destination).or_insert(due);
                *head = due.min(*head);
            }
        }
        let mut heads: Vec<_> =
            heads.into_iter().map(|(destination, due)| (due, destination.clone())).collect();
        heads.sort_unstable();
        heads
    }

    /// The deadlines of a lane's leases; now, if a deadline is too far away.
    fn lease_ends(&self, lane: &Lane) -> impl Iterator<Item = UnixMillis> {
        self.tasks
            .values()
            .filter(|record| record.lane == *lane)
            .filter_map(|record| record.to_be_swept(self.now))
    }

    /// The moments from which a claim of the lane finds expired tasks.
    fn expiries(&self, lane: &Lane) -> impl Iterator<Item = UnixMillis> {
        self.tasks.values().filter(|record| record.lane == *lane).filter_map(Record::expires)
    }

    /// Later tasks of a destination are not next while earlier ones of it are due: those are
    /// claimed first.
    fn outlook(&self, Claim { lane, wants, after, .. }: &Claim) -> Outlook {
        let (due, later): (Vec<_>, Vec<_>) =
            self.heads(lane).into_iter().partition(|(due, _)| *due <= self.now);
        let is_behind = |head: &&(UnixMillis, Destination)| match after {
            Some(Position { moment, destination: None }) => head.0 > *moment,
            Some(Position { moment, destination: Some(last) }) => {
                let at = (*moment, last.clone());
                if due.contains(&at) { **head > at } else { head.0 >= *moment }
            }
            None => true,
        };
        let page: Vec<_> = due.iter().filter(is_behind).take(MAX_OUTLOOK).collect();
        let end = page
            .get(MAX_OUTLOOK - 1)
            .map(|(moment, last)| Position { moment: *moment, destination: Some(last.clone()) });
        let wanted = wants.iter().filter_map(|want| {
            due.iter().find(|head| head.1 == want.destination && !page.contains(head))
        });
        let due = page.iter().copied().chain(wanted).map(|(_, name)| name.clone()).collect();
        let expiries = self.expiries(lane).map(|expires| expires.max(self.now));
        let next = later
            .into_iter()
            .map(|(due, _)| due)
            .chain(self.lease_ends(lane))
            .chain(expiries)
            .min();
        Outlook { due, end, next }
    }

    pub(crate) fn settle(&mut self, settle: &Settle) -> Settled {
        let now = self.now;
        if self.of_lane(&settle.lane, settle.id).is_none() {
            return Settled::Unknown;
        }
        self.bearing_death(settle.id, |record| {
            record.settle(&settle.receipt, &settle.transition, now)
        })
    }

    pub(crate) fn extend(
        &mut self,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Settled {
        let now = self.now;
        self.of_lane(lane, id)
            .map_or(Settled::Unknown, |record| record.extend(receipt, now + lease, now))
    }

    fn meets(&self, lane: &Lane, id: TaskId, only: Option<&Condition>) -> bool {
        match only {
            None => true,
            Some(Condition::Named(name)) => self.find(name, lane) == Some(id),
            Some(Condition::Selected(selected)) => {
                self.selected(lane, id).as_ref() == Some(selected)
            }
        }
    }

    /// The task as a caller selects it now.
    pub(crate) fn selected(&self, lane: &Lane, id: TaskId) -> Option<Selected> {
        self.summaries(lane, &[id]).remove(0).map(|task| task.selected())
    }

    pub(crate) fn cancel(
        &mut self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> Cancelled {
        let now = self.now;
        if !self.meets(lane, id, only) {
            return Cancelled::Unknown;
        }
        self.of_lane(lane, id).map_or(Cancelled::Unknown, |record| record.cancel(now))
    }

    pub(crate) fn reschedule(
        &mut self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Rescheduled {
        let (now, due) = (self.now, self.due(moment));
        if !self.meets(lane, id, only) {
            return Rescheduled::Unknown;
        }
        self.of_lane(lane, id)
            .map_or(Rescheduled::Unknown, |record| record.reschedule(due, content, now))
    }

    pub(crate) fn replay(
        &mut self,
        lane: &Lane,
        ids: &[TaskId],
        outcome: Option<&str>,
        spread: Spread,
    ) -> usize {
        let now = self.now;
        let mut due = now + spread.first;
        let mut count = 0;
        for id in ids {
            let is_meant = |record: &&mut Record| {
                record.state(now) == State::Dead && record.has_outcome(outcome)
            };
            if let Some(record) = self.of_lane(lane, *id).filter(is_meant) {
                record.begin_revision(due);
                due = due + spread.step;
                count += 1;
            }
        }
        count
    }

    pub(crate) fn lend(
        &mut self,
        lane: &Lane,
        ids: &[TaskId],
        receipt: &Receipt,
        lease: Duration,
    ) -> Vec<bool> {
        let (now, until) = (self.now, self.now + lease);
        let mut lend = |id: &TaskId| {
            let is_there = self.of_lane(lane, *id).is_some();
            is_there && self.bearing_death(*id, |record| record.lend(receipt, until, now))
        };
        ids.iter().map(&mut lend).collect()
    }

    pub(crate) fn adopt(&mut self, task: Adoptee) -> Result<Adopted> {
        let (id, now) = (task.id, self.now);
        let entry = self.register(task.topic.clone());
        if entry != task.topic {
            return Err(Error::StaleEntry);
        }
        match self.tasks.get(&id) {
            Some(record) if !record.is_same(&task) || record.lane != task.topic.lane_of(id) => {
                let is_late = match task.lent {
                    true => self.is_superseded(&task),
                    false => self.owner_is_later(&task).is_some_and(|(_, is_later)| is_later),
                };
                return Ok(if is_late { Adopted::Superseded } else { Adopted::Taken });
            }
            Some(record) if record.is_lent(now) => return Ok(Adopted::Own),
            Some(_) => {
                return Ok(match task.standing {
                    AdoptedStanding::Waiting { .. }
                    | AdoptedStanding::Ended { state: State::Dead, .. } => Adopted::Known,
                    AdoptedStanding::Ended { state, .. } => {
                        self.task(id).take_end(state, &task.outcome, now)
                    }
                });
            }
            None => {}
        }
        if self.is_superseded(&task) {
            return Ok(Adopted::Superseded);
        }
        self.last_id = self.last_id.max(task.highest_id().0);
        let lane = entry.lane_of(id);
        let key = task
            .options
            .key
            .clone()
            .filter(|key| Lane::shard_of_key(key, entry.shards) == lane.shard);
        let is_taken = |model: &mut Self| {
            let owner = model.namesake(&lane, key.as_deref());
            matches!(owner, Some((_, State::Scheduled | State::Leased)))
        };
        // To look at the owner of a key ends a lease of it that has run out. A task that has ended
        // takes no key, and one that competes for it has met the owner above.
        let is_waiting = matches!(task.standing, AdoptedStanding::Waiting { .. });
        if is_waiting && (task.key_set.is_some() || !is_taken(self)) {
            self.owners
                .extend(key.map(|key| ((lane, key), (id, task.key_set.unwrap_or(task.created)))));
        }
        self.tasks.insert(id, Record::adopted(task));
        Ok(Adopted::New)
    }

    /// The owner of an adopted task's key, and whether its key was set at the same moment or later.
    fn owner_is_later(&self, task: &Adoptee) -> Option<(TaskId, bool)> {
        let lane = task.topic.lane_of(task.id);
        let is_waiting = matches!(task.standing, AdoptedStanding::Waiting { .. });
        let leads_here = |key: &&String| Lane::shard_of_key(key, task.topic.shards) == lane.shard;
        let key = task.options.key.as_ref().filter(leads_here).filter(|_| is_waiting)?;
        let set = task.key_set?;
        let (owner, owner_set) = self.owners.get(&(lane.clone(), key.clone())).copied()?;
        Some((owner, owner_set >= set))
    }

    /// Whether an adopted task is superseded. If the owner of its key was set before, the owner is
    /// cancelled.
    fn is_superseded(&mut self, task: &Adoptee) -> bool {
        let now = self.now;
        let Some((owner, is_later)) = self.owner_is_later(task) else { return false };
        if !is_later && matches!(self.task(owner).met(now), State::Scheduled | State::Leased) {
            self.task(owner).cancel(now);
        }
        is_later
    }

    /// A task is known only in its own lane.
    fn of_lane(&mut self, lane: &Lane, id: TaskId) -> Option<&mut Record> {
        self.tasks.get_mut(&id).filter(|record| record.lane == *lane)
    }

    pub(crate) fn get(&self, lane: &Lane, id: TaskId) -> Option<Task> {
        let record = self.tasks.get(&id).filter(|record| record.lane == *lane)?;
        let owner = record
            .body
            .options
            .key
            .as_ref()
            .and_then(|key| self.owners.get(&(lane.clone(), key.clone())));
        let key_set = owner.filter(|(owner, _)| *owner == id).map(|(_, set)| *set);
        Some(Task { key_set, ..record.as_task(id, self.now) })
    }

    pub(crate) fn list(&self, query: &ListQuery) -> Vec<Listed> {
        let mut page = self.all_of(query);
        page.retain(|listed| query.after < Some(*listed));
        page.truncate(query.limit);
        page
    }

    pub(crate) fn list_latest(&self, query: &ListQuery) -> Vec<Listed> {
        let mut page = self.all_of(query);
        page.retain(|listed| query.after.is_none_or(|after| *listed < after));
        page.reverse();
        page.truncate(query.limit);
        page
    }

    /// All entries of a list, in its order.
    fn all_of(&self, query: &ListQuery) -> Vec<Listed> {
        let mut all: Vec<Listed> = self
            .tasks
            .iter()
            .filter(|(_, record)| record.lane == query.lane && record.listed().0 == query.state)
            .map(|(id, record)| Listed { moment: record.listed().1, id: *id })
            .filter(|listed| (query.from..=query.to).contains(&listed.moment))
            .collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn find(&self, name: &TaskName, lane: &Lane) -> Option<TaskId> {
        let place = (lane.clone(), name.text().into_owned());
        match name {
            TaskName::Id(id) => {
                self.tasks.get(id).filter(|record| record.lane == *lane).map(|_| *id)
            }
            TaskName::Key(_) => self.owners.get(&place).map(|(owner, _)| *owner),
            TaskName::Idempotency { .. } => {
                self.used.get(&place).filter(|used| self.now < used.until).map(|used| used.first.id)
            }
        }
    }

    pub(crate) fn summaries(&self, lane: &Lane, ids: &[TaskId]) -> Vec<Option<Summary>> {
        let known = |id: &TaskId| self.tasks.get(id).filter(|record| record.lane == *lane);
        ids.iter().map(|id| known(id).map(|record| record.as_summary(*id, self.now))).collect()
    }

    pub(crate) fn next_due(&self, lanes: &[Lane]) -> NextDue {
        let next = |lane| {
            let heads = self.heads(lane).into_iter().map(|(due, _)| due);
            heads.chain(self.lease_ends(lane)).chain(self.expiries(lane)).min()
        };
        NextDue { now: self.now, lanes: lanes.iter().map(next).collect() }
    }

    pub(crate) fn next_pull(&self, lanes: &[Lane]) -> NextDue {
        let pulled = |record: &&Record| {
            record.body.destination.is_pull() && record.listed().0 == State::Scheduled
        };
        let due = |lane: &Lane| {
            let waiting = self.tasks.values().filter(|record| record.lane == *lane).filter(pulled);
            waiting.map(|record| record.listed().1).chain(self.lease_ends(lane)).min()
        };
        NextDue { now: self.now, lanes: lanes.iter().map(due).collect() }
    }

    pub(crate) fn histories(&self, lanes: &[Lane]) -> Histories {
        let forgotten = [State::Delivered, State::Cancelled, State::Expired];
        let history = |lane: &Lane| {
            let of_lane =
                self.tasks.values().filter(|record| record.lane == *lane).map(Record::listed);
            let ends: Vec<_> = of_lane
                .filter(|(state, _)| forgotten.contains(state))
                .map(|(_, moment)| moment)
                .collect();
            let has_leftovers =
                self.used.iter().any(|((of, _), used)| of == lane && used.until <= self.now);
            Some(LaneHistory {
                ended: ends.len() as u64,
                oldest: ends.into_iter().min(),
                has_leftovers,
                has_schedules: self.schedules.keys().any(|(of, _)| of == lane),
            })
        };
        Histories { now: self.now, lanes: lanes.iter().map(history).collect() }
    }

    pub(crate) fn stats(&self, lane: &Lane) -> Counts {
        let count = |state| {
            let of_state = |record: &&Record| record.lane == *lane && record.listed().0 == state;
            self.tasks.values().filter(of_state).count() as u64
        };
        Counts {
            scheduled: count(State::Scheduled),
            leased: count(State::Leased),
            delivered: count(State::Delivered),
            dead: count(State::Dead),
            cancelled: count(State::Cancelled),
            expired: count(State::Expired),
            earliest: self.dues(lane).min(),
        }
    }

    pub(crate) fn sample(&self, query: &SampleQuery) -> SampleAnswer {
        let lane = |(place, lane): (usize, &Lane)| {
            let late_after = query.late_after.get(place).copied().unwrap_or_default();
            let mut schedules: Vec<ScheduleSample> = Vec::new();
            for record in self.tasks.values().filter(|record| record.lane == *lane) {
                let Some(due) = record.waits_for() else { continue };
                let destination = &record.body.destination;
                let known =
                    schedules.iter().position(|schedule| schedule.destination == *destination);
                let at = known.unwrap_or_else(|| {
                    schedules.push(ScheduleSample {
                        destination: destination.clone(),
                        earliest: due,
                        next: None,
                        waiting: 0,
                        due: vec![0; query.within.len()],
                        late: 0,
                        is_cut: false,
                    });
                    schedules.len() - 1
                });
                let schedule = &mut schedules[at];
                schedule.earliest = schedule.earliest.min(due);
                let next = Some(due).filter(|due| *due > self.now);
                schedule.next = schedule.next.into_iter().chain(next).min();
                schedule.waiting += 1;
                schedule.late += u64::from(due <= self.now - late_after);
                for (count, span) in schedule.due.iter_mut().zip(&query.within) {
                    *count += u64::from(due <= self.now + *span);
                }
            }
            schedules.sort_by_key(|schedule| (!schedule.destination.is_pull(), schedule.earliest));
            let pulled = schedules.iter().filter(|schedule| schedule.destination.is_pull()).count();
            schedules.truncate(pulled + MAX_SAMPLED);
            Some(LaneSample { counts: self.stats(lane), schedules })
        };
        SampleAnswer { now: self.now, lanes: query.lanes.iter().enumerate().map(lane).collect() }
    }

    /// The moments that the waiting tasks of a lane wait for.
    fn dues(&self, lane: &Lane) -> impl Iterator<Item = UnixMillis> {
        self.tasks.values().filter(|record| record.lane == *lane).filter_map(Record::waits_for)
    }

    pub(crate) fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> LaneForecast {
        let bound =
            |i: usize| self.now + step * u32::try_from(i).expect("the number of steps is small");
        let within = |i| {
            self.dues(lane).filter(|due| bound(i) < *due && *due <= bound(i + 1)).count() as u64
        };
        LaneForecast {
            now: self.now,
            overdue: self.dues(lane).filter(|due| *due <= self.now).count() as u64,
            steps: (0..steps.min(MAX_FORECAST)).map(within).collect(),
        }
    }

    pub(crate) fn note(&mut self, notes: Vec<AttemptNote>) {
        for mut note in notes {
            if self.of_lane(&note.lane, note.id).is_some() {
                note.outcome = beginning(&note.outcome, MAX_OUTCOME);
                note.answer = beginning(&note.answer, MAX_ANSWER);
                let kept = self.notes.entry(note.id).or_default();
                kept.push(note);
                kept.drain(..kept.len().saturating_sub(MAX_NOTES));
            }
        }
    }

    pub(crate) fn notes(&self, lane: &Lane, id: TaskId) -> Vec<AttemptNote> {
        let notes = self.notes.get(&id).into_iter().flatten();
        notes.filter(|note| note.lane == *lane).cloned().collect()
    }

    pub(crate) fn purge(
        &mut self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> usize {
        if !state.is_final() {
            return 0;
        }
        self.forget_idempotency_keys(lane, limit);
        let ended = self.histories(std::slice::from_ref(lane)).lanes[0].map_or(0, |h| h.ended);
        let limit = match most {
            0 => limit,
            most => limit.min(ended.saturating_sub(most) as usize),
        };
        let (lane, from, to) =
            (lane.clone(), UnixMillis(i64::MIN), before - Duration::from_millis(1));
        let oldest = self.list(&ListQuery { lane, state, from, to, after: None, limit });
        oldest.iter().filter(|listed| self.forget(listed.id)).count()
    }

    /// Removes keys whose window is over, the earliest first.
    fn forget_idempotency_keys(&mut self, lane: &Lane, limit: usize) {
        let of_lane =
            self.used.iter().filter(|((of, _), used)| of == lane && used.until <= self.now);
        let mut over: Vec<_> = of_lane.map(|(name, used)| (used.until, name.clone())).collect();
        over.sort_unstable();
        for (_, name) in over.into_iter().take(limit) {
            self.used.remove(&name);
        }
    }

    /// Removes a task and everything that belongs to it. Returns whether it existed.
    fn forget(&mut self, id: TaskId) -> bool {
        self.notes.remove(&id);
        self.owners.retain(|_, (owner, _)| *owner != id);
        self.tasks.remove(&id).is_some()
    }

    pub(crate) fn discard(
        &mut self,
        lane: &Lane,
        state: State,
        ids: &[TaskId],
        outcome: Option<&str>,
    ) -> usize {
        let is_such = |record: &mut Record| {
            state.is_final() && record.listed().0 == state && record.has_outcome(outcome)
        };
        ids.iter()
            .filter(|id| self.of_lane(lane, **id).is_some_and(is_such) && self.forget(**id))
            .count()
    }

    pub(crate) fn remove_contents(&mut self, lane: &Lane, ids: &[TaskId]) {
        for id in ids {
            self.of_lane(lane, *id).into_iter().for_each(Record::remove_content);
        }
    }

    pub(crate) fn clear(&mut self, lane: &Lane, limit: usize) -> Cleared {
        let of_lane = self.tasks.iter().filter(|(_, record)| record.lane == *lane);
        let free = of_lane.filter(|(_, record)| record.state(self.now) != State::Leased);
        let free: Vec<TaskId> = free.map(|(id, _)| *id).take(limit).collect();
        let removed = free.into_iter().filter(|id| self.forget(*id)).count();
        let leased = self.tasks.values_mut().filter(|record| record.lane == *lane);
        let cancelling = match removed < limit {
            true => leased.filter_map(|record| record.cancel_lease().then_some(())).count(),
            false => 0,
        };
        if self.tasks.values().all(|record| record.lane != *lane) {
            self.used.retain(|(of, _), _| of != lane);
        }
        Cleared { removed, cancelling }
    }

    pub(crate) fn set_hold(&mut self, destination: &Destination, is_held: bool) {
        match is_held {
            true => self.holds.insert(destination.clone()),
            false => self.holds.remove(destination),
        };
    }

    pub(crate) fn holds(&self) -> Holds {
        Holds { held: self.holds.iter().cloned().collect(), released: Vec::new() }
    }

    pub(crate) fn waiting_for_each(&self, lanes: &[Lane]) -> Vec<Waiting> {
        let mut counts: BTreeMap<Destination, u64> = BTreeMap::new();
        let is_asked_for = |record: &&Record| {
            lanes.contains(&record.lane) && record.listed().0 == State::Scheduled
        };
        for record in self
            .tasks
            .values()
            .filter(is_asked_for)
            .filter(|record| !record.body.destination.is_pull())
        {
            *counts.entry(record.body.destination.clone()).or_default() += 1;
        }
        counts.into_iter().map(|(destination, count)| Waiting { destination, count }).collect()
    }

    pub(crate) fn create(
        &mut self,
        entry: TopicEntry,
        creator: Option<Creator>,
    ) -> Result<TopicEntry> {
        self.topics.create(entry, creator).ok_or(Error::CreatorLimit)
    }

    pub(crate) fn register(&mut self, entry: TopicEntry) -> TopicEntry {
        self.create(entry, None).expect("only creators have a limit")
    }

    pub(crate) fn topics(&self) -> Vec<Registered> {
        self.topics.all()
    }

    pub(crate) fn set_policy(&mut self, topic: &Topic, policy: &TopicPolicy) -> bool {
        self.topics.set_policy(topic, policy)
    }

    pub(crate) fn pause(&mut self, topic: &Topic) -> Option<UnixMillis> {
        self.topics.pause(topic, self.now)
    }

    pub(crate) fn resume(&mut self, topic: &Topic, becomes: Option<Misfired>) -> Option<bool> {
        self.topics.resume(topic, becomes, self.now)
    }

    pub(crate) fn forget_misfire(&mut self, topic: &Topic, misfire: Misfire) {
        self.topics.forget_misfire(topic, misfire);
    }

    pub(crate) fn unregister(&mut self, entry: &TopicEntry) -> bool {
        let is_empty = self.tasks.values().all(|record| record.lane.topic != entry.topic)
            && self.schedules.keys().all(|(lane, _)| lane.topic != entry.topic);
        if is_empty {
            self.topics.unregister(&entry.topic);
            self.used.retain(|(lane, _), _| lane.topic != entry.topic);
        }
        is_empty
    }

    /// The key that a task was added with. For generated calls.
    pub(crate) fn key_of(&self, id: TaskId) -> Option<String> {
        self.tasks.get(&id).and_then(|record| record.body.options.key.clone())
    }

    /// The receipts that a task remembers, the current one first. For generated calls.
    pub(crate) fn receipts_of(&self, id: TaskId) -> Vec<Receipt> {
        self.tasks.get(&id).into_iter().flat_map(Record::receipts).cloned().collect()
    }
}
