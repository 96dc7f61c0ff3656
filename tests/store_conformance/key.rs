//! At most one task of a key waits.

use std::collections::HashSet;

use delayd::model::task::{Lane, Options, State, TaskId};
use delayd::store::{
    Added, Asker, Cancelled, Claim, Idempotency, LEASE_RAN_OUT, Moment, NewContent, NewTask,
    Novelty, Reader, Settled, Spread, Store, Transition,
};

use crate::bench::{
    Bench, Held, at, claim_of, dead, delivered, expiring, hear, ids, keyed, lane, ms, new_task,
    retry, stale, topic_of,
};

/// Adds a task with the key `k` that is due now.
async fn add_k(bench: &Bench<impl Store>) -> Added {
    bench.try_add(keyed("k", 0)).await.unwrap()
}

pub(crate) async fn a_key_pushes_its_waiting_task_back(bench: Bench<impl Store>) {
    let first = bench
        .try_add(NewTask { destination: "old.server".parse().unwrap(), ..keyed("k", 500) })
        .await
        .unwrap();
    assert_eq!(first.novelty, Novelty::New);
    bench.advance(100);
    let options = Options { max_attempts: Some(2), ..keyed("k", 0).options };
    let again =
        NewTask { options: options.clone(), content: "{\"v\":2}".into(), ..keyed("k", 700) };
    let pushed = bench.try_add(again).await.unwrap();
    assert_eq!(pushed, Added { id: first.id, due: at(800), novelty: Novelty::Replaced });
    let task = bench.get(first.id).await;
    assert_eq!((task.due, task.created, task.state), (at(800), at(0), State::Scheduled));
    assert_eq!((task.destination.as_str(), task.content.as_str()), ("message.call", "{\"v\":2}"));
    assert_eq!(task.options, options);
    assert_eq!(bench.counts().await.scheduled, 1);
    assert_eq!(bench.next_due().await, Some(at(800)));
    bench.advance(699);
    assert!(bench.claim(&[("old.server", 1), ("message.call", 1)]).await.tasks.is_empty());
    bench.advance(1);
    let grant = bench.claim(&[("old.server", 1), ("message.call", 1)]).await;
    assert_eq!(
        (ids(&grant), grant.tasks[0].due, grant.tasks[0].attempt),
        (vec![first.id], at(800), 1)
    );
    assert_eq!(grant.tasks[0].content, "{\"v\":2}");
}

pub(crate) async fn a_push_back_begins_a_revision(bench: Bench<impl Store>) {
    let id = add_k(&bench).await.id;
    for lets_it_run_out in [false, true] {
        let held = bench.hold().await;
        if lets_it_run_out {
            bench.let_lease_run_out();
        } else {
            bench.settle(&held, retry(0)).await;
        }
        let pushed = add_k(&bench).await;
        assert_eq!(
            (pushed.id, pushed.novelty),
            (id, Novelty::Replaced),
            "run out: {lets_it_run_out}"
        );
        let task = bench.get(id).await;
        assert_eq!(
            (task.state, task.attempts, task.last_outcome.as_str()),
            (State::Scheduled, 0, "")
        );
        for transition in [delivered(), retry(0), dead(), Transition::Release] {
            assert_eq!(
                bench.settle(&held, transition.clone()).await,
                stale(State::Scheduled),
                "{transition:?}"
            );
        }
        let extended =
            bench.store.extend(Asker::Worker, &lane(), id, &held.receipt, ms(1_000)).await.unwrap();
        assert_eq!(extended, stale(State::Scheduled));
        assert_eq!(bench.sweep().await.tasks, []);
        let counts = bench.counts().await;
        assert_eq!((counts.scheduled, counts.leased, counts.dead), (1, 0, 0));
    }
}

