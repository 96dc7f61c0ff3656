//! Tasks that expire.

use delayd::model::task::{Options, State, TaskId};
use delayd::store::{
    Asker, Cancelled, EXPIRED, MAX_ENDED, Moment, NewTask, Novelty, Rescheduled, Settled, Spread,
    Store, Transition,
};

use crate::bench::{
    Bench, Held, LEASE_MS, at, dead, delivered, expiring, ids, keyed, lane, ms, new_task, outlook,
    retry, stale,
};

/// Asserts that a task has just expired, and that nothing can change it any more.
async fn check_expired(bench: &Bench<impl Store>, id: TaskId, what: &str) {
    let task = bench.get(id).await;
    assert_eq!((task.state, task.last_outcome.as_str()), (State::Expired, EXPIRED), "{what}");
    assert_eq!(task.finished, Some(bench.now()), "{what}");
}

pub(crate) async fn a_task_is_handed_out_until_its_expiry(bench: Bench<impl Store>) {
    let (in_time, late) = (
        bench.add_task(expiring("message.call", 1_000, 500)).await,
        bench.add_task(expiring("message.call", 1_000, 499)).await,
    );
    let lasting = bench.add("message.call", 1_000).await;
    bench.advance(1_500);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(ids(&grant), [in_time, lasting]);
    check_expired(&bench, late, "a millisecond too late").await;
    assert_eq!(bench.counts().await.expired, 1);
    assert_eq!(bench.get(late).await.due, at(1_000));
    assert_eq!(
        bench.list(State::Expired).await.iter().map(|listed| listed.moment).collect::<Vec<_>>(),
        [at(1_500)]
    );
}

pub(crate) async fn a_claim_ends_expired_tasks_of_every_destination(bench: Bench<impl Store>) {
    let mut all = Vec::new();
    for destination in ["message.call", "other.server", "@pull"] {
        all.push(bench.add_task(expiring(destination, 10, 0)).await);
    }
    bench.advance(10);
    let grant = bench.sweep().await;
    assert_eq!(
        (bench.counts().await.expired, grant.outlook.next),
        (0, Some(at(11))),
        "the tasks expired too early"
    );
    bench.advance(1);
    let grant = bench.claim(&[("other.server", 5)]).await;
    assert_eq!(grant.tasks, []);
    assert_eq!(grant.outlook, outlook(&[], None));
    for id in all {
        check_expired(&bench, id, "by the claim").await;
    }
}

pub(crate) async fn a_leased_task_may_succeed_after_it_would_have_expired(
    bench: Bench<impl Store>,
) {
    let id = bench.add_task(expiring("message.call", 0, 1_000)).await;
    let held = bench.hold().await;
    bench.advance(5_000);
    assert_eq!(bench.sweep().await.tasks, []);
    assert_eq!(bench.state(id).await, State::Leased);
    assert_eq!(
        bench.store.extend(Asker::Worker, &lane(), id, &held.receipt, ms(LEASE_MS)).await.unwrap(),
        Settled::Done
    );
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    assert_eq!(bench.state(id).await, State::Delivered);
}

pub(crate) async fn a_task_that_comes_back_too_late_expires(bench: Bench<impl Store>) {
    for how in ["retry", "release", "lease"] {
        let id = bench.add_task(expiring("message.call", 0, 1_000)).await;
        let held = bench.hold().await;
        bench.advance(1_001);
        match how {
            "retry" => assert_eq!(bench.settle(&held, retry(60_000)).await, Settled::Done),
            "release" => assert_eq!(bench.settle(&held, Transition::Release).await, Settled::Done),
            _ => bench.let_lease_run_out(),
        }
        assert_eq!(bench.state(id).await, State::Scheduled, "{how}");
        assert!(
            bench.next_due().await <= Some(bench.now()),
            "{how}: the lane must be due for a claim"
        );
        let grant = bench.claim(&[("message.call", 5)]).await;
        assert_eq!((grant.tasks, grant.outlook.next), (vec![], None), "{how}");
        check_expired(&bench, id, how).await;
        for transition in [delivered(), retry(0), dead(), Transition::Release] {
            assert_eq!(
                bench.settle(&held, transition.clone()).await,
                stale(State::Expired),
                "{how}, {transition:?}"
            );
        }
        assert_eq!(
            bench.store.extend(Asker::Worker, &lane(), id, &held.receipt, ms(1)).await.unwrap(),
            stale(State::Expired)
        );
        assert_eq!(
            bench.store.cancel(&lane(), id, None).await.unwrap(),
            Cancelled::Refused { state: State::Expired }
        );
        let moved =
            bench.store.reschedule(&lane(), id, None, Moment::After(ms(0)), None).await.unwrap();
        assert_eq!(moved, Rescheduled::Refused { state: State::Expired });
        assert_eq!(
            bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(),
            0
        );
    }
    bench.advance(1);
    assert_eq!(bench.store.purge(&lane(), 0, State::Expired, bench.now(), 10).await.unwrap(), 3);
}

