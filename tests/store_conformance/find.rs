//! Lookups of tasks by id, key and idempotency key.

use delayd::model::task::{Lane, Options, TaskId};
use delayd::store::{Idempotency, NewTask, Store, TaskName};

use crate::bench::{Bench, delivered, keyed, lane, ms, new_task, topic_of};

const WINDOW_MS: u64 = 60_000;

async fn find(bench: &Bench<impl Store>, name: TaskName, lanes: &[Lane]) -> Vec<Option<TaskId>> {
    bench.store.find(&name, lanes.to_vec()).await.unwrap()
}

pub(crate) async fn a_task_is_found_by_its_id_among_the_lanes_of_all_topics(
    bench: Bench<impl Store>,
) {
    let others: Vec<_> = (0..150).map(|n| topic_of(&format!("t{n}"), 3)).collect();
    let topic = others[77].clone();
    let added = bench.add_task(NewTask { topic: topic.clone(), ..new_task("a", 5) }).await;
    let name = TaskName::Id(added);
    let lanes: Vec<Lane> = others.iter().map(|entry| name.lane_in(entry)).collect();
    let expected = |found: Option<TaskId>| {
        (0..others.len()).map(|n| found.filter(|_| n == 77)).collect::<Vec<_>>()
    };
    assert_eq!(find(&bench, name, &lanes).await, expected(Some(added)));
    let ended = bench.add_held().await;
    bench.settle(&ended, delivered()).await;
    assert_eq!(find(&bench, TaskName::Id(ended.id), &[lane()]).await, [Some(ended.id)]);
    assert_eq!(find(&bench, TaskName::Id(TaskId(1)), &lanes).await, expected(None));
    assert_eq!(find(&bench, TaskName::Id(added), &[]).await, []);
}

pub(crate) async fn a_task_is_found_by_its_key(bench: Bench<impl Store>) {
    let unknown: Lane = "nobody:0".parse().unwrap();
    let lanes = [unknown, lane()];
    let name = |key: &str| TaskName::Key(key.into());
    for key in ["k", "订单:1", " two words ", "\u{1f}\n"] {
        let first = bench.add_task(keyed(key, 0)).await;
        assert_eq!(find(&bench, name(key), &lanes).await, [None, Some(first)], "{key:?}");
        // The key belongs to the newest task, which a leased one does not hinder.
        bench.hold().await;
        let second = bench.add_task(keyed(key, 60_000)).await;
        assert_eq!(find(&bench, name(key), &lanes).await, [None, Some(second)], "{key:?}");
    }
    assert_eq!(find(&bench, name("other"), &lanes).await, [None, None]);
}

pub(crate) async fn a_task_is_found_by_its_idempotency_key_until_its_window_ends(
    bench: Bench<impl Store>,
) {
    let topic = topic_of("wide", 5);
    let task = |key: Option<&str>, idempotency_key: &str| NewTask {
        topic: topic.clone(),
        options: Options { key: key.map(str::to_owned), ..Options::default() },
        idempotency: Some(Idempotency {
            key: idempotency_key.into(),
            fingerprint: 7,
            window: ms(WINDOW_MS),
        }),
        ..new_task("a", 5)
    };
    let name = |key: Option<&str>, idempotency_key: &str| TaskName::Idempotency {
        key: key.map(str::to_owned),
        idempotency_key: idempotency_key.into(),
    };
    let found = async |name: TaskName| {
        let lane = name.lane_in(&topic);
        find(&bench, name, &[lane]).await[0]
    };
    let plain = bench.add_task(task(None, "order 7")).await;
    let with_key = bench.add_task(task(Some("k"), "order 7")).await;
    assert_ne!(plain, with_key);
    assert_eq!(found(name(None, "order 7")).await, Some(plain));
    assert_eq!(found(name(Some("k"), "order 7")).await, Some(with_key));
    assert_eq!(found(TaskName::Key("k".into())).await, Some(with_key));
    assert_eq!(found(name(Some("k"), "order 8")).await, None);
    bench.advance(WINDOW_MS - 1);
    assert_eq!(found(name(None, "order 7")).await, Some(plain));
    bench.advance(1);
    assert_eq!(found(name(None, "order 7")).await, None);
}
