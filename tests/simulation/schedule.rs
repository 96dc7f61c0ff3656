//! Runs one schedule. Instances start and stop, and clients add and change tasks. Then all faults
//! end, and every due task must be delivered.

use delayd::metrics::Metrics;
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use delayd::callback::{LONGEST_RETRY_AFTER, ServiceParams, Services, SuccessRule};
use delayd::instances::{self, Instances};
use delayd::limits::{Allowance, DestinationLimits, LimitParams};
use delayd::maintenance::{self, Janitor, Planner};
use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{Lane, OnDead, Options, State, TaskId};
use delayd::outcome::Policy;
use delayd::store::{
    Added, Cancelled, Error, Hint, Idempotency, Moment, NewContent, NewTask, Registered, TaskName,
    TopicEntry, Topics,
};
use delayd::topic::{self, Registry};
use delayd::worker::{self, Worker};
use delayd_wire::Backoff;
use delayd_wire::Span;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::checker::{self, Broken};
use crate::dice::Throw;
use crate::history::{History, LifeId, What};
use crate::life::Life;
use crate::plan::{Add, Ailment, Mishap, Plan, service_name};
use crate::receiver::Postman;
use crate::recurring::recurring;
use crate::sabotage::Sabotage;
use crate::store::Access;
use crate::world::World;

/// How long after the last fault every task must have ended. It covers a lease and an unfinished
/// request from before, the remaining retries, and the polls in between.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// How long the schedules go on after the last fault at most, to make up for what was missed.
pub(crate) const MADE_UP_WITHIN: Duration = Duration::from_secs(25);

/// The number of API instances.
const EDGES: usize = 3;

/// How long a store remembers an add: longer than any schedule, including jumps of its clock.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The result of a schedule.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) history: History,
    pub(crate) broken: Vec<Broken>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:#?}", self.seed, self.plan)?;
        for (at, event) in self.history.events.iter().enumerate() {
            writeln!(f, "{event}")?;
            for broken in self.broken.iter().filter(|broken| broken.event == at) {
                writeln!(f, "    ^^^^ {:?}: {}", broken.violation, broken.text)?;
            }
        }
        write!(f, "The schedule of seed {} breaks a promise:", self.seed)?;
        for broken in &self.broken {
            write!(f, "\n    {:?}: {}", broken.violation, broken.text)?;
        }
        Ok(())
    }
}

/// Runs the schedule of a seed on the current thread, which must run no other one at the time.
pub(crate) fn play(seed: u64, sabotage: Option<Sabotage>) -> Report {
    play_plan(Plan::of(seed), seed, sabotage)
}

/// Runs a plan with the decisions of a seed.
pub(crate) fn play_plan(plan: Plan, seed: u64, sabotage: Option<Sabotage>) -> Report {
    note_panics();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let history = runtime.block_on(async {
        let world = Arc::new(World::new(seed, plan.clone(), sabotage));
        run(&world).await;
        PANICS.take().into_iter().for_each(|message| world.write(What::Panicked { message }));
        world.take_history()
    });
    drop(runtime);
    PANICS.take();
    let broken = checker::check(&plan, &history);
    Report { seed, plan, history, broken }
}

thread_local! {
    /// The panics of this thread's schedule: the workers' tasks hide them.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            usual(info);
        }));
    });
}

async fn run(world: &Arc<World>) {
    let deployment = Arc::new(Deployment { world: world.clone() });
    let instances = (0..world.plan.instances.len()).map(|index| deployment.clone().instance(index));
    let instances: Vec<_> = instances.map(tokio::spawn).collect();
    let clients = tokio::spawn(clients(deployment.clone()));
    let pauses = tokio::spawn(pauses(world.clone()));
    let jumps = tokio::spawn(jumps(world.clone()));
    let recounts = tokio::spawn(recounts(world.clone()));
    let recurring = tokio::spawn(recurring(deployment.clone()));
    world.until(world.plan.length).await;
    for task in [clients, pauses, jumps, recounts, recurring] {
        task.await.expect("no part of the simulation panics");
    }
    let planners = join_all(instances).await;
    let planners = planners.into_iter().collect::<Result<Vec<_>, _>>();
    let _planners = planners.expect("no instance panics");
    set_clock_right(world);
    world.heal();
    end_schedules(world).await;
    let healed = world.elapsed();
    while !has_settled(world) && world.elapsed() < healed + SETTLED_WITHIN {
        end_pauses(world);
        sleep(Duration::from_millis(500)).await;
    }
    // For effects that come late and break a promise.
    sleep(Duration::from_secs(3)).await;
    take_stock(world);
}

