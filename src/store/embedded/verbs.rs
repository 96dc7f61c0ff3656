//! The contract of the store; each method sends its work to a thread. Writes go to the writer and
//! short reads to the readers. Reads that take longer the more is stored go to the thread for
//! scans.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, oneshot};

use super::disk::space::Meter;
use super::threads::queue;
use super::threads::write_queue::WriteQueue;
use super::write_tx::counts;
use super::{
    Embedded, PER_TASK, add, admin, audit, claim, contents, destination, find, forecast, forget,
    fsck, list, migration, note, query, sample, schedules, settle, topics, write_tx,
};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Receipt, State, StoreId, TaskId, Topic, TopicPolicy};
use crate::store::{
    Added, Admin, Adopted, Adoptee, Asker, AttemptNote, Audit, AuditCursor, AuditEntry,
    AuditLogged, Cancelled, Checked, Claim, Claimed, Cleared, Condition, Counts, Creator, Cursor,
    Delivery, Durability, Error, Forecast, Grant, Hint, Histories, Holds, Instance, Intake,
    LeasedTask, ListQuery, Listed, Look, Looked, Maintenance, Misfire, Misfired, Moment,
    NewContent, NewTask, NextDue, Registered, Rescheduled, Result, Revision, SampleQuery, Sampled,
    Sampling, Settle, Settled, Spread, Store, Summary, Task, TaskName, TopicEntry, Topics,
    Transition, Waiting,
};

/// How often tasks that were pulled too late are given back, and the first delay between two
/// attempts. Each next delay is three times as long; all attempts take about ten seconds.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(20);

impl Embedded {
    /// Topics, with the note of those that have schedules.
    fn with_schedules(&self, mut topics: Vec<Registered>) -> Vec<Registered> {
        self.recurring.mark(&mut topics);
        topics
    }

    /// A claim that a silent disk does not delay. Tasks that it takes after its caller has
    /// disconnected are given back without counting the attempt, because their lease may last for
    /// hours.
    async fn claim_for_caller(&self, slots: usize, claim: Claim) -> Result<Claimed> {
        let claiming = async {
            let (reply, claimed) = oneshot::channel();
            let writes = Arc::clone(&self.writes);
            self.claims.spawn(async move {
                let lane = claim.lane.clone();
                let claimed = writes.run(slots, move |tx| claim::claim(tx, &claim)).await;
                if let Err(Ok(Claimed::Granted(grant))) = reply.send(claimed)
                    && !grant.tasks.is_empty()
                {
                    give_back(&writes, &lane, grant).await;
                }
            });
            claimed.await.unwrap_or_else(|_| Err(queue::closed()))
        };
        self.writes.promptly(claiming).await
    }
}

async fn give_back(writes: &WriteQueue, lane: &Lane, Grant { receipt, tasks, .. }: Grant) {
    let release = |task: &LeasedTask| Settle {
        lane: lane.clone(),
        id: task.id,
        receipt: receipt.clone(),
        transition: Transition::Release,
    };
    let back: Vec<Settle> = tasks.iter().map(release).collect();
    let count = back.len();
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        let settles = back.clone();
        match writes.run(count, move |tx| settle::settle(tx, &settles)).await {
            Ok(_) => return,
            // The disk was silent a moment ago, so the queue may still be full.
            Err(Error::Unavailable(_) | Error::Full(_)) if attempt < TRIES => {
                tokio::time::sleep(wait).await
            }
            Err(error) => {
                tracing::warn!(
                    count,
                    %error,
                    "Tasks that were pulled too late could not be given back; they return when \
                     their leases expire"
                );
                return;
            }
        }
        wait *= 3;
    }
}

