//! Drives both stores with random calls, side by side with the specification.
//!
//! proptest-state-machine generates a list of [`crate::steps::Step`]s. Each is resolved in the
//! current [`crate::world::World`] (the fifth task, its second receipt) into a
//! [`crate::world::Call`], which the model answers. The store gets the same call and must give the
//! same answer. After each call every count, every list, every task and the next moments must be
//! equal as well. A list that shows a difference is shortened before it is reported.
//!
//! Ids and receipts differ between the two, and so do the digests of contents with an id in them.
//! [`Twin`] maps those of the model to those of the store.
//! `PROPTEST_CASES` sets the number of lists.

use std::collections::HashMap;
use std::marker::PhantomData;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{ContentDigest, Destination, Lane, Options, Receipt, State, TaskId};
use delayd::store::{
    Added, Admin, AnyStore, Asker, AttemptNote, Claim, Delivery, Grant, Histories, Intake,
    LaneSample, LeasedTask, ListQuery, Listed, Maintenance, NewTask, Novelty, Planned, Reader,
    Registered, Result, SampleAnswer, SampleQuery, Sampling, Schedule, ScheduleSet, Schedules,
    Settle, Summary, Task, Topics,
};
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tokio::runtime::Runtime;

use crate::bench::{ALWAYS, Bench, embedded, ms, redis};
use crate::check::check;
use crate::steps::{Policing, Step, lanes, policy, step};
use crate::world::{ALL, Answer, Call, World, schedule_name};

/// The specification as proptest's reference.
pub(crate) struct Specification;

impl ReferenceStateMachine for Specification {
    type State = World;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<World> {
        Just(World::new()).boxed()
    }

    fn transitions(_: &World) -> BoxedStrategy<Step> {
        step().boxed()
    }

    fn apply(world: World, step: &Step) -> World {
        world.take(step)
    }
}

/// A store under test, in a runtime of its own.
pub(crate) struct Driven {
    runtime: Runtime,
    twin: Twin,
}

/// The store, and the store's names for the model's ids, receipts and digests.
struct Twin {
    bench: Bench<AnyStore>,
    ids: HashMap<TaskId, TaskId>,
    receipts: HashMap<Receipt, Receipt>,
    digests: HashMap<ContentDigest, ContentDigest>,
}

