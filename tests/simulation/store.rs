//! The store as one instance sees it: slow, lossy, sometimes unavailable.
//!
//! Each request ends in one of these ways:
//!
//! ```text
//! done, answered        refused: not done       lost: done, no answer
//! late: no answer, done long after              silent: no answer, never done
//! twice: done, done again, the second answer
//! ```
//!
//! Only a running instance sends requests and receives answers. A request that was sent before the
//! instance died still reaches the store.

use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Lane, Receipt, State, StoreId, TaskId, Topic, TopicPolicy};
use delayd::store::{
    Added, Asker, AttemptNote, Cancelled, Claim, Claimed, Counts, Creator, Delivery, Error, Hint,
    Histories, Instance, ListQuery, Listed, Look, Looked, Maintenance, Message, Misfire, Misfired,
    Moment, NewContent, NewTask, NextDue, Registered, Rescheduled, Result, Revision, Settle,
    Settled, Signals, TaskName, TopicEntry, Topics, Transition,
};
use tokio::sync::broadcast;
use tokio::time::sleep;

use crate::checker::MOST_REQUESTS;
use crate::dice::Throw;
use crate::history::What;
use crate::life::Life;
use crate::plan::Ailment;
use crate::sabotage::Sabotage;
use crate::world::World;

mod recurring;

/// How long a caller waits for a silent store.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a request ends.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Done,
    Refused,
    Lost,
    Late { after: Duration },
    Silent,
    Twice { gap: Duration },
}

/// The access of one life to the store.
#[derive(Debug)]
pub(crate) struct Access {
    world: Arc<World>,
    life: Arc<Life>,
    /// The last edition of the registry that was received.
    edition: AtomicU32,
    /// The lanes of the last look. Only a sabotage uses them.
    looked: Mutex<Vec<Lane>>,
}

impl Access {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>) -> Self {
        Self { world, life, edition: AtomicU32::new(0), looked: Mutex::default() }
    }

    /// Sends its instance a hint of a task that waits again.
    fn hint(&self, settle: &Settle, settled: Settled) {
        let due = match &settle.transition {
            Transition::Retry { due, .. } => *due,
            Transition::Release => Moment::After(Duration::ZERO),
            _ => return,
        };
        if settled == Settled::Done {
            let due = due.due(self.world.clock.now());
            // A dead instance does not receive it.
            let _ = self.life.hints.send(Hint { lane: settle.lane.clone(), due, is_pull: false });
        }
    }

    /// Lets the store do something, or not. `about` identifies the request among those of its verb.
    async fn ask<T, F>(&self, verb: &'static str, about: impl Hash + Send, act: F) -> Result<T>
    where
        T: Send,
        F: Fn(&World) -> T + Send + Sync + 'static,
    {
        self.life.runs().await;
        if self.world.count_request(self.life.id) > 10 * MOST_REQUESTS {
            // It would spin for ever, and time would not go on.
            self.life.kill();
            self.life.runs().await;
        }
        let mut throw = self.world.dice.throw((verb, self.life.id, about));
        let fate = self.fate(verb, &mut throw);
        self.travel(verb, &mut throw).await;
        let unavailable = |why: &str| Err(Error::Unavailable(why.into()));
        let answer = match fate {
            Fate::Done => Ok(act(&self.world)),
            Fate::Refused => unavailable("refused"),
            Fate::Lost => {
                drop(act(&self.world));
                unavailable("the answer was lost")
            }
            Fate::Late { after } => {
                let world = self.world.clone();
                world.late.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    sleep(after).await;
                    drop(act(&world));
                    world.late.fetch_sub(1, Ordering::Relaxed);
                });
                sleep(PATIENCE).await;
                unavailable("silent; done later")
            }
            Fate::Silent => {
                sleep(PATIENCE).await;
                unavailable("silent")
            }
            Fate::Twice { gap } => {
                drop(act(&self.world));
                sleep(gap).await;
                Ok(act(&self.world))
            }
        };
        self.travel(verb, &mut throw).await;
        self.life.runs().await;
        answer
    }

    fn fate(&self, verb: &'static str, throw: &mut Throw) -> Fate {
        let fate = match (self.world.ailment_of(&self.life), verb) {
            (Some(Ailment::FailingClaims), "claim") => Fate::Refused,
            (Some(Ailment::ServerAway), "settle" | "extend") => Fate::Refused,
            _ => self.draw_fate(throw),
        };
        let how = match fate {
            Fate::Done => return fate,
            Fate::Refused => "refused",
            Fate::Lost => "done, answer lost",
            Fate::Late { .. } => "done late, no answer",
            Fate::Silent => "silent, not done",
            Fate::Twice { .. } => "done twice",
        };
        self.world.write(What::StoreFailed { by: self.life.id, verb, how });
        fate
    }

    fn draw_fate(&self, throw: &mut Throw) -> Fate {
        if self.world.is_healed() {
            return Fate::Done;
        }
        let at = self.world.elapsed();
        let plan = &self.world.plan;
        if let Some(outage) =
            plan.outages.iter().find(|outage| (outage.from..outage.to).contains(&at))
        {
            let may_be_late = outage.is_silent && throw.per_mille(500);
            return match outage.is_silent {
                true if may_be_late => Fate::Late { after: outage.to - at },
                true => Fate::Silent,
                false => Fate::Refused,
            };
        }
        if !throw.per_mille(plan.store.share) {
            return Fate::Done;
        }
        match throw.between(0, 7) {
            0 | 1 => Fate::Refused,
            2..=4 => Fate::Lost,
            5 => Fate::Late { after: throw.millis(1, 12_000) },
            6 => Fate::Silent,
            _ => Fate::Twice { gap: throw.millis(0, 1_500) },
        }
    }

    /// The latency of a request or an answer.
    async fn travel(&self, verb: &'static str, throw: &mut Throw) {
        let usual = self.world.plan.store.latency_ms;
        let is_slow =
            self.world.plan.store.share > 0 && !self.world.is_healed() && throw.per_mille(20);
        if is_slow {
            self.world.write(What::StoreFailed { by: self.life.id, verb, how: "slow" });
        }
        let most = if is_slow { usual * 10 } else { usual };
        match throw.millis(0, most) {
            Duration::ZERO => tokio::task::yield_now().await,
            way => sleep(way).await,
        }
    }
}

