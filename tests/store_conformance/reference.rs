//! The model as an implementation of the stores' trait, so that the suite can run on the
//! specification itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{
    Destination, Lane, Receipt, ScheduleName, State, StoreId, TaskId, Topic, TopicPolicy,
};
use delayd::store::{
    Added, Admin, Adopted, AdoptedStanding, Adoptee, Asker, AttemptNote, Audit, AuditCursor,
    AuditEntry, AuditLogged, Cancelled, CheckCursor, CheckStep, Claim, Claimed, Cleared, Condition,
    Counts, Creator, Delivery, DueSchedules, Durability, Error, Hint, Histories, Holds, Instance,
    Intake, LaneForecast, ListQuery, Listed, Look, Looked, MAX_AUDIT, Maintenance, Misfire,
    Misfired, Moment, NewContent, NewSchedule, NewTask, NextDue, Novelty, Pause, Plan, Planned,
    Reader, Registered, Rescheduled, Result, Revision, SampleAnswer, SampleQuery, Sampling,
    Schedule, ScheduleSet, Schedules, Settle, Settled, Signals, Spread, Store, Summary, Task,
    TaskName, TopicEntry, Topics, Transition, Waiting,
};
use tokio::sync::broadcast;

use crate::model::Model;

/// A store over the model.
pub(crate) struct Reference {
    id: StoreId,
    model: Mutex<Model>,
    clock: Clock,
    hints: broadcast::Sender<Hint>,
    audit: Mutex<Vec<AuditEntry>>,
    /// How many entries the cap has removed.
    dropped: AtomicU64,
}

impl Reference {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            id: StoreId::random(),
            model: Mutex::new(Model::new(clock.now())),
            clock,
            hints: broadcast::Sender::new(64),
            audit: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// The model, with its clock set to now.
    fn model(&self) -> MutexGuard<'_, Model> {
        let mut model = self.model.lock().unwrap();
        model.now = self.clock.now();
        model
    }

    fn hint(&self, tasks: &[(Lane, bool, UnixMillis)]) {
        let mut earliest = std::collections::BTreeMap::new();
        for (lane, is_pull, due) in tasks {
            let first = earliest.entry((lane, *is_pull)).or_insert(*due);
            *first = (*first).min(*due);
        }
        for ((lane, is_pull), due) in earliest {
            // There may be no receiver.
            let _ = self.hints.send(Hint { lane: lane.clone(), due, is_pull });
        }
    }
}

impl Signals for Reference {
    async fn id(&self) -> Result<StoreId> {
        Ok(self.id)
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }
}

impl Delivery for Reference {
    async fn look(&self, look: Look) -> Looked {
        // It has no revisions: the registry is read each time.
        let Look { seen: _, workers, consumers, planners, heartbeat } = look;
        let next =
            if workers.is_empty() { Ok(None) } else { self.next_due(workers).await.map(Some) };
        let pulls =
            if consumers.is_empty() { Ok(None) } else { self.next_pull(consumers).await.map(Some) };
        let holds = self.holds().await;
        // Last: a pause that has been read must not wait for the others.
        let registry = self.topics().await.map(|topics| Some((Revision::default(), topics)));
        let now = self.clock.now();
        let instances = heartbeat.map(|own| Instance { seen: now, ..own }).into_iter().collect();
        let (unknown, unanswered, instances) = (Vec::new(), Vec::new(), Ok(instances));
        let plans = match planners.is_empty() {
            true => Ok(None),
            false => Ok(Some(self.model().next_plans(&planners))),
        };
        Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        Ok(Claimed::Granted(self.model().claim(&claim, Receipt::random())))
    }

    async fn settle(&self, _: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let mut hints = Vec::new();
        let mut answers = Vec::new();
        for settle in &settles {
            let settled = self.model().settle(settle);
            if settled == Settled::Done
                && matches!(settle.transition, Transition::Retry { .. } | Transition::Release)
                && let Some(back) = self.model().get(&settle.lane, settle.id)
            {
                hints.push((settle.lane.clone(), back.destination.is_pull(), back.due));
            }
            answers.push(Ok(settled));
        }
        self.hint(&hints);
        answers
    }

