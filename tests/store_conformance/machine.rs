//! Both stores driven with random calls, side by side with the specification.
//!
//! proptest-state-machine makes up a row of [`crate::steps::Step`]s. Each is resolved against the [`crate::steps::World`] as it then stands (the
//! fifth task, its second receipt) into a [`crate::steps::Call`], which the model answers. A store is given the same call, and must
//! answer the same; after each call every count, every list, every task and what is next must be the same, too.
//! A row that shows a difference is shortened before it is reported.
//!
//! Ids and receipts are each side's own. [`Twin`] knows which of the store's belongs to which of the model's.
//! `PROPTEST_CASES` sets the number of rows.

use std::collections::HashMap;
use std::marker::PhantomData;

use delayd::clock::UnixMillis;
use delayd::store::{AnyStore, Claim, Grant, LeasedTask, ListQuery, Listed, Settle, Spread, Store, Task};
use delayd::task::{Destination, Receipt, State, TaskId};
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tokio::runtime::Runtime;

use crate::bench::{ALWAYS, Bench, embedded, redis};
use crate::check::check;
use crate::steps::{Answer, Call, Step, World, lanes, step};

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

/// The store, and what its names are to the model.
struct Twin {
    bench: Bench<AnyStore>,
    ids: HashMap<TaskId, TaskId>,
    receipts: HashMap<Receipt, Receipt>,
}

impl Twin {
    /// The store's id for the model's.
    fn id(&self, id: TaskId) -> TaskId {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    fn receipt(&self, receipt: &Receipt) -> Receipt {
        self.receipts.get(receipt).unwrap_or(receipt).clone()
    }

    /// Gives the store the call and compares its answer.
    async fn check_call(&mut self, world: &World) {
        let store = &self.bench.store;
        match (&world.call, &world.answer) {
            (Call::Nothing, _) => {}
            (Call::SetClock(now), _) => self.bench.clock.set(*now),
            (Call::Add(tasks), Answer::Added(expected)) => {
                let added = store.add(tasks.clone()).await;
                assert_eq!(added.len(), expected.len());
                for (added, expected) in added.into_iter().map(Result::unwrap).zip(expected) {
                    assert_eq!(added.due, expected.due);
                    self.ids.insert(expected.id, added.id);
                }
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
                let settled = store.settle(settles.iter().map(named).collect()).await;
                assert_eq!(settled.into_iter().collect::<Result<Vec<_>, _>>().unwrap(), *expected);
            }
            (Call::Extend(lane, id, by, lease), Answer::Settled(expected)) => {
                let settled = store.extend(lane, self.id(*id), &self.receipt(by), *lease).await.unwrap();
                assert_eq!(settled, expected[0]);
            }
            (Call::Cancel(lane, id), Answer::Cancelled(expected)) => {
                assert_eq!(store.cancel(lane, self.id(*id)).await.unwrap(), *expected);
            }
            (Call::Reschedule(lane, id, moment, content), Answer::Rescheduled(expected)) => {
                let rescheduled = store.reschedule(lane, self.id(*id), *moment, content.clone()).await.unwrap();
                assert_eq!(rescheduled, *expected);
            }
            (Call::Replay(lane, ids), Answer::Count(expected)) => {
                let ids = ids.iter().map(|id| self.id(*id)).collect();
                assert_eq!(store.replay(lane, ids, Spread::default()).await.unwrap(), *expected);
            }
            (Call::Purge(lane, state, before, limit), Answer::Count(expected)) => {
                assert_eq!(store.purge(lane, *state, *before, *limit).await.unwrap(), *expected);
            }
            (call, answer) => panic!("{call:?} is not answered by {answer:?}"),
        }
    }

    fn check_grant(&self, grant: &Grant, expected: &Grant, claim: &Claim, world: &World) {
        let named = |task: &LeasedTask| LeasedTask { id: self.id(task.id), ..task.clone() };
        assert_eq!(grant.tasks, expected.tasks.iter().map(named).collect::<Vec<_>>());
        assert_eq!((grant.now, grant.outlook.next), (expected.now, expected.outlook.next));
        // Within one moment destinations may stand in any order, so moments are compared in their stead.
        let heads = world.model.heads(&claim.lane);
        let moments = |due: &[Destination]| -> Vec<UnixMillis> {
            let moment = |name: &Destination| heads.iter().find(|(_, head)| head == name).map(|(due, _)| *due);
            due.iter().map(|name| moment(name).unwrap_or_else(|| panic!("nothing waits for {name}"))).collect()
        };
        assert_eq!(moments(&grant.outlook.due), moments(&expected.outlook.due));
        let mut names = grant.outlook.due.clone();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), grant.outlook.due.len(), "a destination is named once: {:?}", grant.outlook.due);
    }

    /// Compares everything that can be read. No call leaves anything behind that a check finds; and as the check is one that
    /// repairs, whatever it changed would show below.
    async fn check_all(&self, world: &World) {
        let (store, model) = (&self.bench.store, &world.model);
        let report = check(store, true).await;
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(store.next_due(lanes()).await.unwrap(), model.next_due(&lanes()));
        assert_eq!(store.next_pull(lanes()).await.unwrap(), model.next_pull(&lanes()));
        let (from, to) = ALWAYS;
        for lane in lanes() {
            assert_eq!(store.stats(&lane).await.unwrap(), model.stats(&lane), "{lane}");
            let query = |state| ListQuery { lane: lane.clone(), state, from, to, after: None, limit: 1_000 };
            let lists = join_all(State::ALL.map(|state| store.list(query(state)))).await;
            for (state, list) in State::ALL.into_iter().zip(lists) {
                let expected = model.list(&query(state)).into_iter();
                let expected: Vec<Listed> =
                    expected.map(|listed| Listed { id: self.id(listed.id), ..listed }).collect();
                assert_eq!(list.unwrap(), expected, "{state:?} in {lane}");
            }
        }
        let found = join_all(world.tasks.iter().map(|(lane, id)| store.get(lane, self.id(*id)))).await;
        for ((lane, id), found) in world.tasks.iter().zip(found) {
            let expected = model.get(lane, *id).map(|task| Task { id: self.id(*id), ..task });
            assert_eq!(found.unwrap(), expected, "task {id}");
        }
    }
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
        Driven { runtime, twin: Twin { bench, ids: HashMap::new(), receipts: HashMap::new() } }
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
    // Without a file for failures: the shortened row is in the report.
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4_000, ..default }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    fn the_embedded_store_does_as_the_specification_says(sequential 1..90 => Follows<OnEmbedded>);

    #[test]
    fn the_redis_store_does_as_the_specification_says(sequential 1..90 => Follows<OnRedis>);
}