impl Twin {
    /// The store's id for the model's.
    fn id(&self, id: TaskId) -> TaskId {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    fn receipt(&self, receipt: &Receipt) -> Receipt {
        self.receipts.get(receipt).unwrap_or(receipt).clone()
    }

    /// Makes the call on the store and compares its answer.
    async fn check_call(&mut self, world: &World) {
        let store = &self.bench.store;
        match (&world.call, &world.answer) {
            (Call::Nothing, _) => {}
            (Call::SetClock(now), _) => self.bench.clock.set(*now),
            (Call::Add(tasks), Answer::Added(expected)) => {
                self.check_added(tasks, expected, world).await
            }
            (Call::Claim(claim), Answer::Granted(expected)) => {
                let grant = self.bench.grant(claim.clone()).await;
                self.receipts.insert(expected.receipt.clone(), grant.receipt.clone());
                self.check_grant(&grant, expected, claim, world);
            }
            (Call::Settle(settles), Answer::Settled(expected)) => {
                let named = |settle: &Settle| Settle {
                    id: self.id(settle.id),
                    receipt: self.receipt(&settle.receipt),
                    ..settle.clone()
                };
                let settled =
                    store.settle(Asker::Worker, settles.iter().map(named).collect()).await;
                assert_eq!(settled.into_iter().collect::<Result<Vec<_>>>().unwrap(), *expected);
            }
            (Call::Extend(lane, id, by, lease), Answer::Settled(expected)) => {
                let settled = store
                    .extend(Asker::Worker, lane, self.id(*id), &self.receipt(by), *lease)
                    .await
                    .unwrap();
                assert_eq!(settled, expected[0]);
            }
            (Call::Cancel(lane, id, only), Answer::Cancelled(expected)) => {
                let cancelled = store.cancel(lane, self.id(*id), only.as_ref()).await;
                assert_eq!(cancelled.unwrap(), *expected);
            }
            (Call::Reschedule(lane, id, only, moment, content), Answer::Rescheduled(expected)) => {
                let (id, only, content) = (self.id(*id), only.as_ref(), content.clone());
                let rescheduled = store.reschedule(lane, id, only, *moment, content).await;
                assert_eq!(rescheduled.unwrap(), *expected);
            }
            (Call::Replay(lane, ids, spread), Answer::Count(expected)) => {
                assert_eq!(
                    store.replay(lane, self.all(ids), None, *spread).await.unwrap(),
                    *expected
                );
            }
            (Call::RemoveContents(lane, ids), Answer::Nothing) => {
                self.remove_contents(lane, ids, world).await;
            }
            (Call::Discard(lane, state, ids), Answer::Count(expected)) => {
                assert_eq!(
                    store.discard(lane, *state, self.all(ids), None).await.unwrap(),
                    *expected
                );
            }
            (Call::Clear(lane), Answer::Cleared(expected)) => {
                assert_eq!(store.clear(lane, ALL).await.unwrap(), *expected);
            }
            (Call::Note(notes), _) => {
                store.note(notes.iter().map(|note| self.note(note)).collect()).await.unwrap()
            }
            (Call::Lend(lane, ids, by, lease), Answer::Lent(expected)) => {
                assert_eq!(store.lend(lane, self.all(ids), by, *lease).await.unwrap(), *expected);
            }
            (Call::Adopt(tasks), Answer::Adopted(expected)) => {
                let adopted =
                    store.adopt(tasks.clone()).await.into_iter().collect::<Result<Vec<_>>>();
                assert_eq!(adopted.unwrap(), *expected);
            }
            (Call::Police(entry, how), Answer::Policed(expected)) => {
                let topic = &entry.topic;
                let policed = match how {
                    Policing::SetPolicy(attempts) => {
                        store.set_policy(topic, &policy(*attempts)).await.unwrap().then(String::new)
                    }
                    Policing::Pause => {
                        store.pause(topic).await.unwrap().map(|since| since.to_string())
                    }
                    Policing::Resume(becomes) => {
                        store.resume(topic, *becomes).await.unwrap().map(|was| was.to_string())
                    }
                    Policing::Unregister => {
                        store.unregister(entry).await.unwrap().then(String::new)
                    }
                };
                assert_eq!(policed, *expected);
            }
            (Call::Purge(lane, state, before, limit), Answer::Count(expected)) => {
                assert_eq!(store.purge(lane, 0, *state, *before, *limit).await.unwrap(), *expected);
            }
            (Call::SetSchedule(entry, new), Answer::ScheduleSet(expected)) => {
                let set = store.set_schedule(entry, new.clone()).await.unwrap();
                let expected = match expected.clone() {
                    ScheduleSet::Created(shown) => ScheduleSet::Created(self.schedule(shown)),
                    ScheduleSet::Changed(shown) => ScheduleSet::Changed(self.schedule(shown)),
                    ScheduleSet::Unchanged(shown) => ScheduleSet::Unchanged(self.schedule(shown)),
                    other => other,
                };
                assert_eq!(set, expected);
            }
            (Call::PauseSchedule(lane, name, pause), Answer::Schedule(expected)) => {
                let paused = store.pause_schedule(lane, name, *pause).await.unwrap();
                assert_eq!(paused, expected.clone().map(|expected| self.schedule(expected)));
            }
            (Call::DeleteSchedule(lane, name), Answer::Deleted(expected)) => {
                assert_eq!(store.delete_schedule(lane, name).await.unwrap(), *expected);
            }
            (Call::Plan(plan), Answer::Planned(expected)) => {
                let planned = store.plan((**plan).clone()).await.unwrap();
                match (planned, *expected) {
                    (
                        Planned::Added { task: found, due },
                        Planned::Added { task, due: expected },
                    ) => {
                        assert_eq!(due, expected);
                        self.ids.insert(task, found);
                        self.learn_call(&plan.topic.lane_of(task), task, world).await;
                    }
                    (planned, expected) => assert_eq!(planned, expected),
                }
            }
            (call, answer) => panic!("{call:?} is not answered by {answer:?}"),
        }
    }

    /// A schedule of the model with the store's names.
    fn schedule(&self, mut schedule: Schedule) -> Schedule {
        schedule.recent.iter_mut().for_each(|planned| planned.task = self.id(planned.task));
        schedule
    }

    /// Learns the id of a task's dead-letter callback, if it has one.
    async fn learn_call(&mut self, lane: &Lane, id: TaskId, world: &World) {
        let call = |task: Task| task.options.on_dead?.task_id;
        let Some(expected) = world.model.get(lane, id).and_then(call) else { return };
        let found =
            self.bench.store.get(Reader::Worker, lane, self.id(id)).await.unwrap().and_then(call);
        self.ids.entry(expected).or_insert(found.expect("the callback has an id"));
    }

    /// Compares the results of an add. Learns the ids of the new tasks and of their dead-letter
    /// callbacks.
    async fn check_added(&mut self, tasks: &[NewTask], expected: &[Result<Added>], world: &World) {
        let added = self.bench.store.add(tasks.to_vec()).await;
        assert_eq!(added.len(), expected.len());
        for (added, expected) in added.iter().zip(expected) {
            match (added, expected) {
                (Ok(added), Ok(expected)) => {
                    if expected.novelty == Novelty::New {
                        self.ids.insert(expected.id, added.id);
                    }
                    assert_eq!(*added, Added { id: self.id(expected.id), ..*expected });
                }
                (Err(added), Err(expected)) => {
                    assert_eq!(
                        std::mem::discriminant(added),
                        std::mem::discriminant(expected),
                        "{added}"
                    );
                }
                (added, expected) => panic!("{added:?} should be {expected:?}"),
            }
        }
        for (task, expected) in tasks.iter().zip(expected) {
            let Ok(Added { id, .. }) = *expected else { continue };
            self.learn_call(&task.topic.lane_of(id), id, world).await;
        }
    }

    /// Learns the digests of the removed contents.
    async fn remove_contents(&mut self, lane: &Lane, ids: &[TaskId], world: &World) {
        let store = &self.bench.store;
        let before =
            join_all(ids.iter().map(|id| store.get(Reader::Worker, lane, self.id(*id)))).await;
        store.remove_contents(lane, &self.all(ids)).await.unwrap();
        for (id, before) in ids.iter().zip(before) {
            let expected = world.model.get(lane, *id).and_then(|task| task.options.removed);
            if let (Some(expected), Some(before)) = (expected, before.unwrap()) {
                let learned = ContentDigest::of(&before.content);
                self.digests.insert(expected, before.options.removed.unwrap_or(learned));
            }
        }
    }

    fn all(&self, ids: &[TaskId]) -> Vec<TaskId> {
        ids.iter().map(|id| self.id(*id)).collect()
    }

    fn note(&self, note: &AttemptNote) -> AttemptNote {
        AttemptNote { id: self.id(note.id), ..note.clone() }
    }

    fn options(&self, mut options: Options) -> Options {
        if let Some(on_dead) = &mut options.on_dead {
            on_dead.task_id = on_dead.task_id.map(|id| self.id(id));
        }
        if let Some(occurrence) = &mut options.schedule {
            occurrence.after = occurrence.after.map(|id| self.id(id));
        }
        options.removed =
            options.removed.map(|digest| self.digests.get(&digest).copied().unwrap_or(digest));
        options
    }

    /// The content of a dead-letter callback contains the id of the dead task.
    fn content(&self, content: &str) -> String {
        let Ok(mut call) = serde_json::from_str::<serde_json::Value>(content) else {
            return content.to_owned();
        };
        if let Some(id) = call["task_id"].as_u64() {
            call["task_id"] = self.id(TaskId(id)).0.into();
        }
        call.to_string()
    }

    /// A task of the model with the store's names.
    fn task(&self, task: Task) -> Task {
        let (id, options, content) =
            (self.id(task.id), self.options(task.options), self.content(&task.content));
        Task { id, options, content, ..task }
    }

    fn leased_task(&self, task: &LeasedTask) -> LeasedTask {
        let (id, options, content) =
            (self.id(task.id), self.options(task.options.clone()), self.content(&task.content));
        LeasedTask { id, options, content, ..task.clone() }
    }

    fn check_grant(&self, grant: &Grant, expected: &Grant, claim: &Claim, world: &World) {
        let found = grant
            .tasks
            .iter()
            .map(|task| LeasedTask { content: in_order(&task.content), ..task.clone() });
        let expected_tasks = expected.tasks.iter().map(|task| self.leased_task(task));
        assert_eq!(found.collect::<Vec<_>>(), expected_tasks.collect::<Vec<_>>());
        assert_eq!((grant.now, grant.outlook.next), (expected.now, expected.outlook.next));
        assert_eq!(grant.swept, expected.swept);
        // Destinations of one moment may come in any order, so moments are compared instead.
        let heads = world.model.heads(&claim.lane);
        let moments = |due: &[Destination]| -> Vec<UnixMillis> {
            let moment = |name: &Destination| {
                heads.iter().find(|(_, head)| head == name).map(|(due, _)| *due)
            };
            due.iter()
                .map(|name| moment(name).unwrap_or_else(|| panic!("nothing waits for {name}")))
                .collect()
        };
        assert_eq!(moments(&grant.outlook.due), moments(&expected.outlook.due));
        let mut names = grant.outlook.due.clone();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            names.len(),
            grant.outlook.due.len(),
            "a destination is named once: {:?}",
            grant.outlook.due
        );
    }

