//! Flaws of the Redis registry, the id counter and the lanes of a topic. Works like
//! [`crate::check_redis`].

use delayd::model::task::{Lane, State};
use delayd::store::{Admin, Creator, Error, Flaw, Intake, Maintenance, Reader, Registered, Topics};

use crate::bench::{connect, new_task, topic_of};
use crate::check::check;
use crate::check_redis::{Broken, broken};
use crate::redis_alone::raw;

#[tokio::test]
async fn a_counter_behind_the_ids_is_raised() {
    for value in [None, Some("5"), Some("nonsense"), Some("99999999999999999999")] {
        let broken = broken().await;
        let id = broken.bench.add("message.call", 0).await;
        broken.hand(id, &["DEL", &broken.key("DELAY_TASK_ID")]);
        if let Some(value) = value {
            broken.hand(id, &["SET", &broken.key("DELAY_TASK_ID"), value]);
        }
        let behind = (Flaw::BehindIds, &*id.to_string());
        if value.is_some_and(|value| value != "5") {
            // An unreadable counter is not behind anything yet.
            let unreadable = (Flaw::UnreadableCounter, &*broken.key("DELAY_TASK_ID"));
            assert_eq!(
                check(&broken.bench.store, false).await.flaws(),
                [(unreadable.0, unreadable.1.to_owned())]
            );
            let mended = check(&broken.bench.store, true).await.flaws();
            assert_eq!(
                mended,
                [(behind.0, behind.1.to_owned()), (unreadable.0, unreadable.1.to_owned())]
            );
            broken.mends(&[]).await;
        } else {
            broken.mends(&[behind]).await;
        }
        let another = connect(&broken.prefix, &broken.bench.clock).await;
        let next = another.add(vec![new_task("message.call", 0)]).await.remove(0).unwrap().id;
        assert!(next > id);
    }
}

#[tokio::test]
async fn an_unregistered_topic_is_registered_with_all_its_lanes() {
    let broken = broken().await;
    let entry = topic_of("sharded", 8);
    let task = delayd::store::NewTask { topic: entry.clone(), ..new_task("message.call", 0) };
    broken.bench.store.add(vec![task]).await.remove(0).unwrap();
    raw::<()>(&["HDEL", &broken.key("DELAY_TOPIC_LIST"), "sharded"]);
    broken.mends(&[(Flaw::UnregisteredTopic, "sharded")]).await;
    assert_eq!(broken.bench.store.topics().await.unwrap(), [Registered::plain(entry.clone())]);

    for unreadable in ["{", "{\"shards\":0}", "nonsense"] {
        raw::<()>(&["HSET", &broken.key("DELAY_TOPIC_LIST"), "sharded", unreadable]);
        broken.mends(&[(Flaw::UnreadableTopic, "sharded")]).await;
        assert_eq!(broken.bench.store.topics().await.unwrap(), [Registered::plain(entry.clone())]);
    }
}

