//! `list`, `stats`, `next_due`: verbs that only read.

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Lane, State, TaskId};
use delayd::store::{
    Asker, Counts, Instance, ListQuery, Listed, Look, Looked, Moment, NewTask, NextDue, Reader,
    Spread, Store, Transition,
};

use crate::bench::{
    ALWAYS, Bench, Held, LEASE_MS, at, dead, delivered, lane, ms, new_task, retry, topic_of,
};

pub(crate) async fn pages_follow_one_another_in_time_order(bench: Bench<impl Store>) {
    // Many tasks of one moment, over several destinations.
    let batch = (0..100_u64)
        .map(|i| new_task(["a", "b", "c", "@pull"][(i % 4) as usize], i * 7 % 10))
        .collect();
    let added = bench.store.add(batch).await.into_iter().map(Result::unwrap);
    let mut all: Vec<Listed> =
        added.map(|added| Listed { moment: added.due, id: added.id }).collect();
    all.sort_unstable();
    let (from, to) = ALWAYS;
    for limit in [1, 7, 25, 100, 1_000] {
        let mut found: Vec<Listed> = Vec::new();
        loop {
            let query = ListQuery {
                lane: lane(),
                state: State::Scheduled,
                from,
                to,
                after: found.last().copied(),
                limit,
            };
            let page = bench.store.list(query).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, all, "in pages of {limit}");
    }
}

pub(crate) async fn pages_follow_one_another_back_in_time(bench: Bench<impl Store>) {
    let batch = (0..100_u64)
        .map(|i| new_task(["a", "b", "c", "@pull"][(i % 4) as usize], i * 7 % 10))
        .collect();
    assert!(bench.store.add(batch).await.iter().all(Result::is_ok));
    for transition in [delivered(), dead(), delivered()] {
        for _ in 0..3 {
            let held = bench.add_held().await;
            bench.settle(&held, transition.clone()).await;
        }
        bench.advance(1);
    }
    bench.claim(&[("a", 7)]).await;
    let spans = [ALWAYS, (at(2), at(6)), (at(0), at(0)), (at(1), at(4_000_000)), (at(6), at(2))];
    for state in [State::Scheduled, State::Leased, State::Delivered, State::Dead] {
        for (from, to) in spans {
            let query = |after, limit| ListQuery { lane: lane(), state, from, to, after, limit };
            let mut all = bench.store.list(query(None, 1_000)).await.unwrap();
            all.reverse();
            for limit in [1, 7, 1_000] {
                let mut found: Vec<Listed> = Vec::new();
                loop {
                    let query = query(found.last().copied(), limit);
                    let page = bench.store.list_latest(query).await.unwrap();
                    assert!(page.len() <= limit);
                    if page.is_empty() {
                        break;
                    }
                    found.extend(page);
                }
                assert_eq!(found, all, "{state:?} {from} to {to} in pages of {limit}");
            }
        }
    }
}

pub(crate) async fn a_list_is_bounded_by_from_and_to(bench: Bench<impl Store>) {
    for i in 0..10 {
        let held = bench.add_held().await;
        bench.settle(&held, delivered()).await;
        bench.add("later", 60_000).await;
        assert_eq!(bench.now(), at(i * 10));
        bench.advance(10);
    }
    let check =
        async |state: State, from: i64, to: i64, after: Option<Listed>, expected: &[i64]| {
            let query =
                ListQuery { lane: lane(), state, from: at(from), to: at(to), after, limit: 100 };
            let moments: Vec<UnixMillis> =
                bench.store.list(query).await.unwrap().iter().map(|listed| listed.moment).collect();
            assert_eq!(
                moments,
                expected.iter().map(|ms| at(*ms)).collect::<Vec<_>>(),
                "{state:?} {from} to {to}"
            );
        };
    for (state, base) in [(State::Delivered, 0), (State::Scheduled, 60_000)] {
        check(state, base + 20, base + 40, None, &[base + 20, base + 30, base + 40]).await;
        check(state, base + 21, base + 39, None, &[base + 30]).await;
        check(state, base + 91, base + 1_000, None, &[]).await;
        check(state, base + 40, base + 20, None, &[]).await;
        let last = Listed { moment: at(base + 30), id: TaskId::MAX };
        check(state, base, base + 50, Some(last), &[base + 40, base + 50]).await;
        let before_all = Listed { moment: at(base - 5_000), id: TaskId::MAX };
        check(state, base + 80, base + 500, Some(before_all), &[base + 80, base + 90]).await;
    }
}