pub(crate) async fn a_leased_task_of_the_key_is_not_retried_but_may_succeed(
    bench: Bench<impl Store>,
) {
    let ends = [
        (delivered(), State::Delivered),
        (retry(0), State::Cancelled),
        (dead(), State::Cancelled),
        (Transition::Release, State::Cancelled),
    ];
    for (transition, state) in ends {
        let first = add_k(&bench).await;
        let held = bench.hold().await;
        assert_eq!(held.id, first.id);
        let second = bench.try_add(keyed("k", 1_000)).await.unwrap();
        assert_eq!(second.novelty, Novelty::New);
        assert_ne!(second.id, first.id);
        assert_eq!(bench.state(first.id).await, State::Leased);
        let third = bench.try_add(keyed("k", 2_000)).await.unwrap();
        assert_eq!(
            (third.id, third.novelty),
            (second.id, Novelty::Replaced),
            "the newer task must have the key"
        );
        let settled = bench.settle(&held, transition.clone()).await;
        assert_eq!(settled == Settled::Cancelled, state == State::Cancelled, "{settled:?}");
        assert!(settled.is_done(), "{settled:?}");
        assert_eq!(bench.state(first.id).await, state, "{transition:?}");
        assert_eq!(bench.state(second.id).await, State::Scheduled);
        assert_eq!(bench.store.cancel(&lane(), second.id, None).await.unwrap(), Cancelled::Done);
    }
    // Nor does it come back when its lease expires.
    let first = add_k(&bench).await;
    bench.hold().await;
    add_k(&bench).await;
    bench.let_lease_run_out();
    bench.sweep().await;
    assert_eq!(bench.state(first.id).await, State::Cancelled);
    assert_eq!(bench.counts().await.scheduled, 1);
}

pub(crate) async fn an_add_fulfils_a_pending_cancel_of_its_key(bench: Bench<impl Store>) {
    let first = add_k(&bench).await;
    let held = bench.hold().await;
    assert_eq!(bench.store.cancel(&lane(), first.id, None).await.unwrap(), Cancelled::Pending);
    bench.let_lease_run_out();
    let second = add_k(&bench).await;
    assert_eq!(second.novelty, Novelty::New);
    assert_ne!(second.id, first.id);
    let task = bench.get(first.id).await;
    assert_eq!((task.state, task.last_outcome.as_str()), (State::Cancelled, LEASE_RAN_OUT));
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Cancelled));
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), [second.id]);
}

pub(crate) async fn a_task_that_has_ended_releases_its_key(bench: Bench<impl Store>) {
    let mut all = HashSet::new();
    for state in [State::Delivered, State::Dead, State::Cancelled, State::Expired] {
        let options = Options { key: Some("k".into()), ..expiring("message.call", 0, 10).options };
        let added =
            bench.try_add(NewTask { options, ..new_task("message.call", 0) }).await.unwrap();
        assert_eq!(added.novelty, Novelty::New, "before {state:?}");
        assert!(all.insert(added.id));
        match state {
            State::Delivered => {
                assert_eq!(bench.settle(&bench.hold().await, delivered()).await, Settled::Done)
            }
            State::Dead => {
                assert_eq!(bench.settle(&bench.hold().await, dead()).await, Settled::Done)
            }
            State::Cancelled => drop(bench.store.cancel(&lane(), added.id, None).await.unwrap()),
            _ => {
                bench.advance(11);
                bench.sweep().await;
            }
        }
        assert_eq!(bench.state(added.id).await, state);
    }
    assert_eq!(add_k(&bench).await.novelty, Novelty::New, "the end of {all:?}");
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.delivered, counts.dead), (1, 1, 1));
    assert_eq!((counts.cancelled, counts.expired), (1, 1));
}

/// A key belongs to the newest task that was added with it.
pub(crate) async fn a_replay_takes_no_key_back(bench: Bench<impl Store>) {
    let older = add_k(&bench).await;
    bench.settle(&bench.hold().await, dead()).await;
    assert_eq!(
        bench.store.replay(&lane(), vec![older.id], None, Spread::default()).await.unwrap(),
        1
    );
    let pushed = add_k(&bench).await;
    assert_eq!(
        (pushed.id, pushed.novelty),
        (older.id, Novelty::Replaced),
        "the older task must still have the key"
    );

    bench.settle(&bench.hold().await, dead()).await;
    let newer = bench.try_add(keyed("k", 1_000)).await.unwrap();
    assert_eq!(newer.novelty, Novelty::New);
    assert_eq!(
        bench.store.replay(&lane(), vec![older.id], None, Spread::default()).await.unwrap(),
        1
    );
    let before = bench.get(older.id).await;
    let pushed = bench.try_add(keyed("k", 9_000)).await.unwrap();
    assert_eq!((pushed.id, pushed.novelty), (newer.id, Novelty::Replaced));
    assert_eq!(bench.get(older.id).await, before, "the older task changed");
    assert_eq!(bench.get(newer.id).await.due, at(9_000));
}