    /// Compares everything that can be read. No call may leave a flaw that a check finds. The check
    /// repairs, so a wrong repair shows in the comparisons below.
    async fn check_all(&self, world: &World) {
        let (store, model) = (&self.bench.store, &world.model);
        let report = check(store, true).await;
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(store.next_due(lanes()).await.unwrap(), model.next_due(&lanes()));
        assert_eq!(store.next_pull(lanes()).await.unwrap(), model.next_pull(&lanes()));
        let (from, to) = ALWAYS;
        for lane in lanes() {
            assert_eq!(store.stats(&lane).await.unwrap(), model.stats(&lane), "{lane}");
            let query = |state| ListQuery {
                lane: lane.clone(),
                state,
                from,
                to,
                after: None,
                limit: 1_000,
            };
            let lists = join_all(State::ALL.map(|state| store.list(query(state)))).await;
            for (state, list) in State::ALL.into_iter().zip(lists) {
                let expected = model.list(&query(state)).into_iter();
                let expected: Vec<Listed> =
                    expected.map(|listed| Listed { id: self.id(listed.id), ..listed }).collect();
                assert_eq!(list.unwrap(), expected, "{state:?} in {lane}");
            }
        }
        let found = join_all(
            world.tasks.iter().map(|(lane, id)| store.get(Reader::Worker, lane, self.id(*id))),
        )
        .await;
        for ((lane, id), found) in world.tasks.iter().zip(found) {
            let found =
                found.unwrap().map(|task| Task { content: in_order(&task.content), ..task });
            assert_eq!(found, model.get(lane, *id).map(|task| self.task(task)), "task {id}");
        }
        for lane in lanes() {
            let names = vec![schedule_name(0), schedule_name(1)];
            let expected = names.iter().map(|name| model.schedule(&lane, name));
            let expected: Vec<_> =
                expected.map(|found| found.map(|found| self.schedule(found))).collect();
            assert_eq!(store.schedules(Reader::Worker, &lane, names).await.unwrap(), expected);
            for skip in 0..2 {
                let due = store.due_schedules(&lane, skip).await.unwrap();
                assert_eq!(due, model.due_schedules(&lane, skip), "from {skip}");
            }
        }
        self.check_reports(world).await;
    }

