//! Destinations across all lanes.

use delayd::model::task::Lane;
use delayd::store::{NewTask, Store, TopicEntry, Waiting};

use crate::bench::{Bench, lane, new_task, topic, topic_of};

pub(crate) async fn a_hold_lasts_until_it_is_released(bench: Bench<impl Store>) {
    let (one, other) = ("message.call".parse().unwrap(), "other.server".parse().unwrap());
    assert!(bench.store.holds().await.unwrap().held.is_empty());
    for destination in [&other, &one, &one] {
        bench.store.set_hold(destination, true).await.unwrap();
    }
    let mut held = bench.store.holds().await.unwrap().held;
    held.sort_unstable();
    assert_eq!(held, [one.clone(), other.clone()]);
    bench.store.set_hold(&one, false).await.unwrap();
    bench.store.set_hold(&one, false).await.unwrap();
    assert_eq!(bench.store.holds().await.unwrap().held, [other]);
}

pub(crate) async fn waiting_tasks_are_counted_by_destination_over_all_lanes(
    bench: Bench<impl Store>,
) {
    let sharded = topic_of("sharded", 3);
    bench.store.create(sharded.clone(), None).await.unwrap();
    for after_ms in [0, 1, 60_000] {
        bench.add("a", after_ms).await;
        bench.add("b", after_ms).await;
        bench.add("@pull", after_ms).await;
        bench.add_task(NewTask { topic: sharded.clone(), ..new_task("b", after_ms) }).await;
    }
    bench.claim(&[("a", 1)]).await;
    let counted = |name: &str, count: u64| Waiting { destination: name.parse().unwrap(), count };
    let lanes: Vec<Lane> = [topic(), sharded].iter().flat_map(TopicEntry::lanes).collect();
    assert_eq!(bench.store.waiting(lanes).await.unwrap(), [counted("a", 2), counted("b", 6)]);
    assert_eq!(
        bench.store.waiting(vec![lane()]).await.unwrap(),
        [counted("a", 2), counted("b", 3)]
    );
    assert!(bench.store.waiting(vec![]).await.unwrap().is_empty());
}
