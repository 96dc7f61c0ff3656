//! Adds that are repeated with an idempotency key.

use std::collections::HashSet;

use delayd::model::task::{Lane, Options, State, TaskId};
use delayd::store::{
    Added, Cancelled, Error, Idempotency, Moment, NewTask, Novelty, Reader, Rescheduled, Store,
};
use futures_util::future::join_all;

use crate::bench::{Bench, at, delivered, lane, ms, new_task, topic_of};

const WINDOW_MS: u64 = 86_400_000;

/// A task with an idempotency key and the fingerprint of its request.
fn once(key: &str, fingerprint: u128) -> NewTask {
    let idempotency = Some(Idempotency { key: key.into(), fingerprint, window: ms(WINDOW_MS) });
    NewTask { idempotency, ..new_task("message.call", 1_000) }
}

/// The answer to a repeated add while its task is in this state. `None`: the task no longer exists.
fn again(first: Added, state: Option<State>) -> Added {
    Added { novelty: Novelty::Duplicate { state }, ..first }
}

fn duplicate_of(first: Added) -> Added {
    again(first, Some(State::Scheduled))
}

pub(crate) async fn a_repeated_add_answers_the_first_task_whatever_became_of_it(
    bench: Bench<impl Store>,
) {
    let first = bench.try_add(once("k", 7)).await.unwrap();
    assert_eq!((first.due, first.novelty), (at(1_000), Novelty::New));
    let check = async |what: &str| {
        let task = bench.store.get(Reader::Worker, &lane(), first.id).await.unwrap();
        let counts = bench.counts().await;
        let repeat = NewTask { content: "{\"not\":\"looked at\"}".into(), ..once("k", 7) };
        let state = task.as_ref().map(|task| task.state);
        assert_eq!(bench.try_add(repeat).await.unwrap(), again(first, state), "{what}");
        assert_eq!(
            bench.store.get(Reader::Worker, &lane(), first.id).await.unwrap(),
            task,
            "{what}: nothing changed"
        );
        assert_eq!(bench.counts().await, counts, "{what}: nothing was stored");
    };
    check("waiting").await;
    bench.advance(5_000);
    let held = bench.hold().await;
    assert_eq!(held.id, first.id);
    check("leased").await;
    bench.settle(&held, delivered()).await;
    check("delivered").await;
    bench.advance(1);
    assert_eq!(bench.store.purge(&lane(), 0, State::Delivered, bench.now(), 10).await.unwrap(), 1);
    check("purged").await;
    assert_eq!(bench.counts().await.scheduled, 0);
}

/// It answered the first due moment.
pub(crate) async fn a_repeated_add_answers_when_its_task_is_due_now(bench: Bench<impl Store>) {
    let first = bench.try_add(once("k", 7)).await.unwrap();
    let moment = Moment::At(at(3_000));
    let moved = bench.store.reschedule(&lane(), first.id, None, moment, None).await.unwrap();
    assert_eq!(moved, Rescheduled::Done { due: at(3_000) });
    let moved = duplicate_of(Added { due: at(3_000), ..first });
    assert_eq!(bench.try_add(once("k", 7)).await.unwrap(), moved);
}

pub(crate) async fn an_idempotency_key_is_remembered_for_its_window_from_the_first_add(
    bench: Bench<impl Store>,
) {
    let first = bench.try_add(once("k", 7)).await.unwrap();
    bench.advance(WINDOW_MS - 1);
    assert_eq!(bench.try_add(once("k", 7)).await.unwrap(), duplicate_of(first));
    assert!(matches!(bench.try_add(once("k", 8)).await, Err(Error::KeyReused)));
    bench.advance(1);
    // The repeat did not prolong the window. After it the old fingerprint does not matter.
    let second = bench.try_add(once("k", 8)).await.unwrap();
    assert_eq!((second.novelty, second.due), (Novelty::New, bench.now() + ms(1_000)));
    assert_ne!(second.id, first.id);
    bench.advance(WINDOW_MS - 1);
    assert_eq!(
        bench.try_add(once("k", 8)).await.unwrap(),
        duplicate_of(second),
        "the second add must have a window of its own"
    );
    // A purge removes windows that are over, and no others.
    let leftovers =
        async || bench.store.histories(vec![lane()]).await.unwrap().lanes[0].unwrap().has_leftovers;
    assert!(!leftovers().await, "a window that is not over counts as removable");
    bench.store.purge(&lane(), 0, State::Delivered, bench.now(), 1_000).await.unwrap();
    assert_eq!(bench.try_add(once("k", 8)).await.unwrap(), duplicate_of(second));
    bench.advance(1);
    assert!(leftovers().await);
    bench.store.purge(&lane(), 0, State::Delivered, bench.now(), 1_000).await.unwrap();
    assert!(!leftovers().await);
}