/// The schedules make up for what was missed, and are deleted: a task of them would always wait.
async fn end_schedules(world: &World) {
    if world.plan.recurring.is_empty() {
        return;
    }
    // A pause of an instance may outlast the other faults.
    let (began, healed) = (world.elapsed().max(world.last_pause_ends()), world.clock.now());
    while world.late.load(Ordering::Relaxed) > 0
        || !has_made_up(world, healed) && world.elapsed() < began + MADE_UP_WITHIN
    {
        end_pauses(world);
        sleep(Duration::from_millis(500)).await;
    }
    world.write(What::SchedulesEnd);
    world.delete_schedules();
}

/// Whether the last occurrence of each schedule is one after `healed`. Then all before it were
/// handed out.
fn has_made_up(world: &World, healed: UnixMillis) -> bool {
    world.look(|model| {
        let mut schedules = model.schedules.keys().map(|(lane, name)| model.schedule(lane, name));
        schedules.all(|schedule| {
            let schedule = schedule.expect("the model has a schedule of this name");
            let newest = schedule.recent.first();
            schedule.paused.is_some() || newest.is_some_and(|newest| newest.moment > healed)
        })
    })
}

fn lanes(world: &World) -> Vec<Lane> {
    world
        .look(|model| model.topics())
        .iter()
        .flat_map(|known| known.entry.lanes().collect::<Vec<_>>())
        .collect()
}

fn has_settled(world: &World) -> bool {
    if world.late.load(Ordering::Relaxed) > 0 {
        return false;
    }
    lanes(world).iter().all(|lane| {
        let counts = world.look(|model| model.stats(lane));
        counts.scheduled == 0 && counts.leased == 0
    })
}

/// Clients pause topics for a while. An end that is not confirmed is requested again.
async fn pauses(world: Arc<World>) {
    let pauses = world.plan.pauses.clone().into_iter().enumerate().map(|(n, (from, pause))| {
        let world = world.clone();
        async move {
            let client = Access::new(world.clone(), Arc::new(Life::new(LifeId(0), None)));
            let topic = &world.plan.topics[pause.topic].topic;
            world.until(from).await;
            drop(client.pause(topic).await);
            sleep(pause.span).await;
            let mut throw = world.dice.throw(("resume", n));
            while client.resume(topic, pause.becomes).await.is_err()
                && world.elapsed() < world.plan.length
            {
                sleep(throw.millis(0, 2_000)).await;
            }
        }
    });
    join_all(pauses).await;
}

/// Ends pauses that still hold, or hold again because a pause was done late.
fn end_pauses(world: &World) {
    for topic in &world.plan.topics {
        world.resume(&topic.topic, None);
    }
}

/// Records the final state of each task, found by its id.
fn take_stock(world: &World) {
    let topics = world.look(|model| model.topics());
    for lane in lanes(world) {
        let entry = topics.iter().map(|known| &known.entry).find(|entry| entry.topic == lane.topic);
        let entry = entry.expect("the topic has this lane");
        for state in State::ALL {
            let (from, to) = (UnixMillis(0), UnixMillis(i64::MAX));
            let query = delayd::store::ListQuery {
                lane: lane.clone(),
                state,
                from,
                to,
                after: None,
                limit: 1_000,
            };
            let listed = world.look(|model| model.list(&query));
            for listed in listed.into_iter().filter(|listed| entry.lane_of(listed.id) == lane) {
                let task = world.get(&lane, listed.id).expect("a listed task exists");
                let missed = task.options.schedule.as_ref().map_or(0, |of| of.missed);
                world.write(What::Found {
                    id: task.id,
                    state: task.state,
                    attempts: task.attempts,
                    missed,
                });
            }
        }
    }
}

async fn recounts(world: Arc<World>) {
    let recounts = world.plan.recounts.iter().map(async |(at, entry)| {
        world.until(*at).await;
        world.recount(entry);
    });
    join_all(recounts).await;
}

async fn jumps(world: Arc<World>) {
    for (at, by_ms) in world.plan.jumps.clone() {
        world.until(at).await;
        jump(&world, by_ms);
    }
}

