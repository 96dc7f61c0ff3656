//! The topic registry.

use delayd::model::task::Lane;
use delayd::store::{
    Adopted, Adoptee, Creator, Error, NewTask, Reader, Registered, Result, Store, TopicEntry,
};
use futures_util::future::join_all;

use crate::bench::{Bench, keyed, new_task, topic, topic_of};
use crate::transfer::stranger;

async fn topics(bench: &Bench<impl Store>) -> Vec<TopicEntry> {
    let registered = bench.store.topics().await.unwrap();
    let mut topics: Vec<TopicEntry> = registered.into_iter().map(|topic| topic.entry).collect();
    topics.sort_by_key(|entry| entry.topic.clone());
    topics
}

pub(crate) async fn the_first_registration_wins(bench: Bench<impl Store>) {
    let first = topic_of("order:eu.v2_x-1", 8);
    assert_eq!(bench.store.create(first.clone(), None).await.unwrap(), first);
    let second = topic_of("order:eu.v2_x-1", 3);
    assert_eq!(bench.store.create(second, None).await.unwrap(), first);
    let other = topic_of("another", TopicEntry::MAX_SHARDS);
    assert_eq!(bench.store.create(other.clone(), None).await.unwrap(), other);
    assert_eq!(topics(&bench).await, [other, first.clone()]);
    assert_eq!(bench.store.topic(&first.topic).await.unwrap(), Some(Registered::plain(first)));
    assert_eq!(bench.store.topic(&topic().topic).await.unwrap(), None, "reading made a topic");
}

/// One token made all topics that the deployment takes, and another one could make none.
pub(crate) async fn a_token_creates_no_more_topics_than_it_may(bench: Bench<impl Store>) {
    let create = async |name: &str, token: &str, most: Option<usize>| {
        let creator = Creator { token: token.into(), most };
        bench.store.create(topic_of(name, 1), Some(creator)).await
    };
    let is_refused = |created: Result<TopicEntry>| match created {
        Err(Error::CreatorLimit) => true,
        created => created.map(|_| false).unwrap(),
    };
    bench.store.create(topic_of("theirs", 1), None).await.unwrap();
    let names: Vec<String> = (0..6).map(|n| format!("t{n}")).collect();
    let created = join_all(names.iter().map(|name| create(name, "shop", Some(3)))).await;
    let refused: Vec<bool> = created.into_iter().map(is_refused).collect();
    assert_eq!(refused.iter().filter(|refused| **refused).count(), 3, "{refused:?}");
    assert_eq!(topics(&bench).await.len(), 4);
    let made = names.iter().zip(refused).find(|(_, refused)| !refused).unwrap().0;
    assert!(!is_refused(create(made, "shop", Some(3)).await), "it is there");
    assert!(!is_refused(create("theirs", "shop", Some(3)).await), "so is this");
    // Other names, also those that begin with it or that it begins with.
    for token in ["sho", "shop!", "shop.eu", "others"] {
        assert!(!is_refused(create(&format!("of.{}", token.len()), token, Some(1)).await));
        assert!(is_refused(create("further", token, Some(1)).await), "{token}");
    }
    assert!(!is_refused(create("by.admin", "shop", None).await));
    let created_by = async |name: &str| {
        let known = bench.store.topic(&topic_of(name, 1).topic).await.unwrap().unwrap();
        let listed = bench.store.topics().await.unwrap();
        assert!(listed.contains(&known), "{known:?}");
        known.created_by
    };
    assert_eq!(created_by("by.admin").await.as_deref(), Some("shop"));
    assert_eq!(created_by("theirs").await, None);
    // Deleting topics frees their places.
    for name in ["by.admin", made] {
        assert!(is_refused(create("new", "shop", Some(3)).await));
        assert!(bench.store.unregister(&topic_of(name, 1)).await.unwrap());
    }
    assert!(!is_refused(create("new", "shop", Some(3)).await));
    assert!(is_refused(create("newer", "shop", Some(3)).await));
}

/// An add into an empty lane writes the topic's entry again, since the registry may have lost it.
pub(crate) async fn an_add_into_an_empty_lane_registers_its_topic(bench: Bench<impl Store>) {
    bench.add("message.call", 0).await;
    assert_eq!(topics(&bench).await, [topic()]);
    let sharded = topic_of("sharded", 3);
    bench.add_task(NewTask { topic: sharded.clone(), ..new_task("@pull", 0) }).await;
    assert_eq!(topics(&bench).await, [topic(), sharded]);
}