    async fn extend(
        &self,
        _: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        Ok(self.model().extend(lane, id, receipt, lease))
    }

    async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        self.model().note(notes);
        Ok(())
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        Ok(self.model().next_due(&lanes))
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        Ok(self.model().next_pull(&lanes))
    }
}

impl Intake for Reference {
    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let mut hints = Vec::new();
        let mut answers = Vec::new();
        for task in tasks {
            let (topic, is_pull) = (task.topic.clone(), task.destination.is_pull());
            let added = self.model().add(task);
            if let Ok(Added { id, due, novelty: Novelty::New | Novelty::Replaced }) = added {
                hints.push((topic.lane_of(id), is_pull, due));
            }
            answers.push(added);
        }
        self.hint(&hints);
        answers
    }
}

impl Topics for Reference {
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        Ok(self.model().list(&query))
    }

    async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        Ok(self.model().list_latest(&query))
    }

    async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        Ok(self.model().set_policy(topic, policy))
    }

    async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        Ok(self.model().pause(topic))
    }

    async fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Result<Option<bool>> {
        Ok(self.model().resume(topic, becomes))
    }

    async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        Ok(self.model().unregister(entry))
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        Ok(self.model().stats(lane))
    }

    async fn create(&self, entry: TopicEntry, creator: Option<Creator>) -> Result<TopicEntry> {
        self.model().create(entry, creator)
    }

    async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        Ok(self.model().topics().into_iter().find(|known| known.entry.topic == *topic))
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        Ok(self.model().topics())
    }
}

impl Admin for Reference {
    async fn cancel(&self, lane: &Lane, id: TaskId, only: Option<&Condition>) -> Result<Cancelled> {
        Ok(self.model().cancel(lane, id, only))
    }

    async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let moved = self.model().reschedule(lane, id, only, moment, content);
        if let Rescheduled::Done { due } = moved {
            self.hint(&[(lane.clone(), false, due), (lane.clone(), true, due)]);
        }
        Ok(moved)
    }

    async fn get(&self, _: Reader, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        Ok(self.model().get(lane, id))
    }

    async fn replay(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
        spread: Spread,
    ) -> Result<usize> {
        let count = self.model().replay(lane, &ids, outcome, spread);
        let due = self.clock.now() + spread.first;
        self.hint(&[(lane.clone(), false, due), (lane.clone(), true, due)]);
        Ok(count)
    }

    async fn find(&self, name: &TaskName, lanes: Vec<Lane>) -> Result<Vec<Option<TaskId>>> {
        let model = self.model();
        Ok(lanes.iter().map(|lane| model.find(name, lane)).collect())
    }

    async fn summaries(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        Ok(self.model().summaries(lane, &ids))
    }

    async fn discard(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
    ) -> Result<usize> {
        Ok(self.model().discard(lane, state, &ids, outcome))
    }

    async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> {
        Ok(self.model().clear(lane, limit))
    }

    async fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> Result<LaneForecast> {
        Ok(self.model().forecast(lane, step, steps))
    }

    async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        Ok(self.model().notes(lane, id))
    }

    async fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Vec<bool>> {
        Ok(self.model().lend(lane, &ids, receipt, lease))
    }

    async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        let mut hints = Vec::new();
        let mut answers = Vec::new();
        for task in tasks {
            let whose = (task.topic.lane_of(task.id), task.destination.is_pull());
            let standing = task.standing;
            let adopted = self.model().adopt(task);
            if let (Ok(Adopted::New), AdoptedStanding::Waiting { due }) = (&adopted, standing) {
                hints.push((whose.0, whose.1, due));
            }
            answers.push(adopted);
        }
        self.hint(&hints);
        answers
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        self.model().set_hold(destination, is_held);
        Ok(())
    }

    async fn holds(&self) -> Result<Holds> {
        Ok(self.model().holds())
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        Ok(self.model().waiting_for_each(&lanes))
    }

    /// It has one structure, which cannot contradict itself.
    async fn check(&self, _: CheckCursor, _: bool) -> Result<CheckStep> {
        Ok(CheckStep::default())
    }
}