pub(crate) async fn a_reschedule_keeps_the_key(bench: Bench<impl Store>) {
    let id = add_k(&bench).await.id;
    let new = NewContent {
        destination: "@pull".parse().unwrap(),
        content: "{\"v\":2}".into(),
        keeps_mode: false,
    };
    bench.store.reschedule(&lane(), id, None, Moment::After(ms(5_000)), Some(new)).await.unwrap();
    assert_eq!(bench.get(id).await.options, keyed("k", 0).options);
    let pushed = add_k(&bench).await;
    assert_eq!((pushed.id, pushed.novelty), (id, Novelty::Replaced));
    assert_eq!(bench.get(id).await.destination.as_str(), "message.call");
}

pub(crate) async fn a_thousand_adds_of_one_key_make_one_task(bench: Bench<impl Store>) {
    for round in 0..10_u64 {
        let beat = |i: u64| NewTask {
            content: format!("{{\"beat\":{}}}", round * 100 + i),
            ..keyed("k", 30_000)
        };
        let added = bench.store.add((0..100).map(beat).collect()).await;
        let new =
            added.iter().filter(|added| added.as_ref().unwrap().novelty == Novelty::New).count();
        assert_eq!(new, usize::from(round == 0));
        bench.advance(1_000);
    }
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.earliest), (1, Some(at(39_000))));
    bench.advance(28_999);
    assert!(
        bench.claim(&[("message.call", 5)]).await.tasks.is_empty(),
        "a task was handed out although heartbeats came"
    );
    bench.advance(1);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(
        grant.tasks.iter().map(|task| &*task.content).collect::<Vec<_>>(),
        ["{\"beat\":999}"]
    );
}

pub(crate) async fn a_key_counts_within_its_batch(bench: Bench<impl Store>) {
    let batch = vec![
        keyed("k", 100),
        keyed("l", 100),
        NewTask { content: "last".into(), destination: "@pull".parse().unwrap(), ..keyed("k", 50) },
    ];
    let added: Vec<Added> = bench.store.add(batch).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(added[2], Added { id: added[0].id, due: at(50), novelty: Novelty::Replaced });
    assert_eq!([added[0].novelty, added[1].novelty], [Novelty::New; 2]);
    assert_eq!(bench.get(added[0].id).await.content, "last");
    assert_eq!(bench.counts().await.scheduled, 2);
    bench.advance(100);
    let grant = bench.claim(&[("message.call", 5), ("@pull", 5)]).await;
    assert_eq!(ids(&grant), [added[1].id, added[0].id]);
}

pub(crate) async fn a_key_finds_its_lane(bench: Bench<impl Store>) {
    let sharded = topic_of("sharded", 8);
    let mut shards = HashSet::new();
    for n in 0..24_u128 {
        let key = format!("key-{n}");
        // The idempotency key alone would lead to another lane.
        let once =
            |count| Idempotency { key: format!("{n}-{count}"), fingerprint: n, window: ms(1_000) };
        let task = |count| NewTask {
            topic: sharded.clone(),
            idempotency: Some(once(count)),
            ..keyed(&key, 1_000)
        };
        let added = bench.try_add(task(1)).await.unwrap();
        let lane = sharded.lane_of(added.id);
        assert_eq!(lane.shard, Lane::shard_of_key(&key, 8), "{key}");
        shards.insert(lane.shard);
        let again = bench.try_add(task(2)).await.unwrap();
        assert_eq!(again, Added { novelty: Novelty::Replaced, ..added }, "{key}");
        assert_eq!(
            bench.store.get(Reader::Worker, &lane, added.id).await.unwrap().unwrap().options.key,
            Some(key)
        );
    }
    assert!(shards.len() > 3, "the keys are not spread over the lanes: {shards:?}");
    let mut count = 0;
    for lane in sharded.lanes() {
        count += bench.store.stats(&lane).await.unwrap().scheduled;
    }
    assert_eq!(count, 24);
    let elsewhere = bench.try_add(keyed("key-1", 0)).await.unwrap();
    assert_eq!(elsewhere.novelty, Novelty::New, "a key of another topic must not count");
}

