//! `check`: every verb leaves the store in order, also while others run.

use std::cell::Cell;

use delayd::model::task::{Lane, State, TaskId};
use delayd::store::{
    Asker, CheckCursor, Claim, Finding, Flaw, ListQuery, Moment, NewContent, NewTask, Settle,
    Spread, Store, Transition,
};
use futures_util::future::join_all;

use crate::bench::{
    ALWAYS, Bench, claim_of, dead, delivered, ids, lane, ms, new_task, retry, topic, topic_of,
};

/// Everything that a check reports.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) tasks: u64,
    pub(crate) lanes: u64,
}

impl Report {
    /// The flaws and their subjects, sorted.
    pub(crate) fn flaws(&self) -> Vec<(Flaw, String)> {
        let mut flaws: Vec<_> =
            self.findings.iter().map(|found| (found.flaw, found.subject.clone())).collect();
        flaws.sort();
        flaws
    }
}

/// A whole check.
pub(crate) async fn check(store: &impl Store, repair: bool) -> Report {
    let mut report = Report::default();
    let mut next = Some(CheckCursor::start());
    while let Some(cursor) = next {
        let checked = store.check(cursor, repair).await.unwrap();
        report.findings.extend(checked.findings);
        report.tasks += checked.tasks;
        report.lanes += checked.lanes;
        next = checked.next;
    }
    report
}

/// Asserts that neither a check nor a repair finds a flaw.
pub(crate) async fn assert_in_order(store: &impl Store) {
    for repair in [false, true] {
        let report = check(store, repair).await;
        assert!(report.findings.is_empty(), "repair {repair}: {:?}", report.findings);
    }
}

pub(crate) async fn an_empty_store_is_in_order(bench: Bench<impl Store>) {
    assert_in_order(&bench.store).await;
    bench.store.create(topic_of("idle", 4), None).await.unwrap();
    assert_in_order(&bench.store).await;
}

/// Brings tasks into each state, in each possible way. A repair must then change nothing.
pub(crate) async fn every_state_is_in_order_and_a_repair_changes_nothing(bench: Bench<impl Store>) {
    let mut all = vec![bench.add("message.call", 90_000).await, bench.add("@pull", 0).await];
    for transition in [delivered(), dead(), retry(90_000), Transition::Release] {
        let held = bench.add_held().await;
        bench.settle(&held, transition).await;
        bench.store.cancel(&lane(), held.id, None).await.unwrap();
        let held = bench.add_held().await;
        bench.settle(&held, dead()).await;
        all.push(held.id);
    }
    let pending = bench.add_held().await;
    bench.store.cancel(&lane(), pending.id, None).await.unwrap();
    let swept = bench.add_held().await;
    bench.let_lease_run_out();
    bench.sweep().await;
    bench.add_held().await;
    all.extend([pending.id, swept.id]);
    let overdue = bench.add_held().await;
    bench.let_lease_run_out();
    all.push(overdue.id);

    let before = (
        bench.counts().await,
        join_all(all.iter().map(|id| bench.get(*id))).await,
        bench.next_due().await,
    );
    assert_in_order(&bench.store).await;
    let after = (
        bench.counts().await,
        join_all(all.iter().map(|id| bench.get(*id))).await,
        bench.next_due().await,
    );
    assert_eq!(before, after);
}

pub(crate) async fn a_check_pages_through_many_tasks_and_lanes(bench: Bench<impl Store>) {
    for shards in [1, 3] {
        let entry = topic_of(&format!("t{shards}"), shards);
        let task = |i: u64| NewTask {
            topic: entry.clone(),
            ..new_task(&format!("s{}", i % 7), i % 1_000)
        };
        let added = bench.store.add((0..2_000).map(task).collect()).await;
        assert!(added.into_iter().all(|added| added.is_ok()));
    }
    bench.advance(500);
    let lane: Lane = "t1:0".parse().unwrap();
    bench.grant(Claim { lane: lane.clone(), ..claim_of(&[("s1", 900), ("s2", 900)]) }).await;
    assert_in_order(&bench.store).await;
    let report = check(&bench.store, false).await;
    assert!(
        report.tasks == 0 || (report.tasks, report.lanes) == (4_000, 4),
        "the specification has no structures to check"
    );
}

