//! The recurring schedules of a plan: who sets and changes them, and planners that read early and
//! write late.

use std::sync::Arc;
use std::time::Duration;

use delayd::model::schedule::{Definition, MisfireRule, Overlap};
use delayd::model::task::{Lane, Occurrence, Options, ScheduleName};
use delayd::planner;
use delayd::store::{
    Error, Moment, NewSchedule, NewTask, Pause, Planned, Reader, Result, Schedule, ScheduleSet,
    Schedules, Topics,
};
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::dice::{Dice, Throw};
use crate::history::LifeId;
use crate::life::Life;
use crate::plan::{Plan, service_name};
use crate::schedule::{Deployment, content};
use crate::store::Access;

/// A schedule, and what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct Recurring {
    pub(crate) topic: usize,
    /// Its definitions: the first one is set at its beginning, another one by each change.
    pub(crate) definitions: Vec<Defined>,
    pub(crate) at: Duration,
    /// Two clients set different definitions at once.
    pub(crate) is_set_twice: bool,
    pub(crate) steps: Vec<(Duration, Step)>,
    /// How many planners race with those of the instances.
    pub(crate) planners: u64,
}

/// A definition: it has a moment each time that the seconds of a minute are a multiple of `every`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defined {
    pub(crate) service: usize,
    pub(crate) every: u64,
    pub(crate) misfire: MisfireRule,
    pub(crate) overlap: Overlap,
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Sets the definition of this index.
    Set(usize),
    Pause,
    Resume,
    Delete,
    Run,
}

impl Recurring {
    /// The schedules of a plan.
    pub(crate) fn of(dice: &Dice, plan: &Plan) -> Vec<Self> {
        let mut throw = dice.throw("recurring");
        let count = throw.one_of(&[0, 0, 0, 1, 2]);
        (0..count).map(|n| Self::drawn(&mut dice.throw(("recurring", n)), plan)).collect()
    }

    fn drawn(throw: &mut Throw, plan: &Plan) -> Self {
        let length = plan.length.as_millis() as u64;
        let defined = |throw: &mut Throw| Defined {
            service: throw.number() as usize % plan.services,
            every: throw.one_of(&[1, 2, 3, 5]),
            // A clock that jumps leaves too many moments to make up for.
            misfire: match plan.jumps.is_empty() {
                true => throw.one_of(&[MisfireRule::Once, MisfireRule::All]),
                false => MisfireRule::Once,
            },
            overlap: throw.one_of(&[Overlap::Allow, Overlap::Allow, Overlap::Skip]),
        };
        let definitions = (0..3).map(|_| defined(throw)).collect();
        let kinds = [
            Step::Set(1),
            Step::Set(2),
            Step::Set(0),
            Step::Pause,
            Step::Resume,
            Step::Pause,
            Step::Resume,
            Step::Delete,
            Step::Run,
        ];
        let mut steps: Vec<_> = (0..throw.one_of(&[0, 1, 3, 6]))
            .map(|_| (throw.millis(1_000, length), throw.one_of(&kinds)))
            .collect();
        steps.sort_by_key(|(at, _)| *at);
        Self {
            topic: throw.number() as usize % plan.topics.len(),
            definitions,
            at: throw.millis(0, length / 3),
            is_set_twice: throw.per_mille(300),
            steps,
            planners: throw.one_of(&[0, 1, 3]),
        }
    }
}

/// When a failover forgets the last plans: only where other faults are allowed, too.
pub(crate) fn failovers(dice: &Dice, plan: &Plan) -> Vec<Duration> {
    let mut throw = dice.throw("failovers");
    let length = plan.length.as_millis() as u64;
    (0..throw.one_of(&[0, 1, 3])).map(|_| throw.millis(0, length)).collect()
}

/// The text of a definition. Its content tells it from the others of the schedule.
fn definition(number: usize, which: usize, defined: Defined) -> Definition {
    let Defined { service, every, misfire, overlap } = defined;
    Definition {
        cron: Some(format!("*/{every} * * * * *")),
        every_ms: None,
        zone: "UTC".into(),
        start: None,
        end: None,
        misfire,
        overlap,
        destination: service_name(service).parse().expect("a service's name"),
        options: Options::default(),
        content: content(service, 1_000 + number, which as u64),
    }
}

/// All clients and planners of the plan's schedules.
pub(crate) async fn recurring(deployment: Arc<Deployment>) {
    let world = &deployment.world;
    let mut busy = Vec::new();
    for (number, recurring) in world.plan.recurring.clone().into_iter().enumerate() {
        for client in 0..1 + u64::from(recurring.is_set_twice) {
            busy.push(tokio::spawn(live(deployment.clone(), number, recurring.clone(), client)));
        }
        for planner in 0..recurring.planners {
            busy.push(tokio::spawn(race(deployment.clone(), number, recurring.clone(), planner)));
        }
    }
    for at in world.plan.failovers.clone() {
        let world = world.clone();
        busy.push(tokio::spawn(async move {
            world.until(at).await;
            world.forget_plans();
        }));
    }
    join_all(busy).await.into_iter().for_each(|done| done.expect("no client panics"));
}

fn schedule_name(number: usize) -> ScheduleName {
    format!("schedule-{number}").parse().expect("the name is valid")
}

