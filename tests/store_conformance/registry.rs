//! The topic registry.

use delayd::store::{NewTask, Registered, Store, TopicEntry};

use crate::bench::{Bench, new_task, topic, topic_of};

async fn topics(bench: &Bench<impl Store>) -> Vec<TopicEntry> {
    let registered = bench.store.topics().await.unwrap();
    let mut topics: Vec<TopicEntry> = registered.into_iter().map(|topic| topic.entry).collect();
    topics.sort_by_key(|entry| entry.topic.clone());
    topics
}

pub(crate) async fn the_first_registration_wins(bench: Bench<impl Store>) {
    let first = topic_of("order:eu.v2_x-1", 8);
    assert_eq!(bench.store.register(first.clone()).await.unwrap(), first);
    let second = topic_of("order:eu.v2_x-1", 3);
    assert_eq!(bench.store.register(second).await.unwrap(), first);
    let other = topic_of("another", TopicEntry::MAX_SHARDS);
    assert_eq!(bench.store.register(other.clone()).await.unwrap(), other);
    assert_eq!(topics(&bench).await, [other, first.clone()]);
    assert_eq!(bench.store.topic(&first.topic).await.unwrap(), Some(Registered::plain(first)));
    assert_eq!(bench.store.topic(&topic().topic).await.unwrap(), None, "looking makes no topic");
}

/// An add that finds its lane empty writes the entry again: whoever kept it may have lost it.
pub(crate) async fn an_add_into_an_empty_lane_registers_its_topic(bench: Bench<impl Store>) {
    bench.add("message.call", 0).await;
    assert_eq!(topics(&bench).await, [topic()]);
    let sharded = topic_of("sharded", 3);
    bench.add_task(NewTask { topic: sharded.clone(), ..new_task("@pull", 0) }).await;
    assert_eq!(topics(&bench).await, [topic(), sharded]);
}

pub(crate) async fn a_recovery_finds_nothing_where_all_is_registered(bench: Bench<impl Store>) {
    bench.store.register(topic_of("idle", 2)).await.unwrap();
    bench.add("message.call", 0).await;
    assert!(bench.store.recover_topics().await.unwrap().is_empty());
    assert_eq!(topics(&bench).await, [topic_of("idle", 2), topic()]);
}