impl Delivery for Embedded {
    async fn look(&self, look: Look) -> Looked {
        // This store counts no revisions: the registry is read each time.
        let Look { seen: _, workers, consumers, planners, heartbeat } = look;
        let next =
            if workers.is_empty() { Ok(None) } else { self.next_due(workers).await.map(Some) };
        let pulls =
            if consumers.is_empty() { Ok(None) } else { self.next_pull(consumers).await.map(Some) };
        let plans = match planners.is_empty() {
            true => Ok(None),
            false => {
                let clock = self.clock.clone();
                let next = self.polls.run(move |db| schedules::next(db, &planners, clock.now()));
                next.await.map(Some)
            }
        };
        let holds = self.holds().await;
        let meter = self.meter.clone();
        // Last: a pause that has been read must not wait for the others.
        let registry = self.polls.run(move |db| {
            // A thread that reads may wait for the disk.
            meter.iter().for_each(Meter::measure);
            topics::topics(db)
        });
        let registry =
            registry.await.map(|topics| Some((Revision::default(), self.with_schedules(topics))));
        let now = self.clock.now();
        let instances = heartbeat.map(|own| Instance { seen: now, ..own }).into_iter().collect();
        let (unknown, unanswered, instances) = (Vec::new(), Vec::new(), Ok(instances));
        Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances }
    }

    async fn id(&self) -> Result<StoreId> {
        Ok(self.id)
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let slots = claim.wants.iter().map(|want| want.slots).fold(1, usize::saturating_add);
        // A power cut may undo a worker's lease, because its process is gone then too. A consumer's
        // lease has to survive both.
        match claim.holder {
            Some(_) => self.writes.run_undoable(slots, move |tx| claim::claim(tx, &claim)).await,
            None => self.claim_for_caller(slots, claim).await,
        }
    }

    async fn settle(&self, asker: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let count = settles.len();
        let work = move |tx: &mut write_tx::WriteTx<'_>| settle::settle(tx, &settles);
        let settled = match asker {
            Asker::Worker => self.writes.run_deferrable(count, work).await,
            Asker::Caller => self.writes.ask(count, work).await,
        };
        match settled {
            Ok(settled) => settled.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); count],
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
        let (lane, receipt) = (lane.clone(), receipt.clone());
        let work =
            move |tx: &mut write_tx::WriteTx<'_>| settle::extend(tx, &lane, id, &receipt, lease);
        match asker {
            Asker::Worker => self.writes.run_undoable(1, work).await,
            Asker::Caller => self.writes.ask(1, work).await,
        }
    }

    async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        // Notes need room, and are the first to be refused on a disk that is short of room.
        let bytes = notes.iter().map(note::bytes).sum();
        self.writes.add_undoable(notes.len(), bytes, move |tx| note::note(tx, &notes)).await
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        let clock = self.clock.clone();
        self.polls.run(move |db| query::next_due(db, &lanes, true, clock.now())).await
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        let clock = self.clock.clone();
        self.polls.run(move |db| query::next_due(db, &lanes, false, clock.now())).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }
}

impl Intake for Embedded {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }

    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let count = tasks.len();
        let bytes = tasks.iter().map(|task| task.content.len() + add::bytes_beside(task)).sum();
        match self.writes.add(count, bytes, move |tx| add::add(tx, &tasks)).await {
            Ok(added) => added,
            Err(error) => vec![Err(error); count],
        }
    }
}

impl Topics for Embedded {
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.reads.run(move |db| list::list(db, &query)).await
    }

    async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.reads.run(move |db| list::list_latest(db, &query)).await
    }

    async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        let (topic, policy) = (topic.clone(), policy.clone());
        self.writes.ask(1, move |tx| topics::set_policy(tx, &topic, &policy)).await
    }

    async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        let topic = topic.clone();
        self.writes.ask(1, move |tx| topics::pause(tx, &topic)).await
    }

    async fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Result<Option<bool>> {
        let topic = topic.clone();
        self.writes.ask(1, move |tx| topics::resume(tx, &topic, becomes)).await
    }

    async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        let entry = entry.clone();
        self.writes.ask(1, move |tx| topics::unregister(tx, &entry)).await
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        let lane = lane.clone();
        self.reads.run(move |db| counts::stats(db, &lane)).await
    }

    async fn create(&self, entry: TopicEntry, creator: Option<Creator>) -> Result<TopicEntry> {
        // Known topics are registered repeatedly. That writes nothing, even on a full disk.
        let topic = entry.topic.clone();
        if let Some(known) = self.polls.run(move |db| topics::topic(db, &topic)).await? {
            return Ok(known);
        }
        let create =
            move |tx: &mut write_tx::WriteTx<'_>| topics::create(tx, &entry, creator.as_ref());
        self.writes.add(1, PER_TASK, create).await?.ok_or(Error::CreatorLimit)
    }

    async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        let topic = topic.clone();
        let found = self.polls.run(move |db| topics::registered(db, &topic)).await?;
        Ok(self.with_schedules(found.into_iter().collect()).pop())
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        Ok(self.with_schedules(self.polls.run(topics::topics).await?))
    }
}