    /// Compares the answers of the admin verbs that only read.
    async fn check_reports(&self, world: &World) {
        let (store, model) = (&self.bench.store, &world.model);
        // How many expired windows a purge removes is not visible from outside.
        let seen = |histories: Histories| {
            histories.lanes.into_iter().map(|history| history.map(|h| (h.ended, h.oldest)))
        };
        let expected = seen(model.histories(&lanes())).collect::<Vec<_>>();
        assert_eq!(seen(store.histories(lanes()).await.unwrap()).collect::<Vec<_>>(), expected);
        let within = vec![ms(0), ms(1_000), ms(60_000)];
        let late_after = vec![ms(500), ms(5_000)];
        let query = SampleQuery { lanes: lanes(), late_after, within, ..SampleQuery::default() };
        let in_order = |SampleAnswer { now, mut lanes }| {
            for sample in lanes.iter_mut().flatten() {
                let LaneSample { schedules, .. } = sample;
                schedules.sort_by(|one, other| one.destination.cmp(&other.destination));
            }
            (now, lanes)
        };
        assert_eq!(
            in_order(store.sample(query.clone()).await.unwrap()),
            in_order(model.sample(&query))
        );
        for lane in lanes() {
            let ids: Vec<TaskId> = world.tasks.iter().map(|(_, id)| *id).collect();
            let named = |summary: Summary| Summary { id: self.id(summary.id), ..summary };
            let expected =
                model.summaries(&lane, &ids).into_iter().map(|summary| summary.map(named));
            assert_eq!(
                store.summaries(&lane, self.all(&ids)).await.unwrap(),
                expected.collect::<Vec<_>>()
            );
            assert_eq!(
                store.forecast(&lane, ms(1_000), 6).await.unwrap(),
                model.forecast(&lane, ms(1_000), 6)
            );
        }
        for (lane, id) in &world.noted {
            let expected: Vec<_> =
                model.notes(lane, *id).iter().map(|note| self.note(note)).collect();
            assert_eq!(
                store.notes(lane, self.id(*id)).await.unwrap(),
                expected,
                "the notes of task {id}"
            );
        }
        let in_order = |mut topics: Vec<Registered>| {
            topics.sort_by_key(|topic| topic.entry.topic.clone());
            for known in &mut topics {
                let mut with_schedules = model.schedules.keys().map(|(lane, _)| &lane.topic);
                // A topic without schedules may count as one that may have some.
                known.has_schedules &= with_schedules.any(|topic| *topic == known.entry.topic);
            }
            topics
        };
        assert_eq!(in_order(store.topics().await.unwrap()), in_order(model.topics()));
    }
}