pub(crate) async fn a_recovery_finds_nothing_where_all_is_registered(bench: Bench<impl Store>) {
    bench.store.create(topic_of("idle", 2), None).await.unwrap();
    bench.add("message.call", 0).await;
    assert!(bench.store.recover_topics().await.unwrap().is_empty());
    assert_eq!(topics(&bench).await, [topic_of("idle", 2), topic()]);
}

/// A topic that was deleted and created again, and the old entry with another number of lanes.
async fn came_back(bench: &Bench<impl Store>, before: u16, now: u16) -> (TopicEntry, TopicEntry) {
    let (old, new) = (topic_of("orders", before), topic_of("orders", now));
    bench.store.create(old.clone(), None).await.unwrap();
    // Every lane has held a task.
    for shard in 0..before {
        let lane = Lane { topic: old.topic.clone(), shard };
        while bench.store.stats(&lane).await.unwrap().scheduled == 0 {
            bench.add_task(NewTask { topic: old.clone(), ..new_task("message.call", 0) }).await;
        }
    }
    for lane in old.lanes() {
        while bench.store.clear(&lane, 100).await.unwrap().removed > 0 {}
    }
    assert!(bench.store.unregister(&old).await.unwrap());
    assert_eq!(bench.store.create(new.clone(), None).await.unwrap(), new);
    (old, new)
}

async fn total(bench: &Bench<impl Store>) -> u64 {
    let mut total = 0;
    for lane in topic_of("orders", 8).lanes() {
        total += bench.store.stats(&lane).await.unwrap().scheduled;
    }
    total
}

/// Such tasks used to be confirmed and stored in lanes that are never polled.
pub(crate) async fn an_add_by_an_old_number_of_lanes_stores_nothing(bench: Bench<impl Store>) {
    for (before, now) in [(4, 2), (2, 4)] {
        let (old, new) = came_back(&bench, before, now).await;
        let by = |entry: &TopicEntry, key: Option<&str>| {
            let task = key.map_or_else(|| new_task("message.call", 0), |key| keyed(key, 0));
            NewTask { topic: entry.clone(), ..task }
        };
        let stale = async || {
            let tasks = ["a", "b", "c", "d"]
                .map(|key| by(&old, Some(key)))
                .into_iter()
                .chain(vec![by(&old, None); 20]);
            for added in bench.store.add(tasks.collect()).await {
                assert!(matches!(added, Err(Error::StaleEntry)), "{before} to {now}: {added:?}");
            }
        };
        stale().await;
        assert_eq!(total(&bench).await, 0, "{before} to {now}");
        // The same while the lane holds valid tasks.
        for added in bench.store.add(vec![by(&new, None); 20]).await {
            let id = added.unwrap().id;
            assert!(bench.store.get(Reader::Worker, &new.lane_of(id), id).await.unwrap().is_some());
        }
        stale().await;
        assert_eq!(total(&bench).await, 20, "{before} to {now}");
        for lane in new.lanes() {
            while bench.store.clear(&lane, 100).await.unwrap().removed > 0 {}
        }
        assert!(bench.store.unregister(&new).await.unwrap());
    }
}

pub(crate) async fn an_adoption_by_an_old_number_of_lanes_keeps_nothing(bench: Bench<impl Store>) {
    let (old, new) = came_back(&bench, 4, 2).await;
    let adopt = async |entry: &TopicEntry| {
        let tasks = (1..=4).map(|id| Adoptee { topic: entry.clone(), ..stranger(id) }).collect();
        bench.store.adopt(tasks).await
    };
    for adopted in adopt(&old).await {
        assert!(matches!(adopted, Err(Error::StaleEntry)), "{adopted:?}");
    }
    assert_eq!(total(&bench).await, 0);
    for adopted in adopt(&new).await {
        assert_eq!(adopted.unwrap(), Adopted::New);
    }
    for adopted in adopt(&old).await {
        assert!(matches!(adopted, Err(Error::StaleEntry)), "{adopted:?}");
    }
    assert_eq!(total(&bench).await, 4);
}
