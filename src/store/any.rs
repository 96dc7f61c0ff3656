//! The store that was picked at start. Its calls are measured here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::Instant;

use super::{
    Added, Admin, Adopted, Adoptee, Asker, AttemptNote, Audit, AuditCursor, AuditEntry,
    AuditLogged, Cancelled, Checked, Claim, Claimed, Cleared, Condition, Counts, Creator, Cursor,
    Delivery, DueSchedules, Durability, Error, Forecast, Hint, Histories, Holds, Intake, ListQuery,
    Listed, Look, Looked, Maintenance, Message, Misfire, Misfired, Moment, NewContent, NewSchedule,
    NewTask, NextDue, PING_TIMEOUT, Pause, Plan, Planned, Registered, Rescheduled, Result,
    SampleQuery, Sampled, Sampling, Schedule, ScheduleSet, Schedules, Settle, Settled, Spread,
    Store, Summary, Task, TaskName, TopicEntry, Topics, Waiting, counted, embedded, redis,
};
use crate::metrics::{Op, StoreMetrics};
use crate::model::breaker;
use crate::model::clock::UnixMillis;
use crate::model::task::{
    Destination, Lane, Receipt, ScheduleName, State, StoreId, TaskId, Topic, TopicPolicy,
};

/// One of the two stores.
#[derive(Debug)]
pub enum AnyStore {
    /// SQLite in this process.
    Embedded(embedded::Embedded),
    /// Redis.
    Redis(redis::Redis),
}

impl AnyStore {
    /// Its name in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Redis(_) => "redis",
        }
    }

    /// What this store counts.
    pub fn metrics(&self) -> &Arc<StoreMetrics> {
        match self {
            Self::Embedded(store) => store.metrics(),
            Self::Redis(store) => store.metrics(),
        }
    }
}

/// Calls a method of whichever store it is, and measures the call. The future is boxed: those of
/// the stores are deep, and their callers' would be deeper.
macro_rules! either {
    ($store:expr, $op:ident, $verb:ident($($argument:expr),*)) => {{
        let began = Instant::now();
        let answer = match $store {
            AnyStore::Embedded(store) => Box::pin(store.$verb($($argument),*)).await,
            AnyStore::Redis(store) => Box::pin(store.$verb($($argument),*)).await,
        };
        counted::count($store.metrics(), Op::$op, began, &answer);
        answer
    }};
}

impl Delivery for AnyStore {
    async fn id(&self) -> Result<StoreId> {
        match self {
            Self::Embedded(store) => store.id().await,
            Self::Redis(store) => store.id().await,
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let claimed = either!(self, Claim, claim(claim));
        if let Ok(claimed) = &claimed {
            counted::count_claim(self.metrics(), claimed);
        }
        claimed
    }

    async fn settle(&self, asker: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        either!(self, Settle, settle(asker, settles))
    }

    fn server_of(&self, lane: &Lane) -> u64 {
        match self {
            Self::Embedded(store) => store.server_of(lane),
            Self::Redis(store) => store.server_of(lane),
        }
    }

    fn round_trip(&self, lane: &Lane) -> Duration {
        match self {
            Self::Embedded(store) => store.round_trip(lane),
            Self::Redis(store) => store.round_trip(lane),
        }
    }

    async fn extend(
        &self,
        asker: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        either!(self, Extend, extend(asker, lane, id, receipt, lease))
    }

    async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        either!(self, Note, note(notes))
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        either!(self, Poll, next_due(lanes))
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        either!(self, Poll, next_pull(lanes))
    }

    async fn look(&self, look: Look) -> Looked {
        either!(self, Poll, look(look))
    }

    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        match self {
            Self::Embedded(store) => store.messages(),
            Self::Redis(store) => store.messages(),
        }
    }

    fn subscription(&self) -> Option<u64> {
        match self {
            Self::Embedded(store) => store.subscription(),
            Self::Redis(store) => store.subscription(),
        }
    }

    fn tell_others(&self, message: Message) {
        match self {
            Self::Embedded(store) => store.tell_others(message),
            Self::Redis(store) => store.tell_others(message),
        }
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        match self {
            Self::Embedded(store) => store.hints(),
            Self::Redis(store) => store.hints(),
        }
    }
}

impl Intake for AnyStore {
    fn durability(&self) -> Durability {
        match self {
            Self::Embedded(store) => store.durability(),
            Self::Redis(store) => store.durability(),
        }
    }

    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        either!(self, Add, add(tasks))
    }
}

impl Topics for AnyStore {
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        either!(self, Read, list(query))
    }

    async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        either!(self, Read, list_latest(query))
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        either!(self, Read, stats(lane))
    }

    async fn create(&self, entry: TopicEntry, creator: Option<Creator>) -> Result<TopicEntry> {
        either!(self, Change, create(entry, creator))
    }

    async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        either!(self, Read, topic(topic))
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        either!(self, Read, topics())
    }

    async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        either!(self, Change, set_policy(topic, policy))
    }

    async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        either!(self, Change, pause(topic))
    }

    async fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Result<Option<bool>> {
        either!(self, Change, resume(topic, becomes))
    }

    async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        either!(self, Change, unregister(entry))
    }
}