fn jump(world: &World, by_ms: i64) {
    world.clock.set(UnixMillis(world.clock.now().0 + by_ms));
    world.write(What::Jumped { by_ms });
}

/// All tasks due by the latest clock become due again: a clock that was set back is corrected.
fn set_clock_right(world: &World) {
    let mut ahead_ms = 0;
    let mut furthest_ms = 0;
    for (_, by_ms) in &world.plan.jumps {
        ahead_ms += by_ms;
        furthest_ms = furthest_ms.max(ahead_ms);
    }
    if ahead_ms < furthest_ms {
        jump(world, furthest_ms - ahead_ms);
    }
}

/// Ended tasks are kept for longer than a schedule lasts.
const KEPT: maintenance::Params = maintenance::Params {
    keep: Duration::from_secs(30 * 24 * 3_600),
    keep_of_topic: 1_000_000,
    keep_in_all: 1_000_000,
    remove_contents: Some(Duration::from_secs(60)),
};

/// All instances, and what they share.
pub(crate) struct Deployment {
    pub(crate) world: Arc<World>,
}

/// A running instance.
struct Running {
    life: Arc<Life>,
    clock: Clock,
    worker: Worker<Access, Postman>,
    janitor: Janitor,
    planner: Planner,
}

impl Deployment {
    /// The lives of an instance, one after another. Returns the planner of the last one, which goes
    /// on until it is dropped.
    async fn instance(self: Arc<Self>, index: usize) -> Planner {
        let (skew_ms, mishaps) = self.world.plan.instances[index].clone();
        let mut running = self.start(index, skew_ms);
        for (at, mishap) in mishaps {
            self.world.until(at).await;
            running = match mishap {
                Mishap::Crash { down } => {
                    self.crash(&running.life);
                    sleep(down).await;
                    self.start(index, skew_ms)
                }
                Mishap::Restart { grace, down } => {
                    self.drain(running, grace).await;
                    sleep(down).await;
                    self.start(index, skew_ms)
                }
                Mishap::Pause { span } => {
                    running.life.pause(span);
                    self.world.write(What::Paused { life: running.life.id, span });
                    running
                }
                Mishap::ClockJump { by_ms } => {
                    running.clock.set(UnixMillis(running.clock.now().0 + by_ms));
                    self.world.write(What::InstanceJumped { life: running.life.id, by_ms });
                    running
                }
            };
        }
        running.planner
    }

    fn crash(&self, life: &Life) {
        life.kill();
        self.world.write(What::Crashed { life: life.id });
    }

    /// Stops an instance in order, or kills it if that takes too long, as an operator would.
    async fn drain(&self, running: Running, grace: Duration) {
        let Running { life, worker, janitor, planner, .. } = running;
        drop((janitor, planner));
        self.world.write(What::Stops { life: life.id });
        match tokio::time::timeout(grace + Duration::from_secs(10), worker.drain(grace)).await {
            Ok(cut_off) => {
                // A request that has not left by now never does.
                life.kill();
                self.world.write(What::Drained { life: life.id, cut_off });
            }
            Err(_) => self.crash(&life),
        }
    }

    fn start(&self, index: usize, skew_ms: i64) -> Running {
        let world = &self.world;
        let plan = &world.plan;
        let life = Arc::new(Life::new(LifeId(world.number()), Some(index)));
        world.write(What::Started { life: life.id, instance: index });
        world.join(life.clone());
        let store = Arc::new(Access::new(world.clone(), life.clone()));
        let clock = Clock::running(UnixMillis(world.clock.now().0 + skew_ms));
        let parts = worker::Parts {
            topics: Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 100 })),
            store,
            client: Postman::new(world.clone(), life.clone()),
            services: Arc::new(
                Services::new(services(plan.services, |which| {
                    !plan.lacks(index, &service_name(which))
                }))
                .expect("the services of the plan are valid"),
            ),
            topic_limits: Default::default(),
            limits: DestinationLimits::new(LimitParams {
                concurrency: plan.settings.concurrency,
                concurrency_per_service: match plan.ailment {
                    Some(Ailment::SaturatedSlots) if index == 0 => 1,
                    _ => plan.settings.concurrency_per_service,
                },
                breaker: plan.settings.breaker.clone(),
                retry_after_max: LONGEST_RETRY_AFTER,
            }),
            instances: Arc::new(Instances::with_id(
                u64::from(life.id.0),
                instances::Params { has_workers: true, ..instances::Params::default() },
            )),
            metrics: Metrics::new([]),
            clock: clock.clone(),
            tracer: Default::default(),
        };
        let janitor = Janitor::start(parts.store.clone(), parts.topics.clone(), KEPT);
        let planner =
            Planner::start(parts.store.clone(), parts.topics.clone(), parts.metrics.clone());
        let worker = Worker::start(parts, params(plan));
        Running { life, clock, worker, janitor, planner }
    }

    /// Gives one of the instances the hint of an add, as if it had taken the add. Hints only save
    /// time, so some are lost.
    pub(crate) fn hint(&self, lane: &Lane, due: UnixMillis, throw: &mut Throw) {
        let lives = self.world.living();
        if !lives.is_empty() && throw.per_mille(700) {
            let life = &lives[throw.number() as usize % lives.len()];
            let _ = life.hints.send(Hint { lane: lane.clone(), due, is_pull: false });
        }
    }
}

