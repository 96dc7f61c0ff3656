//! The contract of the store; each method calls the file that has its commands.

use std::time::Duration;

use tokio::sync::broadcast;

use super::query::Direction;
use super::registry::{entry, reconcile, recover, topic};
use super::{
    Redis, admin, audit, claim, contents, destination, find, forget, fsck, identity, instances,
    migration, note, ping, poll, query, sample, schedules, settle,
};
use crate::model::breaker;
use crate::model::clock::UnixMillis;
use crate::model::task::{
    Destination, Lane, Receipt, ScheduleName, State, StoreId, TaskId, Topic, TopicPolicy,
};
use crate::store::{
    Added, Admin, Adopted, Adoptee, Asker, AttemptNote, Audit, AuditCursor, AuditEntry,
    AuditLogged, Cancelled, Checked, Claim, Claimed, Cleared, Condition, Counts, Creator, Cursor,
    Delivery, DueSchedules, Durability, Forecast, Hint, Histories, Holds, Intake, ListQuery,
    Listed, Look, Looked, Maintenance, Message, Misfire, Misfired, Moment, NewContent, NewSchedule,
    NewTask, NextDue, Pause, Plan, Planned, Registered, Rescheduled, Result, SampleQuery, Sampled,
    Sampling, Schedule, ScheduleSet, Schedules, Settle, Settled, Spread, Store, Summary, Task,
    TaskName, TopicEntry, Topics, Waiting,
};

impl Delivery for Redis {
    async fn id(&self) -> Result<StoreId> {
        identity::id(&self.session).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim::claim(&self.session, &claim).await
    }

    async fn settle(&self, asker: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        settle::settle(&self.session, self.session.route_of(asker), &settles).await
    }

    fn server_of(&self, lane: &Lane) -> u64 {
        self.session.servers.number_of(lane)
    }

    fn round_trip(&self, lane: &Lane) -> Duration {
        self.session.round_trip(lane)
    }

    async fn extend(
        &self,
        asker: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        let route = self.session.route_of(asker);
        settle::extend(&self.session, route, lane, (id, receipt), lease).await
    }

    async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        note::note(&self.session, &notes).await
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        poll::next(&self.session, poll::Audience::Workers, &lanes).await
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        poll::next(&self.session, poll::Audience::Consumers, &lanes).await
    }

    async fn look(&self, look: Look) -> Looked {
        poll::each_second(&self.session, &look).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.session.hints.subscribe()
    }

    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        Some(self.session.hints.messages())
    }

    fn subscription(&self) -> Option<u64> {
        self.session.hints.subscription()
    }

    fn tell_others(&self, message: Message) {
        self.session.hints.tell_others(message);
    }
}

impl Intake for Redis {
    fn durability(&self) -> Durability {
        self.session.servers.durability()
    }

    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        self.adders.add(tasks).await
    }
}

impl Topics for Redis {
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        query::list(&self.session, &query, Direction::Forward).await
    }

    async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        query::list(&self.session, &query, Direction::Back).await
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        query::stats(&self.session, lane).await
    }

    async fn create(&self, entry: TopicEntry, creator: Option<Creator>) -> Result<TopicEntry> {
        entry::create(&self.session, &entry, creator.as_ref()).await
    }

    async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        topic::topic(&self.session, topic).await
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        topic::topics(&self.session).await
    }

    async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        topic::set_policy(&self.session, topic, policy).await
    }

    async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        topic::pause(&self.session, topic).await
    }

    async fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Result<Option<bool>> {
        topic::resume(&self.session, topic, becomes).await
    }

    async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        topic::unregister(&self.session, entry).await
    }
}

impl Admin for Redis {
    async fn cancel_if(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> Result<Cancelled> {
        admin::cancel(&self.session, lane, id, only).await
    }

    async fn reschedule_if(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let moved =
            admin::reschedule(&self.session, lane, (id, only), moment, content.as_ref()).await?;
        if let Rescheduled::Done { due } = moved {
            self.session.hints.tell_all(lane, due);
        }
        Ok(moved)
    }

    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        query::get(&self.session, lane, id).await
    }