pub(crate) async fn another_fingerprint_is_refused_and_stores_nothing(bench: Bench<impl Store>) {
    let first = bench.try_add(once("k", u128::MAX)).await.unwrap();
    let counts = bench.counts().await;
    for fingerprint in [0, u128::MAX - 1, u128::MAX >> 1, 1 << 127] {
        assert!(
            matches!(bench.try_add(once("k", fingerprint)).await, Err(Error::KeyReused)),
            "{fingerprint:x}"
        );
    }
    assert_eq!(bench.counts().await, counts);
    assert_eq!(bench.try_add(once("k", u128::MAX)).await.unwrap(), duplicate_of(first));
}

pub(crate) async fn adds_at_once_with_one_idempotency_key_make_one_task(bench: Bench<impl Store>) {
    let added = join_all((0..32).map(|_| bench.try_add(once("k", 7)))).await;
    let added: Vec<Added> = added.into_iter().map(Result::unwrap).collect();
    assert_eq!(added.iter().filter(|added| added.novelty == Novelty::New).count(), 1);
    assert!(
        added.iter().all(|each| (each.id, each.due) == (added[0].id, added[0].due)),
        "{added:?}"
    );
    assert_eq!(bench.counts().await.scheduled, 1);
}

pub(crate) async fn a_batch_may_repeat_itself(bench: Bench<impl Store>) {
    let batch = vec![
        once("a", 1),
        once("b", 2),
        once("a", 1),
        new_task("message.call", 0),
        once("b", 3),
        once("b", 2),
    ];
    let added = bench.store.add(batch.clone()).await;
    let [Ok(a), Ok(b), Ok(a_again), Ok(plain), Err(Error::KeyReused), Ok(b_again)] = &added[..]
    else {
        panic!("{added:?}")
    };
    assert_eq!([a.novelty, b.novelty, plain.novelty], [Novelty::New; 3]);
    assert_eq!([*a_again, *b_again], [duplicate_of(*a), duplicate_of(*b)]);
    assert_eq!(bench.counts().await.scheduled, 3);
    let again = bench.store.add(batch).await;
    assert_eq!(again[0].as_ref().unwrap(), &duplicate_of(*a));
    assert_eq!(
        bench.counts().await.scheduled,
        4,
        "only the task without a key must be stored again"
    );
}

pub(crate) async fn any_text_is_an_idempotency_key_of_its_own(bench: Bench<impl Store>) {
    let long = "k".repeat(256);
    let keys = [
        "k",
        "K",
        " k",
        "k ",
        "k:1",
        "{k}",
        "k\n",
        "k\u{0}",
        "订单 🦀",
        "'",
        "\"",
        "\\",
        "*",
        "-1",
        &long,
        &long[1..],
    ];
    let mut ids = HashSet::new();
    for key in keys {
        let first = bench.try_add(once(key, 1)).await.unwrap();
        assert!(ids.insert(first.id), "{key:?}");
        assert_eq!(bench.try_add(once(key, 1)).await.unwrap(), duplicate_of(first), "{key:?}");
    }
}

/// Two topics do not share their keys, and a topic with many lanes looks for a key always in the
/// same one.
pub(crate) async fn an_idempotency_key_finds_its_lane(bench: Bench<impl Store>) {
    let sharded = topic_of("sharded", 8);
    let first = bench.try_add(once("k", 1)).await.unwrap();
    let mut shards = HashSet::new();
    for n in 0..24 {
        let key = format!("key-{n}");
        let task = || NewTask { topic: sharded.clone(), ..once(&key, 1) };
        let added = bench.try_add(task()).await.unwrap();
        assert_eq!(added.novelty, Novelty::New);
        assert_eq!(sharded.lane_of(added.id).shard, Lane::shard_of_key(&key, 8), "{key}");
        assert!(
            bench
                .store
                .get(Reader::Worker, &sharded.lane_of(added.id), added.id)
                .await
                .unwrap()
                .is_some()
        );
        shards.insert(sharded.lane_of(added.id).shard);
        assert_eq!(bench.try_add(task()).await.unwrap(), duplicate_of(added), "{key}");
    }
    assert!(shards.len() > 3, "the keys are not spread over the lanes: {shards:?}");
    let elsewhere =
        bench.try_add(NewTask { topic: topic_of("others", 1), ..once("k", 1) }).await.unwrap();
    assert_eq!(elsewhere.novelty, Novelty::New);
    assert_ne!(elsewhere.id, first.id);
}

