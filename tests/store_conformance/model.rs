//! The contract of [`delayd::store`] as the simplest program that keeps it: the executable specification.
//!
//! Nothing here is stored, fast or concurrent. There is one map of tasks, and every verb looks through all of it; where
//! a store keeps an index, the model has a filter. Its clock is the field `now`, and a claim is given its receipt, so
//! that the same calls always have the same answers.
//!
//! What becomes of one task is in [`crate::record`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayd::clock::UnixMillis;
use delayd::store::{
    Added, Cancelled, Claim, Counts, Grant, LeasedTask, ListQuery, Listed, MAX_CLAIM_BYTES, MAX_OUTLOOK, MAX_SWEEP,
    Moment, NewContent, NewTask, NextDue, Novelty, Outlook, Rescheduled, Settle, Settled, Task, TopicEntry, Waiting,
};
use delayd::task::{Destination, Lane, Receipt, State, TaskId, Topic};

use crate::record::Record;

/// Everything that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The store's clock.
    pub(crate) now: UnixMillis,
    last_id: u64,
    tasks: BTreeMap<TaskId, Record>,
    topics: BTreeMap<Topic, TopicEntry>,
    holds: BTreeSet<Destination>,
}

impl Model {
    /// An empty store.
    pub(crate) fn new(now: UnixMillis) -> Self {
        Self { now, last_id: 0, tasks: BTreeMap::new(), topics: BTreeMap::new(), holds: BTreeSet::new() }
    }

    pub(crate) fn add(&mut self, task: NewTask) -> Added {
        let entry = self.register(task.topic.clone());
        self.last_id = self.last_id.max(self.now.0.unsigned_abs() / 1_000 * TaskId::PER_SECOND) + 1;
        let id = TaskId(self.last_id);
        let due = self.due(task.moment);
        let record = Record::new(entry.lane_of(id), task, due, self.now);
        self.tasks.insert(id, record);
        Added { id, due, novelty: Novelty::New }
    }

    /// What lies in the past is due now.
    fn due(&self, moment: Moment) -> UnixMillis {
        match moment {
            Moment::At(moment) => moment.max(self.now),
            Moment::After(wait) => self.now + wait,
        }
    }

