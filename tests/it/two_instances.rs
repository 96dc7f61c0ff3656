//! Several instances on one Redis.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::Kept;
use crate::poll;
use crate::program::{Program, service};
use crate::receiver::Receiver;
use crate::redis_server;

pub fn tasks(count: usize, delay: &str) -> Vec<Value> {
    (0..count)
        .map(|n| {
            json!({
                "topic": "t", "delay": delay, "content": {"sn": "message.call", "url": "/", "n": n},
            })
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_share_a_topic_and_each_task_comes_once() {
    let kept = Kept::redis();
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (one, two) = (kept.start(&settings).await, kept.start(&settings).await);
    let mut ids = one.add_all(&tasks(2_000, "1s")).await;
    ids.extend(two.add_all(&tasks(2_000, "1s")).await);
    receiver.wait_for(4_000).await;
    for &id in ids.iter().rev().take(50) {
        one.wait_for_state("t", id, "delivered").await;
    }
    let mut calls: HashMap<u64, usize> = HashMap::new();
    for call in receiver.seen() {
        *calls.entry(call.id).or_default() += 1;
    }
    assert!(calls.values().all(|&calls| calls == 1), "a task came twice in a fault-free run");
    assert_eq!(calls.into_keys().collect::<HashSet<_>>(), ids.into_iter().collect());
}

/// An instance without workers sends hints, so that the working instance need not wait for its
/// poll.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_without_workers_leaves_its_tasks_to_others() {
    let kept = Kept::redis();
    let receiver = Receiver::start().await;
    let works = kept.start(&[service("message.call", &receiver)]).await;
    let takes =
        kept.start(&[service("message.call", &receiver), "worker.enabled=false".into()]).await;
    let id = takes.add_all(&tasks(1, "10ms")).await[0];
    works.wait_for_state("t", id, "delivered").await;
}

/// Asks again until the answer is as expected. A change by another instance is known within a
/// second.
async fn soon<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    poll::answer(ask).await.unwrap_or_else(|| panic!("{what}: not known after a minute"))
}

async fn pull(program: &Program, count: usize) -> Vec<u64> {
    let pulled = program
        .post("/delay/task/pull", json!({"topic": "t", "count": count}).to_string())
        .await
        .ok();
    pulled.body["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["task_id"].as_u64().unwrap())
        .collect()
}

/// Of 120 such tasks, 90 could neither be read nor cancelled, and 30 of those waited in lanes that
/// were never polled.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_added_with_an_old_number_of_shards_are_found() {
    let kept = Kept::redis();
    let (one, two) = (kept.start(&[]).await, kept.start(&["worker.enabled=false".into()]).await);
    let topic = json!({"topic": "t"}).to_string();
    for (before, now) in [(4, 2), (2, 4)] {
        one.post("/delay/topic/set", json!({"topic": "t", "shards": before}).to_string())
            .await
            .ok();
        two.post("/delay/topic/get", &*topic).await.ok();
        one.post("/delay/topic/delete", &*topic).await.ok();
        one.post("/delay/topic/set", json!({"topic": "t", "shards": now}).to_string()).await.ok();
        let waiting = |n: usize| {
            let delay = if n.is_multiple_of(2) { "0s" } else { "1h" };
            json!({"topic": "t", "delay": delay, "content": {"n": n}})
        };
        let mut ids = two.add_all(&(0..120).map(waiting).collect::<Vec<_>>()).await;
        ids.push(two.add(waiting(121)).await.id());
        let mut due = HashSet::new();
        for (n, id) in ids.into_iter().enumerate() {
            for instance in [&one, &two] {
                assert_eq!(
                    instance.task("t", id).await["state"],
                    "scheduled",
                    "{before} to {now}: task {n}"
                );
            }
            if n.is_multiple_of(2) && n < 120 {
                due.insert(id);
            } else {
                one.post("/delay/task/cancel", json!({"topic": "t", "task_id": id}).to_string())
                    .await
                    .ok();
            }
        }
        assert_eq!(
            pull(&one, 100).await.into_iter().collect::<HashSet<_>>(),
            due,
            "{before} to {now}"
        );
        soon("what was pulled has ended", async || {
            one.post("/delay/topic/purge", json!({"topic": "t", "confirm": "t"}).to_string())
                .await
                .ok();
            (one.post("/delay/topic/delete", &*topic).await.status == 200).then_some(())
        })
        .await;
    }
}

/// A failover may lose a topic's entry. If the topic is then registered again with one lane, the
/// tasks in the other lanes must not be hidden.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_a_lost_entry_keeps_its_tasks() {
    let kept = Kept::redis();
    let one = kept.start(&[]).await;
    one.post("/delay/topic/set", json!({"topic": "t", "shards": 4}).to_string()).await.ok();
    let waiting = json!({"topic": "t", "delay": "1h", "content": {}});
    let ids = one.add_all(&vec![waiting.clone(); 40]).await;
    drop(one);
    redis_server::shared().command(&["HDEL", &format!("{}:DELAY_TOPIC_LIST", kept.prefix()), "t"]);
    redis_server::shared().command(&[
        "HSET",
        &format!("{}:DELAY_TOPIC_LIST", kept.prefix()),
        "t",
        r#"{"shards":1}"#,
    ]);
    let two = kept.start(&["worker.enabled=false".into()]).await;
    let more = two.add(waiting).await.id();
    for id in ids.into_iter().chain([more]) {
        assert_eq!(two.task("t", id).await["state"], "scheduled");
    }
    let shown = two.post("/delay/topic/get", json!({"topic": "t"}).to_string()).await.ok();
    assert_eq!(
        (&shown.body["shards"], &shown.body["counts"]["scheduled"]),
        (&json!(4), &json!(41))
    );
}