/// How many rounds of traffic each caller makes.
const ROUNDS: usize = 60;

/// Callers add, claim, settle and use the admin verbs at full speed, while checks run between their
/// calls.
pub(crate) async fn traffic_never_looks_like_a_flaw(bench: Bench<impl Store>) {
    let at_work = Cell::new(6);
    let done = || at_work.set(at_work.get() - 1);
    let destinations = ["a", "b", "message.call", "@pull"];
    let add = async {
        for round in 0..ROUNDS as u64 {
            // Every few rounds a new destination.
            let name = |i: u64| {
                if i == 0 { format!("new{round}") } else { destinations[i as usize % 4].to_owned() }
            };
            // Also a new topic.
            let topic = |i: u64| if i == 1 { topic_of(&format!("new{round}"), 2) } else { topic() };
            let task = |i: u64| NewTask { topic: topic(i), ..new_task(&name(i), i * 50) };
            let added = bench.store.add((0..20).map(task).collect()).await;
            assert!(added.into_iter().all(|added| added.is_ok()));
            bench.advance(25);
        }
        done();
    };
    let work = async |skip: usize| {
        for round in 0..ROUNDS {
            let wants = [("a", 5), ("b", 5), ("message.call", 5), ("@pull", 3)];
            let claim = Claim { holder: None, lease: ms(100), ..claim_of(&wants[skip..]) };
            let grant = bench.grant(claim).await;
            let settle = |(i, id): (usize, TaskId)| {
                let transition = match (i + round) % 6 {
                    0 => retry(10),
                    1 => dead(),
                    2 => Transition::Release,
                    _ => delivered(),
                };
                Settle { lane: lane(), id, receipt: grant.receipt.clone(), transition }
            };
            let held = ids(&grant);
            if let Some(id) = held.first() {
                bench
                    .store
                    .extend(Asker::Worker, &lane(), *id, &grant.receipt, ms(200))
                    .await
                    .unwrap();
            }
            // Every third lease expires.
            let settles =
                held.into_iter().enumerate().filter(|(i, _)| i % 3 > 0).map(settle).collect();
            assert!(bench.store.settle(Asker::Worker, settles).await.iter().all(Result::is_ok));
        }
        done();
    };
    let list = async |state| {
        let (from, to) = ALWAYS;
        bench
            .store
            .list(ListQuery { lane: lane(), state, from, to, after: None, limit: 12 })
            .await
            .unwrap()
    };
    let admin = async {
        for round in 0..ROUNDS {
            for (i, listed) in list(State::Scheduled).await.into_iter().enumerate() {
                if (i + round) % 2 == 0 {
                    bench.store.cancel(&lane(), listed.id, None).await.unwrap();
                } else {
                    let new = NewContent {
                        destination: destinations[i % 4].parse().unwrap(),
                        content: "{}".into(),
                        keeps_mode: false,
                    };
                    let new = (i % 3 == 0).then_some(new);
                    bench
                        .store
                        .reschedule(&lane(), listed.id, None, Moment::After(ms(40)), new)
                        .await
                        .unwrap();
                }
            }
            for listed in list(State::Leased).await.into_iter().take(2) {
                bench.store.cancel(&lane(), listed.id, None).await.unwrap();
            }
        }
        done();
    };
    let clear = async {
        for _ in 0..ROUNDS {
            let ids = list(State::Dead).await.into_iter().map(|listed| listed.id).collect();
            bench.store.replay(&lane(), ids, None, Spread::default()).await.unwrap();
            for state in [State::Delivered, State::Cancelled] {
                bench.store.purge(&lane(), 0, state, bench.now(), 15).await.unwrap();
            }
        }
        done();
    };
    let watch = async {
        let mut checks = 0;
        while at_work.get() > 1 {
            checks += 1;
            let report = check(&bench.store, checks % 2 == 0).await;
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            // The specification answers at once.
            tokio::task::yield_now().await;
        }
        done();
        checks
    };
    let (.., checks) = tokio::join!(add, work(0), work(1), admin, clear, watch);
    assert_in_order(&bench.store).await;
    let keeps_structures = check(&bench.store, false).await.tasks > 0;
    assert!(checks > 1 || !keeps_structures, "only {checks} checks ran beside the traffic");
}