/// A heartbeat whose answer was lost does not count as a second heartbeat.
pub(crate) async fn a_repeated_push_back_pushes_no_further(bench: Bench<impl Store>) {
    let beat = |key: &str| {
        let idempotency = Some(Idempotency { key: key.into(), fingerprint: 1, window: ms(60_000) });
        NewTask { idempotency, ..keyed("k", 1_000) }
    };
    let first = bench.try_add(beat("one")).await.unwrap();
    bench.advance(100);
    let second = bench.try_add(beat("two")).await.unwrap();
    assert_eq!(second, Added { id: first.id, due: at(1_100), novelty: Novelty::Replaced });
    bench.advance(100);
    for key in ["one", "two"] {
        let again = bench.try_add(beat(key)).await.unwrap();
        let novelty = Novelty::Duplicate { state: Some(State::Scheduled) };
        assert_eq!(again, Added { id: first.id, due: at(1_100), novelty }, "{key}");
    }
    assert_eq!(
        bench.get(first.id).await.due,
        at(1_100),
        "the due moment must be that of the second push-back"
    );
}

pub(crate) async fn a_push_back_is_hinted(bench: Bench<impl Store>) {
    let mut hints = bench.store.hints();
    bench.try_add(keyed("k", 9_000)).await.unwrap();
    assert_eq!(hear(&mut hints).await.due, at(9_000));
    bench.try_add(keyed("k", 5_000)).await.unwrap();
    let hint = hear(&mut hints).await;
    assert_eq!((hint.due, hint.is_pull, hint.lane), (at(5_000), false, lane()));
}

pub(crate) async fn a_task_that_is_forgotten_leaves_no_key(bench: Bench<impl Store>) {
    let mut seen = HashSet::new();
    for how in ["purge", "discard", "clear", "at last"] {
        let added = add_k(&bench).await;
        assert_eq!(added.novelty, Novelty::New, "before {how}");
        assert!(seen.insert(added.id));
        if how != "clear" {
            bench.store.cancel(&lane(), added.id, None).await.unwrap();
        }
        bench.advance(1);
        let count = match how {
            "purge" => {
                bench.store.purge(&lane(), 0, State::Cancelled, bench.now(), 10).await.unwrap()
            }
            "discard" => {
                bench.store.discard(&lane(), State::Cancelled, vec![added.id], None).await.unwrap()
            }
            _ => bench.store.clear(&lane(), 10).await.unwrap().removed,
        };
        assert_eq!(count, 1, "{how}");
        assert!(
            bench.store.get(Reader::Worker, &lane(), added.id).await.unwrap().is_none(),
            "{how}"
        );
    }
}

/// A claim and a push-back agree, whichever is first: a replaced task is not handed out, and a task
/// that was handed out is not replaced.
pub(crate) async fn a_claim_and_a_push_back_at_the_same_time_agree(bench: Bench<impl Store>) {
    let version = |version: &str| NewTask { content: version.into(), ..keyed("k", 0) };
    for round in 0..100 {
        let first = bench.try_add(version("old")).await.unwrap();
        let claim = Claim { holder: None, ..claim_of(&[("message.call", 5)]) };
        let (added, grant) = match round % 2 {
            0 => tokio::join!(bench.try_add(version("new")), bench.grant(claim)),
            _ => {
                let (grant, added) =
                    tokio::join!(bench.grant(claim), bench.try_add(version("new")));
                (added, grant)
            }
        };
        let handed_out: Vec<(TaskId, &str)> =
            grant.tasks.iter().map(|task| (task.id, &*task.content)).collect();
        match added.unwrap() {
            Added { id, novelty: Novelty::Replaced, .. } => {
                assert_eq!(id, first.id);
                assert!(
                    handed_out.is_empty() || handed_out == [(first.id, "new")],
                    "{handed_out:?}"
                );
            }
            Added { id, novelty: Novelty::New, .. } => {
                assert_eq!(
                    handed_out,
                    [(first.id, "old")],
                    "the leased task must be the first one"
                );
                assert_eq!(bench.state(id).await, State::Scheduled);
            }
            added => panic!("{added:?}"),
        }
        for task in &grant.tasks {
            bench.settle(&Held { id: task.id, receipt: grant.receipt.clone() }, delivered()).await;
        }
        bench.store.clear(&lane(), 10).await.unwrap();
    }
}