/// Instances without workers used to take a minute. Meanwhile a paused topic still handed out tasks
/// to consumers there.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_at_one_instance_reaches_all_others_soon() {
    let kept = Kept::redis();
    let (here, there) = (kept.start(&[]).await, kept.start(&["worker.enabled=false".into()]).await);
    let topic = json!({"topic": "t"}).to_string();
    let set = async |what: Value| here.post("/delay/topic/set", what.to_string()).await.ok();
    let due = json!({"topic": "t", "delay": 0, "content": {}});
    set(json!({"topic": "t", "shards": 2})).await;
    there.add(due.clone()).await;
    assert_eq!(pull(&there, 10).await.len(), 1);

    set(json!({"topic": "t", "quota": 2})).await;
    soon("a quota", async || {
        let task = json!({"topic": "t", "delay": "1h", "content": {}});
        let answer = there.post("/delay/task/add", task.to_string()).await;
        (answer.status == 429).then_some(())
    })
    .await;
    set(json!({"topic": "t", "reset": ["quota"]})).await;

    set(json!({"topic": "t", "mode": "pull"})).await;
    soon("a policy", async || {
        let content = json!({"sn": "message.call", "url": "/"});
        let task = json!({"topic": "t", "delay": "1h", "content": content});
        let answer = there.post("/delay/task/add", task.to_string()).await;
        (answer.status == 200 && answer.body["mode"] == "pull").then_some(())
    })
    .await;

    here.post("/delay/topic/pause", &*topic).await.ok();
    soon("a pause", async || {
        there.add(due.clone()).await;
        pull(&there, 1).await.is_empty().then_some(())
    })
    .await;
    let missed = there.add(due.clone()).await.id();
    here.post("/delay/topic/resume", json!({"topic": "t", "misfire": "skip"}).to_string())
        .await
        .ok();
    soon("a misfire", async || {
        assert!(!pull(&there, 100).await.contains(&missed), "it fell due in the pause");
        (here.task("t", missed).await["state"] == "expired").then_some(())
    })
    .await;

    soon("an empty topic", async || {
        here.post("/delay/topic/purge", json!({"topic": "t", "confirm": "t"}).to_string())
            .await
            .ok();
        (here.post("/delay/topic/delete", &*topic).await.status == 200).then_some(())
    })
    .await;
    set(json!({"topic": "t", "shards": 7})).await;
    let ids: HashSet<u64> = here.add_all(&vec![due; 70]).await.into_iter().collect();
    let mut pulled = HashSet::new();
    soon("a number of lanes", async || {
        pulled.extend(pull(&there, 100).await);
        (pulled.len() == ids.len()).then_some(())
    })
    .await;
    assert_eq!(pulled, ids);
}