pub(crate) async fn each_state_is_listed_by_its_own_moment(bench: Bench<impl Store>) {
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(bench.add_held().await);
    }
    let waiting = bench.add("message.call", 70_000).await;
    bench.advance(100);
    bench.settle(&held[0], delivered()).await;
    bench.advance(100);
    bench.settle(&held[1], dead()).await;
    bench.advance(100);
    bench.settle(&held[2], retry(0)).await;
    bench.store.cancel(&lane(), held[2].id, None).await.unwrap();
    let check = async |state: State, expected: &[(i64, TaskId)]| {
        let expected: Vec<Listed> =
            expected.iter().map(|(ms, id)| Listed { moment: at(*ms), id: *id }).collect();
        assert_eq!(bench.list(state).await, expected, "{state:?}");
    };
    check(State::Scheduled, &[(70_000, waiting)]).await;
    check(State::Leased, &[(LEASE_MS as i64, held[3].id)]).await;
    check(State::Delivered, &[(100, held[0].id)]).await;
    check(State::Dead, &[(200, held[1].id)]).await;
    check(State::Cancelled, &[(300, held[2].id)]).await;
    check(State::Expired, &[]).await;
}

pub(crate) async fn counts_are_exact_after_every_verb(bench: Bench<impl Store>) {
    let check = async |verb: &str, [scheduled, leased, delivered, dead, cancelled]: [u64; 5]| {
        let expected =
            Counts { scheduled, leased, delivered, dead, cancelled, expired: 0, earliest: None };
        assert_eq!(Counts { earliest: None, ..bench.counts().await }, expected, "after {verb}");
    };
    check("nothing", [0, 0, 0, 0, 0]).await;
    bench.store.add(vec![new_task("message.call", 0); 6]).await;
    bench.store.add(vec![new_task("@pull", 0); 2]).await;
    check("add", [8, 0, 0, 0, 0]).await;
    let held = [bench.hold().await, bench.hold().await, bench.hold().await, bench.hold().await];
    check("claim", [4, 4, 0, 0, 0]).await;
    bench.settle(&held[0], delivered()).await;
    check("delivered", [4, 3, 1, 0, 0]).await;
    bench.settle(&held[1], dead()).await;
    check("dead", [4, 2, 1, 1, 0]).await;
    bench.settle(&held[2], Transition::Release).await;
    check("release", [5, 1, 1, 1, 0]).await;
    bench
        .store
        .extend(Asker::Worker, &lane(), held[3].id, &held[3].receipt, ms(LEASE_MS))
        .await
        .unwrap();
    check("extend", [5, 1, 1, 1, 0]).await;
    bench.store.cancel(&lane(), held[3].id, None).await.unwrap();
    check("cancel pending", [5, 1, 1, 1, 0]).await;
    bench.settle(&held[3], retry(0)).await;
    check("retry", [5, 0, 1, 1, 1]).await;
    bench.store.replay(&lane(), vec![held[1].id], None, Spread::default()).await.unwrap();
    check("replay", [6, 0, 1, 0, 1]).await;
    bench.store.cancel(&lane(), held[2].id, None).await.unwrap();
    check("cancel", [5, 0, 1, 0, 2]).await;
    bench.claim(&[("@pull", 2)]).await;
    bench.let_lease_run_out();
    check("expiry", [3, 2, 1, 0, 2]).await;
    bench.sweep().await;
    check("sweep", [5, 0, 1, 0, 2]).await;
    bench.store.purge(&lane(), 0, State::Cancelled, bench.now(), 1).await.unwrap();
    check("purge", [5, 0, 1, 0, 1]).await;
}

pub(crate) async fn next_due_knows_every_lane_and_leaves_pulled_tasks_out(
    bench: Bench<impl Store>,
) {
    assert_eq!(bench.next_due().await, None);
    bench.add("@pull", 5).await;
    assert_eq!(bench.next_due().await, None, "a pulled task must not count for workers");
    bench.add("message.call", 9_000).await;
    assert_eq!(bench.next_due().await, Some(at(9_000)));
    bench.add("other.server", 4_000).await;
    assert_eq!(bench.next_due().await, Some(at(4_000)));
    bench.add_task(NewTask { topic: topic_of("others", 1), ..new_task("message.call", 77) }).await;
    let lanes = ["others:0", "nobody:3", "orders:0"].map(|lane| lane.parse().unwrap()).to_vec();
    let next = bench.store.next_due(lanes).await.unwrap();
    assert_eq!(next.lanes, [Some(at(77)), None, Some(at(4_000))]);
    assert!(bench.store.next_due(Vec::new()).await.unwrap().lanes.is_empty());
}