impl Admin for AnyStore {
    async fn cancel_if(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> Result<Cancelled> {
        either!(self, Change, cancel_if(lane, id, only))
    }

    async fn reschedule_if(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        either!(self, Change, reschedule_if(lane, id, only, moment, content))
    }

    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        either!(self, Read, get(lane, id))
    }

    async fn find(&self, name: &TaskName, lanes: Vec<Lane>) -> Result<Vec<Option<TaskId>>> {
        either!(self, Read, find(name, lanes))
    }

    async fn summaries(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        either!(self, Read, summaries(lane, ids))
    }

    async fn replay_if(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
        spread: Spread,
    ) -> Result<usize> {
        either!(self, Change, replay_if(lane, ids, outcome, spread))
    }

    async fn discard_if(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
    ) -> Result<usize> {
        either!(self, Change, discard_if(lane, state, ids, outcome))
    }

    async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> {
        either!(self, Change, clear(lane, limit))
    }

    async fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> Result<Forecast> {
        either!(self, Read, forecast(lane, step, steps))
    }

    async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        either!(self, Read, notes(lane, id))
    }

    async fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Vec<bool>> {
        either!(self, Migrate, lend(lane, ids, receipt, lease))
    }

    async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        either!(self, Migrate, adopt(tasks))
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        either!(self, Change, set_hold(destination, is_held))
    }

    async fn holds(&self) -> Result<Holds> {
        either!(self, Read, holds())
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        either!(self, Read, waiting(lanes))
    }

    async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        either!(self, Maintain, check(from, repair))
    }
}

impl Schedules for AnyStore {
    async fn set_schedule(&self, topic: &TopicEntry, new: NewSchedule) -> Result<ScheduleSet> {
        either!(self, Change, set_schedule(topic, new))
    }

    async fn schedules(
        &self,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> Result<Vec<Option<Schedule>>> {
        either!(self, Read, schedules(lane, names))
    }

    async fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Result<Vec<ScheduleName>> {
        either!(self, Read, schedule_names(lane, after, limit))
    }

    async fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Result<Option<Schedule>> {
        either!(self, Change, pause_schedule(lane, name, pause))
    }

    async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> {
        either!(self, Change, delete_schedule(lane, name))
    }

    async fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<bool> {
        either!(self, Migrate, forget_schedule(lane, name, revision))
    }

    async fn plan(&self, plan: Plan) -> Result<Planned> {
        either!(self, Add, plan(plan))
    }

    async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        either!(self, Poll, due_schedules(lane, skip))
    }
}

impl Maintenance for AnyStore {
    async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        either!(self, Maintain, histories(lanes))
    }

    async fn purge_beyond(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        either!(self, Maintain, purge_beyond(lane, most, state, before, limit))
    }

    async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        either!(self, Maintain, remove_contents(lane, ids))
    }

    async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        either!(self, Maintain, forget_misfire(topic, misfire))
    }

    async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        either!(self, Maintain, mark_schedules(topic))
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        either!(self, Maintain, recover_topics())
    }
}

impl Sampling for AnyStore {
    async fn sample(&self, query: SampleQuery) -> Result<Sampled> {
        either!(self, Sample, sample(query))
    }

    async fn forget_instance(&self, id: &str) -> Result<()> {
        either!(self, Change, forget_instance(id))
    }
}

impl Audit for AnyStore {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        either!(self, Maintain, record(entries))
    }

    async fn audit(&self, before: Option<AuditCursor>, limit: usize) -> Result<AuditLogged> {
        either!(self, Read, audit(before, limit))
    }
}

impl Store for AnyStore {
    fn breaker(&self) -> breaker::State {
        match self {
            Self::Embedded(store) => store.breaker(),
            Self::Redis(store) => store.breaker(),
        }
    }

    async fn ping(&self) -> Result<UnixMillis> {
        let began = Instant::now();
        let ping = async {
            match self {
                Self::Embedded(store) => Box::pin(store.ping()).await,
                Self::Redis(store) => Box::pin(store.ping()).await,
            }
        };
        let silent = |_| Err(Error::Unavailable("no answer to a ping".into()));
        let answer = tokio::time::timeout(PING_TIMEOUT, ping).await.unwrap_or_else(silent);
        counted::count(self.metrics(), Op::Ping, began, &answer);
        answer
    }

    async fn close(&self) {
        match self {
            Self::Embedded(store) => Box::pin(store.close()).await,
            Self::Redis(store) => Box::pin(store.close()).await,
        }
    }
}
