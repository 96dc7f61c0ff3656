//! The roles together, over a store that records claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::testing::{Bench, lane, soon};
use crate::model::task::{Destination, TopicPolicy};
use crate::store::{
    Asker, Delivery, KEPT, MAX_OUTLOOK, Moment, NewSchedule, Reader, Settle, Settled, TopicEntry,
    Transition,
};

/// The poll had read the holds before the hold was set, and its answer ended the hold.
#[tokio::test]
async fn a_look_that_began_before_a_hold_does_not_undo_it() {
    let bench = Bench::start(&[("message.call", 0)], |params| {
        params.poll_every = Duration::from_millis(10)
    });
    let (store, parts) = (&bench.store, bench.parts());
    let destination: Destination = "message.call".parse().unwrap();
    store.holds_gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    soon(store.holds_read.notified()).await;

    store.store.set_hold(&destination, true).await.unwrap();
    parts.limits.set_holds(
        parts.limits.ask_holds(),
        [destination.clone()].into(),
        Default::default(),
    );
    store.holds_gate.add_permits(1);
    // The next poll begins after that one.
    soon(store.holds_read.notified()).await;
    assert_eq!(parts.limits.free(&destination, Default::default()), 0);
}

/// An outlook lists destinations by due moment, so that flooded ones always come first. The third
/// destination was called only once the first two had no permits left.
#[tokio::test]
async fn more_flooded_destinations_than_one_claim_has_room_for_starve_none_behind_them() {
    let mut bench = Bench::start(&[("a", 0), ("b", 0), ("z", 0)], |params| params.claim_batch = 2);
    bench.add(["a", "b"].repeat(50).into_iter().chain(["z"])).await;
    let mut first = Vec::new();
    for _ in 0..6 {
        first.push(bench.call().await.sn);
    }
    assert!(first.iter().any(|sn| sn == "z"), "{first:?}");
}

/// A lane claims once in a round trip, so the size of a claim limited the rate of the lane.
#[tokio::test]
async fn a_claim_from_a_far_server_is_larger() {
    for (round_trip, slots) in [(0, 4), (900, 4), (1_000, 4), (3_500, 12)] {
        let bench = Bench::start(&[("a", 100)], |params| params.claim_batch = 4);
        *bench.store.round_trip.lock().unwrap() = Duration::from_micros(round_trip);
        bench.add(["a"; 30]).await;
        let wanted =
            bench.store.until(|claims| Some(claims.iter().find_map(|c| c.wants.first())?.slots));
        assert_eq!(soon(wanted).await, slots, "{round_trip} µs away");
    }
}

/// After reading several pages, a lane waited only for the destinations of the last page. A free
/// slot of a destination of the first page did not wake it.
#[tokio::test]
async fn a_slot_of_any_of_a_great_many_due_destinations_wakes_their_lane() {
    let names: Vec<String> = (0..MAX_OUTLOOK + 10).map(|number| format!("d{number:04}")).collect();
    let services: Vec<(&str, usize)> =
        names.iter().map(|name| (name.as_str(), 1)).chain([("z", 1)]).collect();
    let mut bench =
        Bench::start(&services, |params| params.poll_every = Duration::from_secs(3_600));
    bench.add(names.iter().chain(&names)).await;
    let mut calls = BTreeMap::new();
    for _ in 0..names.len() {
        let call = bench.call().await;
        calls.insert(call.sn.clone(), call);
    }
    assert_eq!(calls.len(), names.len(), "one of each");

    for name in [&names[0], &names[names.len() - 1], &names[MAX_OUTLOOK / 2]] {
        calls.remove(name).unwrap().succeed();
        let next = bench.call().await;
        assert_eq!(&next.sn, name);
        calls.insert(next.id.to_string(), next);
    }
    bench.add(["z"]).await;
    assert_eq!(bench.call().await.sn, "z", "the others are at their limits");
    assert!(bench.is_quiet());
}

