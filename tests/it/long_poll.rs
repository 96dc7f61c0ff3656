//! Pulls that wait for a task.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::program::Program;
use crate::receiver::now_ms;
use crate::{Kept, on_both_stores, redis_server};

on_both_stores!(
    a_waiting_pull_is_answered_when_its_task_falls_due_and_not_before,
    a_wait_for_nothing_ends_in_the_empty_answer,
    waiters_are_served_one_task_each_and_the_others_wait_on,
    a_returned_task_wakes_a_waiter,
    a_disconnected_waiter_loses_nothing,
    waiters_take_no_slots_from_adds,
);

/// Starts a pull of topic `t`.
pub fn pull(delayd: &Arc<Program>, more: Value) -> JoinHandle<Value> {
    let mut body = json!({"topic": "t"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let delayd = delayd.clone();
    tokio::spawn(async move { delayd.post("/delay/task/pull", body.to_string()).await.ok().body })
}

/// Waits until a pull that begins now has waited and ended. All pulls that were sent before wait by
/// then.
pub async fn settle_down(delayd: &Program) {
    delayd.lives_for(Duration::from_millis(300)).await;
}

pub async fn add(delayd: &Program, delay: &str) -> u64 {
    delayd
        .add(json!({"topic": "t", "delay": delay, "mode": "pull", "content": {"n": 1}}))
        .await
        .id()
}

async fn a_waiting_pull_is_answered_when_its_task_falls_due_and_not_before(kept: Kept) {
    let delayd = Arc::new(kept.start(&[]).await);
    // The topic does not exist yet.
    let waiting = pull(&delayd, json!({"wait": "30s"}));
    settle_down(&delayd).await;
    let added = delayd.add(json!({"topic": "t", "delay": "1500ms", "content": {"n": 1}})).await;
    let pulled = waiting.await.unwrap();
    assert!(now_ms() >= added.body["due_ms"].as_i64().unwrap(), "the task came early");
    assert_eq!(
        (&pulled["task_id"], &pulled["content"]),
        (&json!(added.id()), &json!(r#"{"n":1}"#))
    );
    delayd.wait_for_state("t", added.id(), "delivered").await;
    let (later, sooner) = (add(&delayd, "1h").await, add(&delayd, "0s").await);
    let pulled = pull(&delayd, json!({"wait": "30s", "count": 5, "lease": "1m"})).await.unwrap();
    assert_eq!(
        (pulled["tasks"].as_array().unwrap().len(), &pulled["tasks"][0]["task_id"]),
        (1, &json!(sooner))
    );
    assert_eq!(delayd.task("t", later).await["state"], "scheduled");
}

async fn a_wait_for_nothing_ends_in_the_empty_answer(kept: Kept) {
    let delayd = Arc::new(kept.start(&[]).await);
    add(&delayd, "1h").await;
    let began = Instant::now();
    let pulled = pull(&delayd, json!({"wait": "1200ms"})).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1_200), "the pull did not wait");
    assert_eq!((&pulled["content"], &pulled["task_id"]), (&Value::Null, &Value::Null));
    assert_eq!(
        pull(&delayd, json!({"wait": "100ms", "count": 2})).await.unwrap()["tasks"],
        json!([])
    );
    // Longer than the timeout of other requests.
    let began = Instant::now();
    assert_eq!(pull(&delayd, json!({"wait": 11})).await.unwrap()["task_id"], Value::Null);
    assert!(began.elapsed() >= Duration::from_secs(11), "the pull ended before its time");
    for wait in [json!("31s"), json!(-1), json!("soon")] {
        let refused =
            delayd.post("/delay/task/pull", json!({"topic": "t", "wait": wait}).to_string()).await;
        assert_eq!((refused.status, &refused.body["dm_error"]), (400, &json!(1000)), "{wait}");
    }
}

async fn waiters_are_served_one_task_each_and_the_others_wait_on(kept: Kept) {
    let delayd = Arc::new(kept.start(&[]).await);
    add(&delayd, "1h").await;
    let mut waiting: Vec<_> =
        (0..6).map(|_| pull(&delayd, json!({"wait": "25s", "lease": "1m"}))).collect();
    settle_down(&delayd).await;
    let mut added = HashSet::new();
    for _ in 0..4 {
        added.insert(add(&delayd, "0s").await);
    }
    let mut got = HashSet::new();
    for _ in 0..4 {
        let (pulled, which, _) = futures_util::future::select_all(&mut waiting).await;
        got.insert(pulled.unwrap()["task_id"].as_u64().unwrap());
        drop(waiting.swap_remove(which));
    }
    assert_eq!(got, added);
    settle_down(&delayd).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "another pull ended as well");
    let last = [add(&delayd, "0s").await, add(&delayd, "0s").await].map(|id| json!(id));
    for waiting in waiting {
        let pulled = waiting.await.unwrap();
        assert!(last.contains(&pulled["task_id"]) && pulled["attempt"] == 1, "{pulled}");
    }
}

async fn a_returned_task_wakes_a_waiter(kept: Kept) {
    let delayd = Arc::new(kept.start(&[]).await);
    let id = add(&delayd, "0s").await;
    let first = pull(&delayd, json!({"lease": "1m", "wait": "20s"})).await.unwrap();
    assert_eq!(first["task_id"], id);
    let waiting = pull(&delayd, json!({"lease": "1s", "wait": "20s"}));
    settle_down(&delayd).await;
    let nack = json!({"topic": "t", "task_id": id, "receipt": first["receipt"], "delay": 0});
    delayd.post("/delay/task/nack", nack.to_string()).await.ok();
    assert_eq!(waiting.await.unwrap()["attempt"], 2, "nacked");
    // This task is not acknowledged: its lease expires.
    let third = pull(&delayd, json!({"lease": "1m", "wait": "20s"})).await.unwrap();
    assert_eq!((&third["task_id"], &third["attempt"]), (&json!(id), &json!(3)));
}

/// The caller disconnects while it waits, and then a task falls due. The task must not be handed to
/// the closed connection, and no attempt may be spent.
async fn a_disconnected_waiter_loses_nothing(kept: Kept) {
    let delayd = Arc::new(kept.start(&[]).await);
    add(&delayd, "1h").await;
    let body = r#"{"topic":"t","wait":"30s"}"#;
    let request = format!(
        "POST /delay/task/pull HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let sockets: Vec<_> = (0..3)
        .map(|_| {
            let mut socket = std::net::TcpStream::connect(delayd.address).unwrap();
            socket.write_all(request.as_bytes()).unwrap();
            socket
        })
        .collect();
    settle_down(&delayd).await;
    let behind = pull(&delayd, json!({"wait": "20s", "lease": "1m"}));
    settle_down(&delayd).await;
    drop(sockets);
    let id = add(&delayd, "0s").await;
    let pulled = behind.await.unwrap();
    assert_eq!((&pulled["task_id"], &pulled["attempt"]), (&json!(id), &json!(1)));
}

/// More waiting pulls than there are request slots.
async fn waiters_take_no_slots_from_adds(kept: Kept) {
    let delayd = Arc::new(kept.start(&[]).await);
    add(&delayd, "1h").await;
    let waiting: Vec<_> =
        (0..1_100).map(|_| pull(&delayd, json!({"wait": "30s", "lease": "1m"}))).collect();
    settle_down(&delayd).await;
    let tasks: Vec<Value> = (0..1_100)
        .map(|n| json!({"topic": "t", "delay": 0, "mode": "pull", "content": {"n": n}}))
        .collect();
    let added: HashSet<u64> = delayd.add_all(&tasks).await.into_iter().collect();
    let mut got = HashSet::new();
    for waiting in waiting {
        let pulled = waiting.await.unwrap();
        got.insert(pulled["task_id"].as_u64().unwrap_or_else(|| panic!("{pulled}")));
    }
    assert_eq!(got, added, "each pull must get one task of its own");
}

/// Makes a topic with several lanes.
fn make_sharded_topic(kept: &Kept, shards: u16) {
    let registry = format!("{}:DELAY_TOPIC_LIST", kept.prefix());
    redis_server::shared().command(&["HSET", &registry, "t", &format!("{{\"shards\":{shards}}}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_consumers_of_two_instances_get_each_of_five_thousand_tasks_once() {
    let kept = Kept::redis();
    make_sharded_topic(&kept, 4);
    let instances = [Arc::new(kept.start(&[]).await), Arc::new(kept.start(&[]).await)];
    let consumers: Vec<_> = (0..64_usize)
        .map(|n| {
            let delayd = instances[n % 2].clone();
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let request = json!({"wait": "4s", "lease": "5m", "count": 1 + n % 3});
                    let pulled = pull(&delayd, request).await.unwrap();
                    let tasks = pulled["tasks"].as_array().unwrap();
                    if tasks.is_empty() {
                        return got;
                    }
                    for task in tasks {
                        assert_eq!(task["attempt"], 1, "{task}");
                        got.push(task["task_id"].as_u64().unwrap());
                        let ack = json!({
                            "topic": "t", "task_id": task["task_id"], "receipt": task["receipt"],
                        });
                        delayd.post("/delay/task/ack", ack.to_string()).await.ok();
                    }
                }
            })
        })
        .collect();
    let mut added = HashSet::new();
    for round in 0..10 {
        let task =
            |n: usize| json!({"topic": "t", "delay": n % 2, "mode": "pull", "content": {"n": n}});
        added.extend(instances[round % 2].add_all(&(0..500).map(task).collect::<Vec<_>>()).await);
    }
    let mut got = Vec::new();
    for consumer in consumers {
        got.extend(consumer.await.unwrap());
    }
    assert_eq!(got.len(), 5_000, "a task came twice, or not at all");
    assert_eq!(got.into_iter().collect::<HashSet<_>>(), added);
}

/// The other instance's add wakes the pull. With polls alone this test would take a second for each
/// task.
#[tokio::test(flavor = "multi_thread")]
async fn an_add_at_another_instance_wakes_a_waiter() {
    let kept = Kept::redis();
    let (here, there) = (Arc::new(kept.start(&[]).await), kept.start(&[]).await);
    for _ in 0..3 {
        let waiting = pull(&here, json!({"wait": "20s"}));
        settle_down(&here).await;
        let id = add(&there, "0s").await;
        assert_eq!(waiting.await.unwrap()["task_id"], id);
    }
}