/// The content with its fields in a fixed order, if it is JSON.
fn in_order(content: &str) -> String {
    serde_json::from_str::<serde_json::Value>(content)
        .map_or(content.to_owned(), |body| body.to_string())
}

/// Which store is driven.
pub(crate) trait Opened {
    fn open() -> impl Future<Output = Bench<AnyStore>>;
}

pub(crate) struct OnEmbedded;

impl Opened for OnEmbedded {
    fn open() -> impl Future<Output = Bench<AnyStore>> {
        embedded()
    }
}

pub(crate) struct OnRedis;

impl Opened for OnRedis {
    fn open() -> impl Future<Output = Bench<AnyStore>> {
        redis()
    }
}

pub(crate) struct Follows<O>(PhantomData<O>);

impl<O: Opened> StateMachineTest for Follows<O> {
    type SystemUnderTest = Driven;
    type Reference = Specification;

    fn init_test(_: &World) -> Driven {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bench = runtime.block_on(O::open());
        Driven {
            runtime,
            twin: Twin {
                bench,
                ids: HashMap::new(),
                receipts: HashMap::new(),
                digests: HashMap::new(),
            },
        }
    }

    fn apply(mut driven: Driven, world: &World, _: Step) -> Driven {
        driven.runtime.block_on(driven.twin.check_call(world));
        driven
    }

    fn check_invariants(driven: &Driven, world: &World) {
        driven.runtime.block_on(driven.twin.check_all(world));
    }
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 40 };
    // Without a file of failures: the report has the shortened list.
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4_000, ..default }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    fn the_embedded_store_agrees_with_the_specification(sequential 1..90 => Follows<OnEmbedded>);

    #[test]
    fn the_redis_store_agrees_with_the_specification(sequential 1..90 => Follows<OnRedis>);
}