pub(crate) async fn an_emptied_lane_forgets_its_idempotency_keys(bench: Bench<impl Store>) {
    let first = bench.try_add(once("k", 1)).await.unwrap();
    bench.advance(1_000);
    let held = bench.hold().await;
    let other = bench.try_add(once("l", 1)).await.unwrap();
    assert_eq!(bench.store.clear(&lane(), 10).await.unwrap().removed, 1);
    assert_eq!(
        bench.try_add(once("k", 1)).await.unwrap(),
        again(first, Some(State::Leased)),
        "the leased task must be left"
    );
    assert_eq!(
        bench.try_add(once("l", 1)).await.unwrap(),
        again(other, None),
        "the key must be remembered although its task is gone"
    );
    bench.settle(&held, delivered()).await;
    assert_eq!(bench.store.clear(&lane(), 10).await.unwrap().removed, 1);
    for key in ["k", "l"] {
        assert_eq!(bench.try_add(once(key, 2)).await.unwrap().novelty, Novelty::New, "{key}");
    }
    // Discarded, not cleared: the lane is empty, and the keys stay.
    let ids: Vec<TaskId> =
        bench.list(State::Scheduled).await.iter().map(|listed| listed.id).collect();
    for id in &ids {
        bench.store.cancel(&lane(), *id, None).await.unwrap();
    }
    assert_eq!(bench.store.discard(&lane(), State::Cancelled, ids, None).await.unwrap(), 2);
    assert_eq!(
        bench.try_add(once("k", 2)).await.unwrap().novelty,
        Novelty::Duplicate { state: None }
    );
}

/// It used to be looked for only in the lane of the `key`. A key that was unique in a topic with
/// one lane then counted as several in others.
pub(crate) async fn an_idempotency_key_is_unique_within_topic_and_key(bench: Bench<impl Store>) {
    for shards in [1, 8] {
        let sharded = topic_of(&format!("of-{shards}"), shards);
        let keys = [None, Some("a"), Some("b"), Some("c"), Some("d"), Some("i")];
        let add = async |key: Option<&str>, fingerprint| {
            let options = Options { key: key.map(Into::into), ..Options::default() };
            bench
                .try_add(NewTask { topic: sharded.clone(), options, ..once("i", fingerprint) })
                .await
        };
        let mut ids = HashSet::new();
        for (n, key) in (1..).zip(keys) {
            let first = add(key, n).await.unwrap();
            assert_eq!(first.novelty, Novelty::New, "{key:?} in {shards} lanes");
            assert!(ids.insert(first.id));
            assert_eq!(
                add(key, n).await.unwrap(),
                duplicate_of(first),
                "{key:?} in {shards} lanes"
            );
            assert!(
                matches!(add(key, n + 1).await, Err(Error::KeyReused)),
                "{key:?} in {shards} lanes"
            );
        }
    }
}

/// The caller used to get the id of a cancelled task without its state, and could not set an
/// order's timer again.
pub(crate) async fn a_repeat_is_told_how_its_task_has_ended(bench: Bench<impl Store>) {
    let cancelled = bench.try_add(once("cancelled", 1)).await.unwrap();
    bench.store.cancel(&lane(), cancelled.id, None).await.unwrap();
    let repeat = bench.try_add(once("cancelled", 1)).await.unwrap();
    assert_eq!(repeat, again(cancelled, Some(State::Cancelled)));
    let pending = bench.try_add(once("pending", 1)).await.unwrap();
    bench.advance(1_000);
    let held = bench.hold().await;
    assert_eq!(held.id, pending.id);
    assert_eq!(bench.store.cancel(&lane(), pending.id, None).await.unwrap(), Cancelled::Pending);
    assert_eq!(
        bench.try_add(once("pending", 1)).await.unwrap(),
        again(pending, Some(State::Leased))
    );
    // Its lease has expired, and with that it is cancelled.
    bench.advance(60_000);
    assert_eq!(
        bench.try_add(once("pending", 1)).await.unwrap(),
        again(pending, Some(State::Cancelled))
    );
    assert_eq!(bench.state(pending.id).await, State::Cancelled);
}