impl Admin for Embedded {
    async fn cancel_if(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> Result<Cancelled> {
        let (lane, only) = (lane.clone(), only.cloned());
        self.writes.ask(1, move |tx| admin::cancel(tx, &lane, id, only.as_ref())).await
    }

    async fn reschedule_if(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let (lane, only) = (lane.clone(), only.cloned());
        let larger = content.as_ref().map(|new| new.content.len());
        let work = move |tx: &mut write_tx::WriteTx<'_>| {
            admin::reschedule(tx, &lane, (id, only.as_ref()), moment, content.as_ref())
        };
        match larger {
            Some(bytes) => self.writes.add(1, bytes, work).await,
            None => self.writes.ask(1, work).await,
        }
    }

    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.polls.run(move |db| query::get(db, &lane, id, clock.now())).await
    }

    async fn find(&self, name: &TaskName, lanes: Vec<Lane>) -> Result<Vec<Option<TaskId>>> {
        let (name, clock) = (name.clone(), self.clock.clone());
        // A change of a task by its key looks into one lane, and a viewer into those of all topics.
        let reader = if lanes.len() == 1 { &self.polls } else { &self.reads };
        reader.run(move |db| find::find(db, &name, &lanes, clock.now())).await
    }

    async fn summaries(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.reads.run(move |db| query::summaries(db, &lane, &ids, clock.now())).await
    }

    async fn replay_if(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
        spread: Spread,
    ) -> Result<usize> {
        let (lane, outcome, weight) = (lane.clone(), outcome.map(str::to_owned), ids.len());
        self.writes
            .ask(weight, move |tx| admin::replay(tx, &lane, &ids, outcome.as_deref(), spread))
            .await
    }

    async fn discard_if(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
    ) -> Result<usize> {
        let (lane, outcome, weight) = (lane.clone(), outcome.map(str::to_owned), ids.len());
        self.writes
            .ask(weight, move |tx| forget::discard(tx, &lane, state, &ids, outcome.as_deref()))
            .await
    }

    async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> {
        let lane = lane.clone();
        self.writes.ask(limit, move |tx| forget::clear(tx, &lane, limit)).await
    }

    async fn forecast(&self, lane: &Lane, step: Duration, steps: usize) -> Result<Forecast> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.scans.run(move |db| forecast::forecast(db, &lane, step, steps, clock.now())).await
    }

    async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        let lane = lane.clone();
        self.reads.run(move |db| note::notes(db, &lane, id)).await
    }

    async fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Vec<bool>> {
        let (lane, receipt) = (lane.clone(), receipt.clone());
        self.writes
            .ask(ids.len(), move |tx| migration::lend(tx, &lane, &ids, &receipt, lease))
            .await
    }

    async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        let count = tasks.len();
        let bytes = tasks.iter().map(|task| task.content.len() + PER_TASK).sum();
        match self.writes.add(count, bytes, move |tx| migration::adopt(tx, &tasks)).await {
            Ok(adopted) => adopted,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        let destination = destination.clone();
        self.writes.ask(1, move |tx| destination::set_hold(tx, &destination, is_held)).await
    }

    async fn holds(&self) -> Result<Holds> {
        let held = self.polls.run(destination::holds).await?;
        Ok(Holds { held, released: Vec::new() })
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        self.scans.run(move |db| destination::waiting(db, &lanes)).await
    }

    async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        fsck::check(self, from, repair).await
    }
}

impl Maintenance for Embedded {
    async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        let topic = topic.clone();
        self.writes.run(1, move |tx| topics::forget_misfire(tx, &topic, misfire)).await
    }

    async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        let clock = self.clock.clone();
        self.scans.run(move |db| counts::histories(db, &lanes, clock.now())).await
    }

    async fn purge_beyond(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        let lane = lane.clone();
        self.writes
            .run(limit, move |tx| forget::purge(tx, &lane, most, (state, before), limit))
            .await
    }

    async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        let mut ids = ids.to_vec();
        while !ids.is_empty() {
            let (lane, left) = (lane.clone(), ids.clone());
            let seen =
                self.writes.run(ids.len(), move |tx| contents::remove(tx, &lane, &left)).await?;
            ids.drain(..seen);
        }
        Ok(())
    }

    async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        Ok(self.recurring.note(topic))
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        self.writes.run(1, topics::recover_topics).await
    }
}

impl Sampling for Embedded {
    async fn sample(&self, query: SampleQuery) -> Result<Sampled> {
        let clock = self.clock.clone();
        let reader = if query.is_thorough { &self.scans } else { &self.reads };
        reader.run(move |db| sample::sample(db, &query, clock.now())).await
    }

    /// There is one instance, and none is remembered.
    async fn forget_instance(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

impl Audit for Embedded {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        let lines: Vec<String> = entries.iter().map(audit::line).collect();
        // As notes, they are among the first to be refused on a disk that is short of room.
        let bytes = lines.iter().map(|line| line.len() + PER_TASK).sum();
        self.writes.add(lines.len(), bytes, move |tx| audit::record(tx, &lines)).await
    }

    async fn audit(&self, before: Option<AuditCursor>, limit: usize) -> Result<AuditLogged> {
        self.reads.run(move |db| audit::audit(db, before, limit)).await
    }
}

impl Store for Embedded {
    async fn ping(&self) -> Result<UnixMillis> {
        let clock = self.clock.clone();
        self.polls.run(move |_| Ok(clock.now())).await
    }

    async fn close(&self) {
        self.claims.close();
        self.claims.wait().await;
        self.close_queues();
        let mut threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if tokio::task::spawn_blocking(move || threads.join()).await.is_err() {
            tracing::warn!("The embedded store's threads did not end in order");
        }
    }
}