    async fn find(&self, name: &TaskName, lanes: Vec<Lane>) -> Result<Vec<Option<TaskId>>> {
        find::find(&self.session, name, &lanes).await
    }

    async fn summaries(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        query::summaries(&self.session, lane, &ids).await
    }

    async fn replay_if(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
        spread: Spread,
    ) -> Result<usize> {
        let count = admin::replay(&self.session, lane, &ids, outcome, spread).await?;
        if count > 0 {
            self.session.hints.tell_all(lane, self.session.clock.now() + spread.first);
        }
        Ok(count)
    }

    async fn discard_if(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
    ) -> Result<usize> {
        forget::discard(&self.session, lane, state, &ids, outcome).await
    }

    async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> {
        forget::clear(&self.session, lane, limit).await
    }

    async fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> Result<Forecast> {
        query::forecast(&self.session, lane, step, steps).await
    }

    async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        note::notes(&self.session, lane, id).await
    }

    async fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Vec<bool>> {
        migration::lend(&self.session, lane, &ids, receipt, lease).await
    }

    async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        reconcile::adopt(&self.session, &tasks).await
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        destination::set_hold(&self.session, destination, is_held).await
    }

    async fn holds(&self) -> Result<Holds> {
        destination::holds(&self.session).await
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        destination::waiting(&self.session, &lanes).await
    }

    async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        fsck::check(&self.session, from, repair).await
    }
}

impl Schedules for Redis {
    async fn set_schedule(&self, topic: &TopicEntry, new: NewSchedule) -> Result<ScheduleSet> {
        schedules::set(&self.session, topic, &new).await
    }

    async fn schedules(
        &self,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> Result<Vec<Option<Schedule>>> {
        schedules::read(&self.session, lane, &names).await
    }

    async fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Result<Vec<ScheduleName>> {
        schedules::names(&self.session, lane, after.as_ref(), limit).await
    }

    async fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> Result<Option<Schedule>> {
        schedules::pause(&self.session, lane, name, pause).await
    }

    async fn delete_schedule(&self, lane: &Lane, name: &ScheduleName) -> Result<bool> {
        schedules::delete(&self.session, lane, name).await
    }

    async fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<bool> {
        schedules::forget(&self.session, lane, name, revision).await
    }

    async fn plan(&self, plan: Plan) -> Result<Planned> {
        schedules::plan(&self.session, &plan).await
    }

    async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        schedules::due(&self.session, lane, skip).await
    }
}

impl Maintenance for Redis {
    async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        poll::histories(&self.session, &lanes).await
    }

    async fn purge_beyond(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        forget::purge(&self.session, lane, most, (state, before), limit).await
    }

    async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        contents::remove(&self.session, lane, ids).await
    }

    async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        topic::forget_misfire(&self.session, topic, misfire).await
    }

    async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        topic::note_schedules(&self.session, topic).await
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        recover::recover(&self.session).await
    }
}

impl Sampling for Redis {
    async fn sample(&self, query: SampleQuery) -> Result<Sampled> {
        sample::sample(&self.session, &query).await
    }

    async fn forget_instance(&self, id: &str) -> Result<()> {
        instances::forget(&self.session, id).await
    }
}

impl Audit for Redis {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        audit::record(&self.session, &entries).await
    }

    async fn audit(&self, before: Option<AuditCursor>, limit: usize) -> Result<AuditLogged> {
        audit::audit(&self.session, before, limit).await
    }
}

impl Store for Redis {
    fn breaker(&self) -> breaker::State {
        self.session.servers.breaker()
    }

    async fn ping(&self) -> Result<UnixMillis> {
        ping::ping(&self.session).await
    }

    async fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