/// The requests of a deployment's clients.
impl Access {
    pub(crate) async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let count = tasks.len();
        let about: Vec<String> = tasks.iter().map(|task| task.content.clone()).collect();
        let stored = self.ask("add", about, move |world| {
            tasks.iter().cloned().map(|task| world.add(task)).collect()
        });
        match stored.await {
            Ok::<Vec<Result<Added>>, _>(added) => added,
            Err(error) => vec![Err(error); count],
        }
    }

    pub(crate) async fn cancel(
        &self,
        lane: &Lane,
        id: TaskId,
        name: Option<&TaskName>,
    ) -> Result<Cancelled> {
        let (lane, name) = (lane.clone(), name.cloned());
        self.ask("cancel", id, move |world| world.cancel(&lane, id, name.as_ref())).await
    }

    pub(crate) async fn find(&self, lane: &Lane, name: &TaskName) -> Result<Option<TaskId>> {
        let (lane, name) = (lane.clone(), name.clone());
        let about = name.text().into_owned();
        self.ask("find", about, move |world| world.look(|model| model.find(&name, &lane))).await
    }

    pub(crate) async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let lane = lane.clone();
        self.ask("reschedule", id, move |world| {
            world.reschedule(&lane, id, moment, content.clone())
        })
        .await
    }

    pub(crate) async fn replay(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<usize> {
        let lane = lane.clone();
        self.ask("replay", ids.clone(), move |world| world.replay(&lane, &ids)).await
    }
}

impl Signals for Access {
    async fn id(&self) -> Result<StoreId> {
        Ok(StoreId(1))
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.life.hints.subscribe()
    }

    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        Some(self.life.messages.subscribe())
    }

    fn tell_others(&self, message: Message) {
        let is_known = matches!(message, Message::Due { .. });
        if !self.life.is_dead() && (is_known || !self.world.is_of_old_version(&self.life)) {
            self.world.tell_others(self.life.id, &message);
        }
    }
}

impl Delivery for Access {
    async fn look(&self, look: Look) -> Looked {
        let Look { seen: _, mut workers, consumers, planners, heartbeat } = look;
        if self.world.is_sabotaged(Sabotage::TurnsUnused) {
            // Only what it looks at twice in a row.
            let before = std::mem::replace(&mut *self.looked.lock().unwrap(), workers.clone());
            workers.retain(|lane| before.contains(lane));
        }
        let next =
            if workers.is_empty() { Ok(None) } else { self.next_due(workers).await.map(Some) };
        let pulls =
            if consumers.is_empty() { Ok(None) } else { self.next_pull(consumers).await.map(Some) };
        let holds = self.ask("holds", (), |world| world.look(|model| model.holds())).await;
        let is_old = self.world.is_of_old_version(&self.life);
        let heartbeat = heartbeat.map(|own| Instance { divides: own.divides && !is_old, ..own });
        let own = self.life.id.0;
        let instances = match heartbeat {
            Some(own) => self.ask("heartbeat", (), move |world| world.beat(&own)).await,
            None => Ok(Vec::new()),
        };
        // An earlier version takes no notice of the others.
        let instances = instances.map(|mut living| {
            living.retain(|one| !is_old || one.id == format!("{own:016x}"));
            living
        });
        let plans = match planners.is_empty() {
            true => Ok(None),
            false => self
                .ask("plans", (), move |world| world.look(|model| model.next_plans(&planners)))
                .await
                .map(Some),
        };
        // Last: a pause that has been read must not wait for the others.
        let registry = self.topics().await.map(|topics| Some((Revision::default(), topics)));
        let (unknown, unanswered) = (Vec::new(), Vec::new());
        Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        // One token for the request, however often it is sent.
        let number = self.world.dice.throw(("receipt", self.life.id, &claim.lane)).number();
        let receipt: Receipt = format!("{number:016x}").parse().expect("digits make a receipt");
        let (by, sent) = (self.life.id, self.world.events());
        self.ask("claim", claim.lane.clone(), move |world| {
            world.claim((by, sent), &claim, &receipt)
        })
        .await
    }