/// A worker must come for it although no consumer pulls, and although its retry is much later.
pub(crate) async fn the_next_moment_includes_expiries(bench: Bench<impl Store>) {
    let pulled = bench.add_task(expiring("@pull", 1_000, 3_000)).await;
    assert_eq!(bench.next_due().await, Some(at(4_001)));
    assert_eq!(bench.sweep().await.outlook, outlook(&[], Some(at(4_001))));
    assert_eq!(
        bench.store.next_pull(vec![lane()]).await.unwrap().lanes,
        [Some(at(1_000))],
        "the moment for consumers is wrong"
    );
    let tried = bench.add_task(expiring("message.call", 0, 1_500)).await;
    assert_eq!(bench.next_due().await, Some(at(0)));
    let held = bench.hold().await;
    assert_eq!(bench.next_due().await, Some(at(4_001)), "a leased task counts as expiring");
    bench.settle(&held, retry(60_000)).await;
    assert_eq!(bench.next_due().await, Some(at(1_501)));
    assert_eq!(bench.sweep().await.outlook.next, Some(at(1_501)));
    bench.advance(1_501);
    assert_eq!(
        bench.next_due().await,
        Some(at(1_501)),
        "the overdue moment must stay the next one"
    );
    assert_eq!(bench.sweep().await.outlook.next, Some(at(4_001)));
    check_expired(&bench, tried, "it waited for its retry").await;
    bench.store.cancel(&lane(), pulled, None).await.unwrap();
    assert_eq!(bench.next_due().await, None);
}

pub(crate) async fn a_retry_does_not_move_the_expiry_but_a_reschedule_does(
    bench: Bench<impl Store>,
) {
    let id = bench.add_task(expiring("message.call", 0, 1_000)).await;
    bench.advance(900);
    bench.settle(&bench.hold().await, retry(0)).await;
    assert_eq!(bench.sweep().await.outlook.next, Some(at(1_001)));
    bench.advance(600);
    // It has expired, but no claim has seen it. It still waits, and a reschedule saves it.
    assert_eq!(bench.state(id).await, State::Scheduled);
    bench.store.reschedule(&lane(), id, None, Moment::After(ms(500)), None).await.unwrap();
    assert_eq!(bench.sweep().await.outlook.next, Some(at(2_000)));
    bench.advance(1_500);
    assert_eq!(
        ids(&bench.claim(&[("message.call", 1)]).await),
        [id],
        "the task must be handed out in its last valid millisecond"
    );
}

pub(crate) async fn a_push_back_moves_the_expiry(bench: Bench<impl Store>) {
    let task = |expires_after| {
        let options =
            Options { key: Some("k".into()), ..expiring("message.call", 0, expires_after).options };
        NewTask { options, ..new_task("message.call", 100) }
    };
    let first = bench.try_add(task(50)).await.unwrap();
    bench.advance(1_000);
    let pushed = bench.try_add(task(20)).await.unwrap();
    assert_eq!(
        (pushed.id, pushed.novelty),
        (first.id, Novelty::Replaced),
        "the push-back made another task"
    );
    assert_eq!(bench.next_due().await, Some(at(1_100)));
    bench.advance(121);
    bench.sweep().await;
    check_expired(&bench, first.id, "by its new options").await;
    // A task that is pushed back without an expiry has none.
    let second = bench.try_add(task(20)).await.unwrap();
    assert_eq!(bench.try_add(keyed("k", 100)).await.unwrap().id, second.id);
    bench.advance(3_600_000);
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), [second.id]);
}

/// A replay gives a dead task a new moment, and its expiry counts from there.
pub(crate) async fn a_replay_moves_the_expiry(bench: Bench<impl Store>) {
    let id = bench.add_task(expiring("message.call", 0, 1_000)).await;
    bench.settle(&bench.hold().await, dead()).await;
    bench.advance(5_000);
    assert_eq!(bench.sweep().await.outlook.next, None, "a dead task counts as expiring");
    let spread = Spread { first: ms(500), step: ms(0) };
    assert_eq!(bench.store.replay(&lane(), vec![id], None, spread).await.unwrap(), 1);
    bench.advance(1_500);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!((ids(&grant), grant.tasks[0].due), (vec![id], at(5_500)));
    bench.settle(&Held { id, receipt: grant.receipt }, retry(0)).await;
    assert_eq!(bench.next_due().await, Some(bench.now()));
    bench.advance(1);
    assert_eq!(bench.claim(&[("message.call", 5)]).await.tasks, []);
    check_expired(&bench, id, "in its second life").await;
}

/// One claim ends a bounded number of expired tasks, and hands out none of the others.
pub(crate) async fn a_claim_ends_a_bounded_number_of_expired_tasks(bench: Bench<impl Store>) {
    let left = 9;
    bench.store.add(vec![expiring("message.call", 0, 0); MAX_ENDED + left]).await;
    let good = bench.add("message.call", 1).await;
    bench.advance(1_000);
    let grant = bench.claim(&[("message.call", 50)]).await;
    assert_eq!((grant.tasks, grant.outlook.next), (vec![], Some(bench.now())));
    let counts = bench.counts().await;
    assert_eq!((counts.expired, counts.scheduled), (MAX_ENDED as u64, left as u64 + 1));
    let grant = bench.claim(&[("message.call", 50)]).await;
    assert_eq!((ids(&grant), grant.outlook.next), (vec![good], Some(bench.now() + ms(LEASE_MS))));
    assert_eq!(bench.counts().await.expired, (MAX_ENDED + left) as u64);
}
