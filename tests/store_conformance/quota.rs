//! The quota: the most waiting and leased tasks of a lane.

use delayd::model::task::{Lane, State};
use delayd::store::{Error, Idempotency, NewTask, Novelty, Spread, Store};

use crate::bench::{Bench, dead, delivered, keyed, lamented, ms, new_task, retry, topic_of};

fn within(quota: u64) -> NewTask {
    NewTask { quota: Some(quota), ..new_task("message.call", 0) }
}

async fn is_full(bench: &Bench<impl Store>, quota: u64) -> bool {
    let before = bench.counts().await;
    match bench.try_add(within(quota)).await {
        Ok(_) => false,
        Err(Error::OverQuota) => {
            assert_eq!(bench.counts().await, before, "a refused add stored something");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn a_quota_is_exact_and_counts_waiting_and_leased_tasks(bench: Bench<impl Store>) {
    for _ in 0..3 {
        assert!(!is_full(&bench, 3).await);
    }
    assert!(is_full(&bench, 3).await);
    let [first, second, third] = [bench.hold().await, bench.hold().await, bench.hold().await];
    assert!(is_full(&bench, 3).await, "leased tasks must count");
    bench.settle(&first, delivered()).await;
    assert!(!is_full(&bench, 3).await, "delivered tasks must not count");
    assert!(is_full(&bench, 3).await);
    bench.settle(&second, dead()).await;
    assert!(!is_full(&bench, 3).await, "dead tasks must not count");
    bench.settle(&third, retry(60_000)).await;
    assert!(is_full(&bench, 3).await, "tasks that wait for a retry must count");
    assert!(!is_full(&bench, 4).await, "the quota of each add must count");
    assert!(is_full(&bench, 1).await);
    assert!(
        bench.try_add(new_task("message.call", 0)).await.is_ok(),
        "an add without a quota was refused"
    );
    assert_eq!(
        bench
            .store
            .replay(&crate::bench::lane(), vec![second.id], None, Spread::default())
            .await
            .unwrap(),
        1
    );
    assert_eq!(bench.counts().await.scheduled, 6, "a replay must not be refused for a quota");
}

pub(crate) async fn an_expired_lease_counts_once(bench: Bench<impl Store>) {
    assert!(!is_full(&bench, 2).await);
    bench.hold().await;
    bench.let_lease_run_out();
    assert!(!is_full(&bench, 2).await);
    assert!(is_full(&bench, 2).await);
    bench.sweep().await;
    assert!(is_full(&bench, 2).await);
}

pub(crate) async fn a_quota_counts_within_a_batch(bench: Bench<impl Store>) {
    let batch = vec![
        within(2),
        NewTask { destination: "@pull".parse().unwrap(), ..within(2) },
        within(2),
        within(3),
    ];
    let added = bench.store.add(batch).await;
    assert!(matches!(&added[..], [Ok(_), Ok(_), Err(Error::OverQuota), Ok(_)]), "{added:?}");
    assert_eq!(bench.counts().await.scheduled, 3);
}

pub(crate) async fn an_add_that_makes_no_task_needs_no_quota(bench: Bench<impl Store>) {
    let once = Some(Idempotency { key: "i".into(), fingerprint: 1, window: ms(60_000) });
    let repeated = NewTask { idempotency: once, ..within(2) };
    let pushed = NewTask { quota: Some(2), ..keyed("k", 0) };
    bench.try_add(repeated.clone()).await.unwrap();
    bench.try_add(pushed.clone()).await.unwrap();
    assert!(is_full(&bench, 2).await);
    assert!(matches!(bench.try_add(repeated).await.unwrap().novelty, Novelty::Duplicate { .. }));
    assert_eq!(bench.try_add(pushed).await.unwrap().novelty, Novelty::Replaced);
}

pub(crate) async fn an_add_over_its_quota_changes_nothing(bench: Bench<impl Store>) {
    let leased = bench.add_task(keyed("k", 0)).await;
    let held = bench.hold().await;
    let once = Some(Idempotency { key: "i".into(), fingerprint: 1, window: ms(60_000) });
    let refused = NewTask { quota: Some(1), idempotency: once, ..keyed("k", 0) };
    assert!(matches!(bench.try_add(refused.clone()).await, Err(Error::OverQuota)));
    // No cancel was marked, so a failure brings it back. The idempotency key was not used.
    bench.settle(&held, retry(0)).await;
    assert_eq!(bench.state(leased).await, State::Scheduled);
    let pushed = bench.try_add(NewTask { quota: Some(1), ..keyed("k", 0) }).await.unwrap();
    assert_eq!(
        (pushed.id, pushed.novelty),
        (leased, Novelty::Replaced),
        "the task must still have its key"
    );
    bench.settle(&bench.hold().await, delivered()).await;
    assert_eq!(bench.try_add(refused).await.unwrap().novelty, Novelty::New);
}

pub(crate) async fn a_dead_letter_callback_needs_no_quota_but_counts(bench: Bench<impl Store>) {
    bench.try_add(NewTask { quota: Some(1), ..lamented(0) }).await.unwrap();
    bench.settle(&bench.hold().await, dead()).await;
    assert_eq!(bench.counts().await.scheduled, 1);
    assert!(is_full(&bench, 1).await);
    assert!(!is_full(&bench, 2).await);
}

pub(crate) async fn each_lane_has_a_quota_of_its_own(bench: Bench<impl Store>) {
    let sharded = topic_of("sharded", 2);
    let key_in = |shard, but: &str| {
        let mut keys = (0..).map(|n| format!("key-{n}"));
        keys.find(|key| key != but && Lane::shard_of_key(key, 2) == shard).unwrap()
    };
    let add = async |key: &str| {
        bench.try_add(NewTask { topic: sharded.clone(), quota: Some(1), ..keyed(key, 0) }).await
    };
    for shard in [0, 1] {
        let first = key_in(shard, "");
        assert!(add(&first).await.is_ok(), "lane {shard} is empty and refused an add");
        assert!(
            matches!(add(&key_in(shard, &first)).await, Err(Error::OverQuota)),
            "lane {shard} is full and accepted an add"
        );
    }
    assert!(!is_full(&bench, 1).await, "the quota of another topic must not count");
}