/// A topic that an older version deleted, or whose creator a repair dropped, counted for ever among
/// those of its token.
#[tokio::test]
async fn a_topic_counts_among_those_of_its_creator_only() {
    let broken = broken().await;
    let creator = |most| Some(Creator { token: "shop".into(), most });
    for topic in ["kept", "dropped", "deleted"] {
        broken.bench.store.create(topic_of(topic, 1), creator(None)).await.unwrap();
    }
    let topics = broken.key("DELAY_TOPIC_LIST");
    raw::<()>(&["HSET", &topics, "dropped", r#"{"shards":1}"#]);
    raw::<()>(&["HDEL", &topics, "deleted"]);
    let create = async || broken.bench.store.create(topic_of("new", 1), creator(Some(2))).await;
    assert!(matches!(create().await, Err(Error::CreatorLimit)));
    let wrong = ["shop deleted", "shop dropped"].map(|subject| (Flaw::CreatorWrong, subject));
    broken.mends(&wrong).await;
    assert!(create().await.is_ok());
}

/// A failover lost the entry, and a new one with fewer lanes was made before the loss was noticed.
#[tokio::test]
async fn lanes_beyond_their_topic_are_registered_again() {
    let broken = broken().await;
    let entry = topic_of("sharded", 4);
    let task = delayd::store::NewTask { topic: entry.clone(), ..new_task("message.call", 0) };
    let id = loop {
        let added = broken.bench.store.add(vec![task.clone()]).await.remove(0).unwrap();
        if added.id.0 % 4 == 3 {
            break added.id;
        }
        broken.bench.store.cancel(&entry.lane_of(added.id), added.id, None).await.unwrap();
    };
    raw::<()>(&[
        "HSET",
        &broken.key("DELAY_TOPIC_LIST"),
        "sharded",
        "{\"shards\":1,\"newer\":[2]}",
    ]);
    let found = check(&broken.bench.store, false).await;
    assert!(
        found.flaws().contains(&(Flaw::LaneOutsideTopic, "sharded".into())),
        "{:?}",
        found.findings
    );
    assert!(check(&broken.bench.store, true).await.findings.iter().all(|found| found.repaired));
    broken.mends(&[]).await;
    assert_eq!(broken.bench.store.topics().await.unwrap(), [Registered::plain(entry.clone())]);
    let kept: String = raw(&["HGET", &broken.key("DELAY_TOPIC_LIST"), "sharded"]);
    assert_eq!(kept, "{\"newer\":[2],\"shards\":4}");
    assert_eq!(
        broken
            .bench
            .store
            .get(Reader::Worker, &entry.lane_of(id), id)
            .await
            .unwrap()
            .unwrap()
            .state,
        State::Scheduled
    );
}

#[tokio::test]
async fn a_lane_remembers_its_topics_lanes() {
    for wrong in [None, Some("7"), Some("many")] {
        let broken = broken().await;
        let id = broken.bench.add("message.call", 0).await;
        broken.hand(id, &["HDEL", &broken.of("DELAY_TOPIC_OFFSET"), "#shards"]);
        if let Some(wrong) = wrong {
            broken.hand(id, &["HSET", &broken.of("DELAY_TOPIC_OFFSET"), "#shards", wrong]);
        }
        broken.mends(&[(Flaw::ShardsDiffer, wrong.unwrap_or("none"))]).await;
        assert_eq!(raw::<String>(&["HGET", &broken.of("DELAY_TOPIC_OFFSET"), "#shards"]), "1");
    }
}

#[tokio::test]
async fn misplaced_tasks_and_stray_keys_are_left_alone() {
    let broken = broken().await;
    let entry = topic_of("sharded", 2);
    let task = delayd::store::NewTask { topic: entry.clone(), ..new_task("message.call", 0) };
    let id = broken.bench.store.add(vec![task]).await.remove(0).unwrap().id;
    let (here, there) =
        (entry.lane_of(id), Lane { shard: 1 - entry.lane_of(id).shard, ..entry.lane_of(id) });
    let keys: Vec<String> = raw(&["KEYS", &format!("{}:*{{{here}}}*", broken.prefix)]);
    for key in keys {
        raw::<()>(&["RENAME", &key, &key.replace(&here.to_string(), &there.to_string())]);
    }
    let stray = broken.key("DELAY_REALL_TOPIC_TASK-{sharded:x}");
    raw::<()>(&["HSET", &stray, "1", "what is this"]);
    broken.leaves_alone(&[(Flaw::Misplaced, &id.to_string()), (Flaw::StrayKey, &stray)]).await;
}

/// This id was never drawn. The repair used to raise the counter to it, and then no id was left for
/// any task.
#[tokio::test]
async fn the_counter_does_not_follow_an_id_that_was_never_drawn() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    let undrawn = "9007199254740900";
    broken.hand(id, &["HSET", &broken.bodies(), undrawn, "garbage"]);
    let report = check(&broken.bench.store, true).await;
    let behind = report
        .findings
        .iter()
        .find(|found| found.flaw == Flaw::BehindIds)
        .expect("the flaw is reported");
    assert_eq!((behind.subject.as_str(), behind.repaired), (undrawn, false));
    let another = connect(&broken.prefix, &broken.bench.clock).await;
    let next = another.add(vec![new_task("message.call", 0)]).await.remove(0).unwrap().id;
    assert!(next > id && next.0 < id.0 + 1_000_000_000, "{next}");
}

/// A wrong number of lanes would lead the ids of existing tasks to other lanes.
#[tokio::test]
async fn a_stray_hash_gives_no_topic_more_lanes() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    raw::<()>(&["HSET", &broken.key("DELAY_REALL_TOPIC_TASK-{orders:7}"), "5", "what is this"]);
    let report = check(&broken.bench.store, true).await;
    let outside = report
        .findings
        .iter()
        .find(|found| found.flaw == Flaw::LaneOutsideTopic)
        .expect("the flaw is reported");
    assert!(!outside.repaired);
    assert_eq!(
        broken.bench.store.topics().await.unwrap(),
        [Registered::plain(topic_of("orders", 1))]
    );
    assert_eq!(broken.bench.get(id).await.state, State::Scheduled);
}

/// The same must hold when the topic's entry is lost or unreadable, and the lanes themselves are
/// asked for their number.
#[tokio::test]
async fn a_stray_hash_is_no_lane_of_a_topic_whose_entry_is_lost() {
    let lose: [fn(&Broken); 2] = [
        |broken| raw::<()>(&["HSET", &broken.key("DELAY_TOPIC_LIST"), "orders", "what is this"]),
        |broken| raw::<()>(&["DEL", &broken.key("DELAY_TOPIC_LIST")]),
    ];
    for lose in lose {
        let broken = broken().await;
        broken.bench.add("message.call", 0).await;
        raw::<()>(&["HSET", &broken.key("DELAY_REALL_TOPIC_TASK-{orders:7}"), "5", "what is this"]);
        lose(&broken);
        check(&broken.bench.store, true).await;
        assert_eq!(
            broken.bench.store.topics().await.unwrap(),
            [Registered::plain(topic_of("orders", 1))]
        );
    }
    let broken = broken().await;
    broken.bench.add("message.call", 0).await;
    raw::<()>(&["HSET", &broken.key("DELAY_REALL_TOPIC_TASK-{orders:7}"), "5", "what is this"]);
    raw::<()>(&["DEL", &broken.key("DELAY_TOPIC_LIST")]);
    assert_eq!(broken.bench.store.recover_topics().await.unwrap(), [topic_of("orders", 1)]);
}