/// Those of so many services that an instance knows, without limits of their own.
pub(crate) fn services(count: usize, is_known: impl Fn(usize) -> bool) -> Vec<ServiceParams> {
    let service = |which| ServiceParams {
        name: service_name(which),
        endpoints: vec!["http://business.example".into()],
        allowance: Allowance::default(),
        success: SuccessRule::Status,
        secrets: Vec::new(),
        credentials: Default::default(),
    };
    (0..count).filter(|&which| is_known(which)).map(service).collect()
}

fn params(plan: &Plan) -> worker::Params {
    let settings = &plan.settings;
    worker::Params {
        enabled: true,
        lease: settings.lease,
        idle_stop: settings.idle_stop,
        claim_batch: settings.claim_batch,
        policy: Policy {
            max_attempts: settings.max_attempts,
            // Without jitter, which would not come from the seed.
            backoff: Backoff::List {
                steps: vec![Span::seconds(1), Span::seconds(2), Span::seconds(5)],
            },
        },
        timeout: settings.timeout,
        noted: worker::NotedAttempts::Failures,
        poll_every: Duration::from_secs(1),
    }
}

/// The clients that add and change tasks. Their requests fail like all others.
async fn clients(deployment: Arc<Deployment>) {
    let world = &deployment.world;
    let client = Arc::new(Access::new(world.clone(), Arc::new(Life::new(LifeId(0), None))));
    // API instances know the topics as they were when the schedule began, until the store refuses
    // that.
    let edges: Vec<Arc<Registry<Access>>> = (0..EDGES)
        .map(|_| {
            let registry = Registry::new(client.clone(), topic::Params { max_topics: 100 });
            registry.learn(
                registry.begin_read(),
                &world.plan.topics.iter().cloned().map(Registered::plain).collect::<Vec<_>>(),
            );
            Arc::new(registry)
        })
        .collect();
    let mut busy = Vec::new();
    for (n, (at, add)) in world.plan.adds.clone().into_iter().enumerate() {
        let (deployment, client, edge) =
            (deployment.clone(), client.clone(), edges[n % EDGES].clone());
        busy.push(tokio::spawn(async move {
            deployment.world.until(at).await;
            add_one(&deployment, (&client, &edge), n, &add).await;
        }));
    }
    join_all(busy).await.into_iter().for_each(|done| done.expect("no client panics"));
}

async fn add_one(
    deployment: &Deployment,
    (client, edge): (&Access, &Registry<Access>),
    n: usize,
    add: &Add,
) {
    let world = &deployment.world;
    let mut throw = world.dice.throw(("client", n));
    let topic = edge
        .known_entry(&world.plan.topics[add.topic].topic)
        .expect("every topic exists from the beginning")
        .entry;
    let key = add.key.map(|key| format!("key-{key}"));
    let task = NewTask {
        topic: topic.clone(),
        destination: service_name(add.service).parse().expect("a service's name"),
        moment: Moment::After(add.delay),
        options: Options {
            key: key.clone(),
            expires_after: add.expires_after.map(Span),
            on_dead: add.on_dead.map(|which| OnDead {
                sn: service_name(which).parse().expect("a service's name"),
                url: "/dead".into(),
                task_id: None,
            }),
            ..Options::default()
        },
        content: content(add.service, n, 0),
        idempotency: Some(Idempotency {
            key: format!("add-{n}"),
            fingerprint: n as u128,
            window: REMEMBERED,
        }),
        quota: None,
    };
    // Not confirmed: the task may be stored, and must then be delivered like any other.
    let again = &mut world.dice.throw(("again", n));
    let Some((topic, added)) = add_until_answered((client, edge), task, again).await else {
        return;
    };
    world.write(What::Accepted { id: added.id });
    let lane = topic.lane_of(added.id);
    deployment.hint(&lane, added.due, &mut throw);
    if throw.per_mille(world.plan.meddling) {
        for change in 0..throw.between(1, 3) {
            let name = key.clone().map(TaskName::Key);
            let task = (&lane, added.id, name.as_ref());
            meddle(world, client, task, (n, change), add.delay, &mut throw).await;
        }
    }
}