    async fn settle(&self, _: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let by = self.life.id;
        let about: Vec<TaskId> = settles.iter().map(|settle| settle.id).collect();
        let count = settles.len();
        let asked = settles.clone();
        let settled = self.ask("settle", about, move |world| {
            settles.iter().map(|settle| world.settle(by, settle)).collect()
        });
        match settled.await {
            Ok::<Vec<Settled>, _>(settled) => {
                asked
                    .iter()
                    .zip(&settled)
                    .for_each(|(settle, settled)| self.hint(settle, *settled));
                settled.into_iter().map(Ok).collect()
            }
            Err(error) => vec![Err(error); count],
        }
    }

    async fn extend(
        &self,
        _: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        let (by, lane, receipt) = (self.life.id, lane.clone(), receipt.clone());
        self.ask("extend", id, move |world| world.extend(by, &lane, id, &receipt, lease)).await
    }

    async fn note(&self, _: Vec<AttemptNote>) -> Result<()> {
        Ok(())
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        self.ask("next_due", (), move |world| world.look(|model| model.next_due(&lanes))).await
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        self.ask("next_pull", (), move |world| world.look(|model| model.next_pull(&lanes))).await
    }
}

impl Topics for Access {
    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.ask("list", query.lane.clone(), move |world| world.look(|model| model.list(&query)))
            .await
    }

    async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.ask("list_latest", query.lane.clone(), move |world| {
            world.look(|model| model.list_latest(&query))
        })
        .await
    }

    async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        let (topic, policy) = (topic.clone(), policy.clone());
        let about = topic.clone();
        self.ask("set_policy", about, move |world| {
            world.look(|model| model.set_policy(&topic, &policy))
        })
        .await
    }

    async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        let topic = topic.clone();
        self.ask("pause", topic.clone(), move |world| world.pause(&topic)).await
    }

    async fn resume(&self, topic: &Topic, becomes: Option<Misfired>) -> Result<Option<bool>> {
        let topic = topic.clone();
        self.ask("resume", topic.clone(), move |world| world.resume(&topic, becomes)).await
    }

    async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        let entry = entry.clone();
        let about = entry.topic.clone();
        self.ask("unregister", about, move |world| world.look(|model| model.unregister(&entry)))
            .await
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        let lane = lane.clone();
        self.ask("stats", lane.clone(), move |world| world.look(|model| model.stats(&lane))).await
    }

    async fn create(&self, entry: TopicEntry, creator: Option<Creator>) -> Result<TopicEntry> {
        let about = entry.topic.clone();
        let create =
            move |world: &World| world.look(|model| model.create(entry.clone(), creator.clone()));
        self.ask("register", about, create).await?
    }

    async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        Ok(self.topics().await?.into_iter().find(|known| known.entry.topic == *topic))
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        let (topics, edition, read) = self.ask("topics", (), World::topics).await?;
        if self.edition.swap(edition, Ordering::Relaxed) != edition {
            self.world.write(What::Looked { by: self.life.id, read });
        }
        Ok(topics)
    }
}

impl Maintenance for Access {
    async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        let topic = topic.clone();
        let about = topic.clone();
        self.ask("forget_misfire", about, move |world| {
            world.look(|model| model.forget_misfire(&topic, misfire))
        })
        .await
    }

    async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> {
        self.ask("histories", (), move |world| world.look(|model| model.histories(&lanes))).await
    }

    async fn purge(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        let lane = lane.clone();
        let about = (lane.clone(), state);
        self.ask("purge", about, move |world| {
            world.look(|model| model.purge(&lane, most, state, before, limit))
        })
        .await
    }

    async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> {
        let (lane, ids) = (lane.clone(), ids.to_vec());
        let about = (lane.clone(), ids.clone());
        self.ask("remove_contents", about, move |world| {
            world.look(|model| model.remove_contents(&lane, &ids))
        })
        .await
    }

    async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        let topic = topic.clone();
        self.ask("mark_schedules", topic.clone(), move |world| {
            world.look(|model| model.topics.note_schedules(&topic));
            false
        })
        .await
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        self.ask("recover_topics", (), |_| Vec::new()).await
    }
}