/// Each task of a healthy destination cost a look at all blocked destinations of its lane: beside
/// 5,000 of them, ten tasks cost 46 claims, which named 46,033 destinations.
#[tokio::test]
async fn a_task_costs_the_same_beside_any_number_of_blocked_destinations() {
    let names: Vec<String> =
        (0..2 * MAX_OUTLOOK + 10).map(|number| format!("d{number:04}")).collect();
    let services: Vec<(&str, usize)> =
        names.iter().map(|name| (name.as_str(), 1)).chain([("z", 1)]).collect();
    let mut bench =
        Bench::start(&services, |params| params.poll_every = Duration::from_secs(3_600));
    for name in &names {
        let name = name.parse().unwrap();
        bench.parts().limits.hold(&name, Duration::from_secs(3_600));
    }
    bench.add(["z"]).await;
    bench.call().await.succeed();
    for some in names.chunks(200) {
        bench.add(some).await;
    }
    let store = bench.store.clone();
    soon(store.until(|_| (store.count_seen() >= names.len()).then_some(()))).await;
    bench.add(["z"]).await;
    bench.call().await.succeed();

    // The lane may still read what fell due at the same time as the last of them.
    let mut costs = Vec::new();
    for _ in 0..5 {
        let before = bench.store.cost();
        for _ in 0..10 {
            bench.add(["z"]).await;
            bench.call().await.succeed();
        }
        let cost = bench.store.cost();
        costs.push((cost.claims - before.claims, cost.named - before.named));
    }
    let is_small = |(claims, named): &(usize, usize)| *claims <= 10 * 4 && *named <= 10 * 4;
    assert!(costs.iter().any(is_small), "claims and names for 10 tasks: {costs:?}");

    let before = bench.store.cost();
    for name in [&names[0], &names[MAX_OUTLOOK + 500]] {
        bench.parts().limits.lift(&name.parse().unwrap());
        let call = bench.call().await;
        assert_eq!(&call.sn, name);
        call.succeed();
    }
    let cost = bench.store.cost();
    let (claims, named) = (cost.claims - before.claims, cost.named - before.named);
    assert!(claims <= 2 * 4 && named <= 2 * 4, "{claims} claims, {named} names for 2 releases");
}

/// A topic began with a slow start of 16 slots, as a destination does.
#[tokio::test]
async fn all_slots_of_a_topic_are_there_from_its_first_call_and_no_more() {
    let names = ["a", "b", "c"];
    let mut bench = Bench::start(&names.map(|name| (name, 100)), |params| {
        params.timeout = Duration::from_secs(30);
        params.poll_every = Duration::from_millis(10);
    });
    bench.set_policy(TopicPolicy { concurrency: Some(40), ..TopicPolicy::default() }).await;
    bench.add(names.iter().cycle().take(60)).await;
    let mut calls = Vec::new();
    for _ in 0..40 {
        calls.push(bench.call().await);
    }
    assert!(bench.is_quiet());
    calls.remove(0).fail();
    calls.push(bench.call().await);
    assert!(bench.is_quiet(), "one slot came free");
}

/// A destination had free permits but nothing due, so the lock was kept for two seconds. Meanwhile
/// no other instance could claim what was blocked here.
#[tokio::test]
async fn a_lane_whose_due_work_is_all_blocked_gives_its_lock_back() {
    let mut bench = Bench::start(&[("blocked", 1), ("free", 0)], |params| {
        params.claim_batch = 2;
        params.poll_every = Duration::from_secs(3_600);
    });
    bench.add(["blocked", "blocked", "free"]).await;
    let _calls = (bench.call().await, bench.call().await);
    let keeping = soon(bench.store.until(|claims| {
        claims.iter().rposition(|claim| {
            claim.more && claim.wants.iter().any(|want| want.destination.as_str() == "free")
        })
    }))
    .await;
    soon(bench.store.until(|claims| {
        claims[keeping + 1..]
            .iter()
            .any(|claim| !claim.more && claim.wants.is_empty())
            .then_some(())
    }))
    .await;
}

/// The poll had read the task's lane before the add, and the hint was dropped. The task waited for
/// the next poll, a second later.
#[tokio::test]
async fn what_is_added_during_the_first_look_is_called_without_another_second() {
    let mut bench = Bench::start(&[("message.call", 0)], |params| {
        params.poll_every = Duration::from_secs(3_600)
    });
    let store = bench.store.clone();
    store.holds_gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    soon(store.holds_read.notified()).await;
    bench.add(["message.call"]).await;
    // The hint arrives before the poll ends.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    store.holds_gate.add_permits(8);
    bench.call().await.succeed();
}

/// The store falls silent between the two requests of a poll that finds a topic. The time until the
/// next poll was charged to delayd.
#[tokio::test]
async fn a_silence_within_a_poll_is_charged_to_the_store() {
    let bench = Bench::start(&[("a", 0)], |params| params.poll_every = Duration::from_millis(10));
    let store = &bench.store;
    store.poll_gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    store.hides_due.store(true, Ordering::SeqCst);
    store.store.create(TopicEntry { topic: lane().topic, shards: 1 }, None).await.unwrap();
    let delays = &bench.parts().metrics.lateness.delays;
    // One of the next polls finds the topic. Each waits for its permit.
    let charged = async {
        loop {
            store.polled.notified().await;
            if delays.of(&lane().topic).is_delayed_by_the_store() {
                return;
            }
            store.poll_gate.add_permits(1);
        }
    };
    soon(charged).await;
}