pub(crate) async fn next_due_includes_the_earliest_lease_deadline(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    assert_eq!(bench.next_due().await, Some(at(LEASE_MS as i64)));
    bench.add("message.call", LEASE_MS + 1).await;
    assert_eq!(bench.next_due().await, Some(at(LEASE_MS as i64)));
    bench.settle(&held, delivered()).await;
    assert_eq!(bench.next_due().await, Some(at(LEASE_MS as i64 + 1)));
    bench.advance(LEASE_MS + 5_000);
    assert_eq!(
        bench.next_due().await,
        Some(at(LEASE_MS as i64 + 1)),
        "the overdue moment must stay the next one"
    );
    bench.hold().await;
    bench.advance(2 * LEASE_MS);
    let deadline = at(2 * LEASE_MS as i64 + 5_000);
    assert_eq!(
        bench.next_due().await,
        Some(deadline),
        "an expired lease must stay next until it is swept"
    );
}

/// The poll of each instance every second gives the same answers as the single verbs.
pub(crate) async fn a_poll_gives_the_answers_of_the_verbs(bench: Bench<impl Store>) {
    bench.add("message.call", 10).await;
    bench.add("@pull", 4_000).await;
    bench.add_task(NewTask { topic: topic_of("others", 1), ..new_task("@pull", 77) }).await;
    let lanes: Vec<Lane> =
        ["others:0", "nobody:3", "orders:0"].map(|lane| lane.parse().unwrap()).to_vec();
    let own = Instance { id: "a".into(), name: "host".into(), calls: 3, ..Instance::default() };
    let look = Look {
        seen: None,
        workers: vec![lane()],
        consumers: lanes.clone(),
        planners: Vec::new(),
        heartbeat: Some(own.clone()),
    };
    let looked = bench.store.look(look).await;
    let Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances } = looked;
    assert!(matches!(plans, Ok(None)), "{plans:?}");
    assert!(unknown.is_empty() && unanswered.is_empty());
    assert_eq!(instances.unwrap(), [Instance { seen: bench.now(), ..own }]);
    let (revision, entries) = registry.unwrap().expect("the registry must be read the first time");
    assert_eq!(entries.len(), 2);
    assert!(holds.unwrap().held.is_empty());
    assert_eq!(next.unwrap().unwrap().lanes, [Some(at(10))]);
    assert_eq!(pulls.unwrap(), Some(bench.store.next_pull(lanes).await.unwrap()));
    let nothing = bench.store.look(Look { seen: Some(revision), ..Look::default() }).await;
    assert_eq!((nothing.next.unwrap(), nothing.pulls.unwrap()), (None, None));
}

pub(crate) async fn next_pull_knows_only_tasks_for_consumers(bench: Bench<impl Store>) {
    let next = async || bench.store.next_pull(vec![lane()]).await.unwrap();
    assert_eq!(next().await, NextDue { now: bench.now(), lanes: vec![None] });
    bench.add("message.call", 10).await;
    assert_eq!(next().await.lanes, [None], "a called task must not count for consumers");
    let first = bench.add("@pull", 4_000).await;
    bench.add("@pull", 90_000).await;
    bench.add_task(NewTask { topic: topic_of("others", 1), ..new_task("@pull", 77) }).await;
    let lanes = ["others:0", "nobody:3", "orders:0"].map(|lane| lane.parse().unwrap()).to_vec();
    assert_eq!(
        bench.store.next_pull(lanes).await.unwrap().lanes,
        [Some(at(77)), None, Some(at(4_000))]
    );
    bench.store.reschedule(&lane(), first, None, Moment::At(at(5_000)), None).await.unwrap();
    assert_eq!(next().await.lanes, [Some(at(5_000))], "the moment must follow the task");
    bench.advance(6_000);
    assert_eq!(next().await.lanes, [Some(at(5_000))], "the overdue moment must stay the next one");
    let grant = bench.claim(&[("@pull", 1)]).await;
    assert_eq!(
        next().await.lanes,
        [Some(bench.now() + ms(LEASE_MS))],
        "a lease that expires first must count"
    );
    bench.settle(&Held { id: first, receipt: grant.receipt }, delivered()).await;
    assert_eq!(next().await, NextDue { now: bench.now(), lanes: vec![Some(at(90_000))] });
}

pub(crate) async fn reads_of_unknown_names_are_empty(bench: Bench<impl Store>) {
    assert_eq!(bench.store.get(Reader::Worker, &lane(), TaskId(1)).await.unwrap(), None);
    assert_eq!(bench.counts().await, Counts::default());
    assert!(bench.list(State::Scheduled).await.is_empty());
    let grant = bench.claim(&[("message.call", 1)]).await;
    assert!(grant.tasks.is_empty() && grant.outlook.due.is_empty() && grant.outlook.next.is_none());
    assert!(bench.store.topics().await.unwrap().is_empty(), "reading made a topic");
}

pub(crate) async fn a_store_keeps_its_id(bench: Bench<impl Store>) {
    let id = bench.store.id().await.unwrap();
    bench.add("message.call", 0).await;
    assert_eq!(bench.store.id().await.unwrap(), id);
}