impl Maintenance for Reference {
    async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        self.model().forget_misfire(topic, misfire);
        Ok(())
    }

    async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        Ok(self.model().histories(&lanes))
    }

    async fn purge(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        Ok(self.model().purge(lane, most, state, before, limit))
    }

    async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        self.model().remove_contents(lane, ids);
        Ok(())
    }

    async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        let mut model = self.model();
        let of_topic = |known: &Registered| known.entry.topic == *topic && !known.has_schedules;
        let is_new = model.topics.all().iter().any(of_topic);
        model.topics.note_schedules(topic);
        Ok(is_new)
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        Ok(Vec::new())
    }
}

impl Schedules for Reference {
    async fn set_schedule(&self, topic: &TopicEntry, new: NewSchedule) -> Result<ScheduleSet> {
        let mut model = self.model();
        if model.register(topic.clone()) != *topic {
            return Err(Error::StaleEntry);
        }
        let lane = new.name.lane_in(&topic.topic, topic.shards);
        Ok(model.set_schedule_in(self.id, &lane, new))
    }

    async fn schedules(
        &self,
        _: Reader,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> Result<Vec<Option<Schedule>>> {
        let model = self.model();
        Ok(names.iter().map(|name| model.schedule(lane, name)).collect())
    }

    async fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Result<Vec<ScheduleName>> {
        Ok(self.model().schedule_names(lane, after.as_ref(), limit))
    }

    async fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Result<Option<Schedule>> {
        Ok(self.model().pause_schedule(lane, name, pause))
    }

    async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> {
        Ok(self.model().delete_schedule(lane, name))
    }

    async fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<bool> {
        Ok(self.model().forget_schedule(lane, name, revision))
    }

    async fn plan(&self, plan: Plan) -> Result<Planned> {
        let planned = self.model().plan(&plan);
        if let (Planned::Added { due, .. }, Some(next)) = (planned, &plan.next) {
            let lane = plan.name.lane_in(&plan.topic.topic, plan.topic.shards);
            self.hint(&[(lane, next.task.destination.is_pull(), due)]);
        }
        Ok(planned)
    }

    async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        Ok(self.model().due_schedules(lane, skip))
    }
}

impl Sampling for Reference {
    async fn sample(&self, query: SampleQuery) -> Result<SampleAnswer> {
        Ok(self.model().sample(&query))
    }

    async fn forget_instance(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

impl Audit for Reference {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        let mut audit = self.audit.lock().unwrap();
        audit.extend(entries);
        let excess = audit.len().saturating_sub(MAX_AUDIT);
        self.dropped.fetch_add(excess as u64, Ordering::Relaxed);
        audit.drain(..excess);
        Ok(())
    }

    async fn audit(&self, before: Option<AuditCursor>, limit: usize) -> Result<AuditLogged> {
        let (audit, dropped) = (self.audit.lock().unwrap(), self.dropped.load(Ordering::Relaxed));
        let end =
            before.map_or(audit.len(), |AuditCursor(at, _)| at.saturating_sub(dropped) as usize);
        let begin = end.saturating_sub(limit);
        let next = (begin > 0).then(|| AuditCursor(dropped + begin as u64, 0));
        Ok(AuditLogged { entries: audit[begin..end].iter().rev().cloned().collect(), next })
    }
}

impl Store for Reference {
    fn durability(&self) -> Durability {
        Durability::Volatile
    }

    async fn ping(&self) -> Result<UnixMillis> {
        Ok(self.model().now)
    }

    async fn close(&self) {}
}