    pub(crate) fn claim(&mut self, claim: &Claim, receipt: Receipt) -> Grant {
        self.sweep(&claim.lane);
        let until = self.now + claim.lease;
        let mut tasks: Vec<LeasedTask> = Vec::new();
        let mut bytes = 0;
        'full: for want in &claim.wants {
            for (_, id) in self.waiting(&claim.lane, &want.destination, self.now).into_iter().take(want.slots) {
                let record = self.tasks.get_mut(&id).expect("it waits");
                bytes += record.content.len();
                if bytes > MAX_CLAIM_BYTES && !tasks.is_empty() {
                    break 'full;
                }
                record.lease(&receipt, until);
                tasks.push(record.as_leased_task(id));
            }
        }
        Grant { now: self.now, receipt, tasks, outlook: self.outlook(&claim.lane, claim.skip) }
    }

    /// Ends the leases of a lane that have run out, the earliest first, then those that end too far away.
    fn sweep(&mut self, lane: &Lane) {
        let now = self.now;
        let mut over: Vec<(bool, UnixMillis, &mut Record)> = self
            .tasks
            .values_mut()
            .filter(|record| record.lane == *lane && record.ran_out(now))
            .map(|record| (record.listed().1 > now, record.listed().1, record))
            .collect();
        over.sort_by_key(|(is_too_far, until, _)| (*is_too_far, *until));
        over.into_iter().take(MAX_SWEEP).for_each(|(_, _, record)| record.sweep(now));
    }

    /// What waits for one destination, due up to a moment, earliest first.
    fn waiting(&self, lane: &Lane, destination: &Destination, to: UnixMillis) -> Vec<(UnixMillis, TaskId)> {
        let mut waiting: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, record)| record.lane == *lane && record.destination == *destination)
            .filter_map(|(id, record)| Some((record.waits_for()?, *id)))
            .filter(|(due, _)| *due <= to)
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// The lane's called destinations by the earliest due moment of each. Their order within one moment is not promised.
    pub(crate) fn heads(&self, lane: &Lane) -> Vec<(UnixMillis, Destination)> {
        let mut heads: BTreeMap<&Destination, UnixMillis> = BTreeMap::new();
        for record in self.tasks.values().filter(|record| record.lane == *lane && !record.destination.is_pull()) {
            if let Some(due) = record.waits_for() {
                let head = heads.entry(&record.destination).or_insert(due);
                *head = due.min(*head);
            }
        }
        let mut heads: Vec<_> = heads.into_iter().map(|(destination, due)| (due, destination.clone())).collect();
        heads.sort_unstable();
        heads
    }

    /// The deadlines of a lane's leases; now, where one is too far away.
    fn lease_ends(&self, lane: &Lane) -> impl Iterator<Item = UnixMillis> {
        self.tasks.values().filter(|record| record.lane == *lane).filter_map(|record| record.to_be_swept(self.now))
    }

    /// A destination's later tasks are not next while earlier ones of it are due: those are claimed first.
    fn outlook(&self, lane: &Lane, skip: usize) -> Outlook {
        let (due, later): (Vec<_>, Vec<_>) = self.heads(lane).into_iter().partition(|(due, _)| *due <= self.now);
        let due = due.into_iter().skip(skip).take(MAX_OUTLOOK).map(|(_, destination)| destination).collect();
        let next = later.into_iter().map(|(due, _)| due).chain(self.lease_ends(lane)).min();
        Outlook { due, next }
    }

    pub(crate) fn settle(&mut self, settle: &Settle) -> Settled {
        let now = self.now;
        self.of_lane(&settle.lane, settle.id)
            .map_or(Settled::Unknown, |record| record.settle(&settle.receipt, &settle.transition, now))
    }

    pub(crate) fn extend(&mut self, lane: &Lane, id: TaskId, receipt: &Receipt, lease: Duration) -> Settled {
        let now = self.now;
        self.of_lane(lane, id).map_or(Settled::Unknown, |record| record.extend(receipt, now + lease, now))
    }

    pub(crate) fn cancel(&mut self, lane: &Lane, id: TaskId) -> Cancelled {
        let now = self.now;
        self.of_lane(lane, id).map_or(Cancelled::Unknown, |record| record.cancel(now))
    }

    pub(crate) fn reschedule(
        &mut self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Rescheduled {
        let (now, due) = (self.now, self.due(moment));
        self.of_lane(lane, id).map_or(Rescheduled::Unknown, |record| record.reschedule(due, content, now))
    }

    pub(crate) fn replay(&mut self, lane: &Lane, ids: &[TaskId]) -> usize {
        let now = self.now;
        let mut count = 0;
        for id in ids {
            if let Some(record) = self.of_lane(lane, *id).filter(|record| record.state(now) == State::Dead) {
                record.begin_revision(now);
                count += 1;
            }
        }
        count
    }

    /// A task is known only in its own lane.
    fn of_lane(&mut self, lane: &Lane, id: TaskId) -> Option<&mut Record> {
        self.tasks.get_mut(&id).filter(|record| record.lane == *lane)
    }

    pub(crate) fn get(&self, lane: &Lane, id: TaskId) -> Option<Task> {
        self.tasks.get(&id).filter(|record| record.lane == *lane).map(|record| record.as_task(id, self.now))
    }

    pub(crate) fn list(&self, query: &ListQuery) -> Vec<Listed> {
        let mut page: Vec<Listed> = self
            .tasks
            .iter()
            .filter(|(_, record)| record.lane == query.lane && record.listed().0 == query.state)
            .map(|(id, record)| Listed { moment: record.listed().1, id: *id })
            .filter(|listed| (query.from..=query.to).contains(&listed.moment) && query.after < Some(*listed))
            .collect();
        page.sort_unstable();
        page.truncate(query.limit);
        page
    }

    pub(crate) fn next_due(&self, lanes: &[Lane]) -> NextDue {
        let next = |lane| self.heads(lane).into_iter().map(|(due, _)| due).chain(self.lease_ends(lane)).min();
        NextDue { now: self.now, lanes: lanes.iter().map(next).collect() }
    }

    pub(crate) fn next_pull(&self, lanes: &[Lane]) -> NextDue {
        let pulled = |record: &&Record| record.destination.is_pull() && record.listed().0 == State::Scheduled;
        let due = |lane: &Lane| {
            let waiting = self.tasks.values().filter(|record| record.lane == *lane).filter(pulled);
            waiting.map(|record| record.listed().1).chain(self.lease_ends(lane)).min()
        };
        NextDue { now: self.now, lanes: lanes.iter().map(due).collect() }
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
            earliest: None,
        }
    }

    pub(crate) fn purge(&mut self, lane: &Lane, state: State, before: UnixMillis, limit: usize) -> usize {
        if !state.is_final() {
            return 0;
        }
        let (lane, from, to) = (lane.clone(), UnixMillis(i64::MIN), before - Duration::from_millis(1));
        let oldest = self.list(&ListQuery { lane, state, from, to, after: None, limit });
        oldest.iter().filter(|listed| self.tasks.remove(&listed.id).is_some()).count()
    }

    pub(crate) fn set_hold(&mut self, destination: &Destination, is_held: bool) {
        match is_held {
            true => self.holds.insert(destination.clone()),
            false => self.holds.remove(destination),
        };
    }

    pub(crate) fn holds(&self) -> Vec<Destination> {
        self.holds.iter().cloned().collect()
    }

    pub(crate) fn waiting_for_each(&self, lanes: &[Lane]) -> Vec<Waiting> {
        let mut counts: BTreeMap<Destination, u64> = BTreeMap::new();
        let is_asked_for = |record: &&Record| lanes.contains(&record.lane) && record.listed().0 == State::Scheduled;
        for record in self.tasks.values().filter(is_asked_for).filter(|record| !record.destination.is_pull()) {
            *counts.entry(record.destination.clone()).or_default() += 1;
        }
        counts.into_iter().map(|(destination, count)| Waiting { destination, count }).collect()
    }

    pub(crate) fn register(&mut self, entry: TopicEntry) -> TopicEntry {
        self.topics.entry(entry.topic.clone()).or_insert(entry).clone()
    }

    pub(crate) fn topics(&self) -> Vec<TopicEntry> {
        self.topics.values().cloned().collect()
    }

    /// The receipts that a task remembers, the current one first: for whoever makes up calls.
    pub(crate) fn receipts_of(&self, id: TaskId) -> Vec<Receipt> {
        self.tasks.get(&id).into_iter().flat_map(Record::receipts).cloned().collect()
    }
}