/// One client: it sets the schedule, and changes it.
async fn live(deployment: Arc<Deployment>, number: usize, recurring: Recurring, client: u64) {
    let world = &deployment.world;
    let store = Access::new(world.clone(), Arc::new(Life::new(LifeId(0), None)));
    let throw = &mut world.dice.throw(("schedule", number, client));
    let client_of =
        Client { deployment: &deployment, store: &store, number, recurring: &recurring };
    world.until(recurring.at).await;
    client_of.until_done(throw, Step::Set(client as usize)).await;
    if client > 0 {
        return;
    }
    for (at, step) in &recurring.steps {
        world.until(*at).await;
        client_of.until_done(throw, *step).await;
    }
}

struct Client<'a> {
    deployment: &'a Deployment,
    store: &'a Access,
    number: usize,
    recurring: &'a Recurring,
}

impl Client<'_> {
    /// Repeats a request until it is confirmed. Some clients give up.
    async fn until_done(&self, throw: &mut Throw, step: Step) {
        let revision = throw.number();
        let world = &self.deployment.world;
        for _ in 0..throw.between(1, 5) {
            if world.elapsed() > world.plan.length || self.carry_out(step, revision).await.is_ok() {
                return;
            }
            sleep(throw.millis(0, 1_000)).await;
        }
    }

    /// The lane of the schedule, as the registry has it now.
    async fn find(&self) -> Result<Option<(Lane, delayd::store::TopicEntry)>> {
        let topic = &self.deployment.world.plan.topics[self.recurring.topic].topic;
        let Some(known) = self.store.topic(topic).await? else { return Ok(None) };
        let lane = schedule_name(self.number).lane_in(topic, known.entry.shards);
        Ok(Some((lane, known.entry)))
    }

    async fn carry_out(&self, step: Step, revision: u64) -> Result<()> {
        let name = schedule_name(self.number);
        let Some((lane, topic)) = self.find().await? else { return Ok(()) };
        let pause = |pause| self.store.pause_schedule(&lane, &name, pause);
        match step {
            Step::Set(which) => {
                let defined = self.recurring.definitions[which];
                let definition = definition(self.number, which, defined).text();
                let new = NewSchedule { name: name.clone(), definition, revision, moved: None };
                let stored = self
                    .store
                    .schedules(Reader::Worker, &lane, vec![name.clone()])
                    .await?
                    .remove(0);
                let set = planner::set(self.store, &topic, new, stored.as_ref()).await?;
                if let ScheduleSet::Created(schedule) | ScheduleSet::Changed(schedule) = set
                    && schedule.look.is_some()
                {
                    // If this fails, a planner plans it.
                    let _ = self.plan(&topic, &schedule).await;
                }
            }
            Step::Pause => drop(pause(Some(Pause::Operator)).await?),
            Step::Resume => drop(pause(None).await?),
            Step::Delete => drop(self.store.delete_schedule(&lane, &name).await?),
            Step::Run => {
                let schedule = self
                    .store
                    .schedules(Reader::Worker, &lane, vec![name.clone()])
                    .await?
                    .remove(0);
                let read = |text: &String| Definition::read(text);
                let found = schedule.as_ref().and_then(|found| read(&found.definition));
                let (Some(schedule), Some(definition)) = (schedule, found) else { return Ok(()) };
                let occurrence = Occurrence {
                    name,
                    moment: schedule.now,
                    cursor: String::new(),
                    after: None,
                    missed: 0,
                };
                let task = NewTask {
                    topic,
                    destination: definition.destination,
                    moment: Moment::After(Duration::ZERO),
                    options: Options { schedule: Some(Box::new(occurrence)), ..definition.options },
                    content: definition.content,
                    idempotency: None,
                    quota: None,
                };
                self.store.add(vec![task]).await.remove(0)?;
            }
        }
        Ok(())
    }

    async fn plan(&self, topic: &delayd::store::TopicEntry, schedule: &Schedule) -> Result<()> {
        let planned = planner::plan(self.store, topic, schedule).await?;
        if let Planned::Added { due, .. } = planned {
            let lane = schedule.name.lane_in(&topic.topic, topic.shards);
            let mut throw = self.deployment.world.dice.throw(("hint of a plan", self.number));
            self.deployment.hint(&lane, due, &mut throw);
        }
        Ok(())
    }
}

/// A planner beside those of the instances. It takes its time between the read and the plan.
async fn race(deployment: Arc<Deployment>, number: usize, recurring: Recurring, planner: u64) {
    let world = &deployment.world;
    let store = Access::new(world.clone(), Arc::new(Life::new(LifeId(0), None)));
    let throw = &mut world.dice.throw(("planner", number, planner));
    let client = Client { deployment: &deployment, store: &store, number, recurring: &recurring };
    world.until(recurring.at).await;
    while world.elapsed() < world.plan.length {
        sleep(throw.millis(100, 1_500)).await;
        let read = async {
            let (lane, topic) = client.find().await?.ok_or(Error::StaleEntry)?;
            let found = store
                .schedules(Reader::Worker, &lane, vec![schedule_name(number)])
                .await?
                .remove(0);
            Ok::<_, Error>(found.map(|schedule| (topic, schedule)))
        };
        let Ok(Some((topic, schedule))) = read.await else { continue };
        let is_due = schedule.look.is_some_and(|look| look <= schedule.now);
        if !is_due && !throw.per_mille(200) {
            continue;
        }
        sleep(throw.one_of(&[0, 0, 5, 700, 3_000].map(Duration::from_millis))).await;
        let _ = client.plan(&topic, &schedule).await;
    }
}