/// A poll waited for a silent server several times in a row. For seconds, no hint was received.
#[tokio::test]
async fn a_look_that_waits_for_the_store_keeps_no_hint_waiting() {
    let mut bench = Bench::start(&[("message.call", 0)], |params| {
        params.poll_every = Duration::from_millis(10)
    });
    let store = bench.store.clone();
    bench.add(["message.call"]).await;
    bench.call().await.succeed();
    store.poll_gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    // By now the lane sleeps or will sleep, and this poll or the next one began after the gate was
    // closed.
    for _ in 0..3 {
        bench.add(["message.call"]).await;
        bench.call().await.succeed();
        let _ = tokio::time::timeout(Duration::from_millis(50), store.polled.notified()).await;
    }
}

/// The lease ran out during the call, and this instance claimed the task again. The failure was
/// refused, and the newer lease was released at once: the task was called again without a wait.
#[tokio::test]
async fn a_failure_that_comes_after_its_lease_is_followed_by_its_backoff_and_spends_one_attempt() {
    let wait = Duration::from_secs(2);
    let mut bench = Bench::start(&[("message.call", 0)], |params| {
        params.lease = Duration::from_millis(1_500);
        params.timeout = Duration::from_millis(1);
        params.policy.backoff = serde_json::from_str(r#"{"kind":"fixed","every":"2s"}"#).unwrap();
    });
    bench.add(["message.call"]).await;
    let call = bench.call().await;
    let (id, store) = (call.id, bench.store.clone());
    while soon(store.store.get(Reader::Worker, &lane(), id)).await.unwrap().unwrap().attempts < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let failed = Instant::now();
    call.fail();
    let again = bench.call().await;
    // The store's clock counts in whole milliseconds.
    assert!(failed.elapsed() >= wait - Duration::from_millis(2), "{:?}", failed.elapsed());
    assert_eq!((again.id, again.attempt), (id, 2));
}

/// The lane knows of nothing due, and no poll is coming. Only the store's hint wakes it.
#[tokio::test]
async fn what_waits_again_is_called_without_a_look() {
    let mut bench = Bench::start(&[("message.call", 0)], |params| {
        params.poll_every = Duration::from_secs(3_600);
        params.policy.backoff =
            serde_json::from_str(r#"{"kind":"fixed","every":"200ms"}"#).unwrap();
    });
    bench.add(["message.call"]).await;
    let call = bench.call().await;
    call.fail();
    let call = bench.call().await;
    assert_eq!(call.attempt, 2);
    // Its receiver announces that it acknowledges later, and then returns the task.
    let (id, store) = (call.id, bench.store.clone());
    let receipt = call.keep(Duration::from_secs(3_600));
    while store.store.get(Reader::Worker, &lane(), id).await.unwrap().unwrap().last_outcome != KEPT
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let transition = Transition::Retry {
        due: Moment::After(Duration::from_millis(200)),
        outcome: "nacked".into(),
    };
    let back =
        store.settle(Asker::Worker, vec![Settle { lane: lane(), id, receipt, transition }]).await;
    assert!(matches!(back[..], [Ok(Settled::Done)]), "{back:?}");
    assert_eq!(bench.call().await.attempt, 3);
}

/// Once a file had had one schedule, each poll read the plans of all lanes of all topics.
#[tokio::test]
async fn a_poll_asks_for_plans_only_in_topics_that_have_schedules() {
    let bench = Bench::start(&[("a", 0)], |params| params.poll_every = Duration::from_millis(10));
    let store = &bench.store;
    let (with, without) = (TopicEntry { topic: lane().topic, shards: 1 }, "other".parse().unwrap());
    let without = TopicEntry { topic: without, shards: 3 };
    for topic in [&with, &without] {
        store.store.create(topic.clone(), None).await.unwrap();
    }
    // The first notices may be of polls that do not know the registry as it is now.
    let asked = async || {
        for _ in 0..4 {
            soon(store.polled.notified()).await;
        }
        std::mem::take(&mut *store.planners.lock().unwrap())
    };
    assert_eq!(asked().await, BTreeSet::new());
    let name: crate::model::task::ScheduleName = "s".parse().unwrap();
    let definition = r#"{"rule":7}"#.to_owned();
    let new = NewSchedule { name: name.clone(), definition, revision: 1, moved: None };
    store.store.set_schedule(&with, new).await.unwrap();
    let found = async {
        loop {
            let found = asked().await;
            if !found.is_empty() {
                return found;
            }
        }
    };
    assert_eq!(soon(found).await, BTreeSet::from([lane()]));
    assert!(store.store.delete_schedule(&lane(), &name).await.unwrap());
    asked().await;
    assert_eq!(asked().await, BTreeSet::new());
}