/// Adds as the API tells producers to: an add that is not confirmed is repeated with the same
/// idempotency key. Some clients give up. And as the API itself does: if the topic's entry was an
/// old one, it is read again.
async fn add_until_answered(
    (client, edge): (&Access, &Registry<Access>),
    mut task: NewTask,
    throw: &mut Throw,
) -> Option<(TopicEntry, Added)> {
    for _ in 0..throw.between(1, 5) {
        match client.add(vec![task.clone()]).await.remove(0) {
            Ok(added) => return Some((task.topic, added)),
            Err(Error::StaleEntry) => {
                if let Ok(Some(known)) = edge.reload(&task.topic.topic).await {
                    task.topic = known.entry;
                    continue;
                }
            }
            Err(_) => {}
        }
        sleep(throw.millis(0, 2_000)).await;
    }
    None
}

/// Cancels, reschedules or replays a task: when it falls due, at some moment, or as soon as an
/// attempt has failed.
async fn meddle(
    world: &World,
    client: &Access,
    (lane, id, name): (&Lane, TaskId, Option<&TaskName>),
    (n, change): (usize, u64),
    delay: Duration,
    throw: &mut Throw,
) {
    match throw.between(0, 4) {
        0 => sleep(throw.millis(0, delay.as_millis() as u64)).await,
        1 => sleep(throw.millis(0, 30) + delay).await,
        2 => sleep(throw.millis(0, 9_000) + delay).await,
        _ => until_tried(world, lane, id, throw).await,
    }
    if world.elapsed() > world.plan.length {
        return;
    }
    let is_dead = world.get(lane, id).is_some_and(|task| task.state == State::Dead);
    // The client does not repeat a request that is not confirmed.
    match throw.between(0, 4) {
        0 => match name.filter(|_| throw.per_mille(700)) {
            Some(name) => cancel_by(client, lane, name, throw).await,
            None => drop(client.cancel(lane, id, None).await),
        },
        _ if is_dead => drop(client.replay(lane, vec![id]).await),
        _ => {
            let service_now = throw.number() as usize % world.plan.services;
            let new = NewContent {
                destination: service_name(service_now).parse().expect("a service's name"),
                content: content(service_now, n, change + 1),
                keeps_mode: false,
            };
            let moment = Moment::After(throw.millis(0, 4_000));
            drop(client.reschedule(lane, id, moment, Some(new)).await);
        }
    }
}

/// Cancels the task of a key, as the API does: it looks up the task, and the store compares the
/// key. In between the key may pass to another task.
async fn cancel_by(client: &Access, lane: &Lane, name: &TaskName, throw: &mut Throw) {
    for _ in 0..3 {
        let Ok(Some(id)) = client.find(lane, name).await else { return };
        sleep(throw.millis(0, 3_000)).await;
        match client.cancel(lane, id, Some(name)).await {
            Ok(Cancelled::Unknown) => {}
            _ => return,
        }
    }
}

/// Returns when the task waits again after an attempt, or is dead, or the faults stop.
async fn until_tried(world: &World, lane: &Lane, id: TaskId, throw: &mut Throw) {
    while world.elapsed() <= world.plan.length {
        sleep(throw.millis(1, 200)).await;
        match world.get(lane, id) {
            Some(task) if task.state == State::Scheduled && task.attempts > 0 => return,
            Some(task) if task.state == State::Dead => return,
            _ => {}
        }
    }
}

pub(crate) fn content(service_of: usize, n: usize, version: u64) -> String {
    format!(
        r#"{{"sn":"{}","url":"/due","task":{n},"version":{version}}}"#,
        service_name(service_of)
    )
}
