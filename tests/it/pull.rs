//! Consumers that pull.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::poll;
use crate::program::Program;
use crate::{Kept, on_both_stores};

on_both_stores!(
    a_pull_consumes_and_the_task_stays_readable,
    a_lease_comes_back_unless_acknowledged,
    many_consumers_never_get_the_same_task,
    a_disconnected_caller_loses_nothing,
    a_nacked_task_comes_back_and_dies_of_its_attempts,
    the_contents_of_a_pull_are_bounded_over_all_lanes,
);

async fn add(delayd: &Program, count: usize) -> Vec<u64> {
    let tasks: Vec<Value> =
        (0..count).map(|n| json!({"topic": "t", "delay": 0, "content": {"n": n}})).collect();
    delayd.add_all(&tasks).await
}

async fn pull(delayd: &Program, more: Value) -> Value {
    let mut body = json!({"topic": "t"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    delayd.post("/delay/task/pull", body.to_string()).await.ok().body
}

async fn a_pull_consumes_and_the_task_stays_readable(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let empty = pull(&delayd, json!({})).await;
    assert_eq!(
        (&empty["content"], &empty["task_id"]),
        (&Value::Null, &Value::Null),
        "no such topic yet"
    );
    let id = add(&delayd, 1).await[0];
    let peeked = pull(&delayd, json!({"task_id": id.to_string()})).await;
    assert_eq!(peeked["content"], r#"{"n":0}"#);
    let pulled = pull(&delayd, json!({"task_id": 0})).await;
    assert_eq!(
        (&pulled["task_id"], &pulled["content"], &pulled["attempt"]),
        (&json!(id), &json!(r#"{"n":0}"#), &json!(1))
    );
    delayd.wait_for_state("t", id, "delivered").await;
    assert_eq!(pull(&delayd, json!({})).await["task_id"], Value::Null);
    assert_eq!(pull(&delayd, json!({"task_id": id})).await["content"], r#"{"n":0}"#);
}

async fn a_lease_comes_back_unless_acknowledged(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let id = add(&delayd, 1).await[0];
    let first = pull(&delayd, json!({"lease": "1s"})).await;
    assert_eq!((&first["task_id"], &first["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(
        pull(&delayd, json!({"lease": "1s"})).await["task_id"],
        Value::Null,
        "the task is leased, and a pull returned it"
    );
    delayd.wait_for_state("t", id, "scheduled").await;
    let second = pull(&delayd, json!({"lease": "30s"})).await;
    assert_eq!((&second["task_id"], &second["attempt"]), (&json!(id), &json!(2)));
    assert_ne!(first["receipt"], second["receipt"]);
    let ack =
        |receipt: &Value| json!({"topic": "t", "task_id": id, "receipt": receipt}).to_string();
    let late = delayd.post("/delay/task/nack", ack(&first["receipt"])).await;
    assert_eq!(
        (late.status, &late.body["state"]),
        (409, &json!("leased")),
        "a settle with an old receipt changed the task"
    );
    delayd.post("/delay/task/ack", ack(&second["receipt"])).await.ok();
    assert_eq!(delayd.task("t", id).await["state"], "delivered");
}

async fn many_consumers_never_get_the_same_task(kept: Kept) {
    let delayd = std::sync::Arc::new(kept.start(&[]).await);
    let ids: HashSet<u64> = add(&delayd, 1_000).await.into_iter().collect();
    let consumers = (0..8).map(|_| {
        let delayd = delayd.clone();
        tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let tasks = pull(&delayd, json!({"count": 7, "lease": "1m"})).await["tasks"]
                    .as_array()
                    .unwrap()
                    .clone();
                if tasks.is_empty() {
                    return got;
                }
                got.extend(tasks.iter().map(|task| task["task_id"].as_u64().unwrap()));
            }
        })
    });
    let mut got = Vec::new();
    for consumer in consumers {
        got.extend(consumer.await.unwrap());
    }
    assert_eq!(got.len(), 1_000);
    assert_eq!(got.into_iter().collect::<HashSet<_>>(), ids);
}

/// The caller sends its pull and resets the connection before the answer can be written. The next
/// pull must get the task.
async fn a_disconnected_caller_loses_nothing(kept: Kept) {
    let delayd = kept.start(&[]).await;
    // An answer larger than the socket's buffers cannot be written to a client that does not read.
    let filler = "x".repeat(200_000);
    let tasks: Vec<Value> = (0..64)
        .map(|n| json!({"topic": "t", "delay": 0, "content": {"n": n, "filler": filler}}))
        .collect();
    let mut ids = HashSet::new();
    for chunk in tasks.chunks(16) {
        ids.extend(delayd.add_all(chunk).await);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut socket = socket.connect(delayd.address).await.unwrap();
    let body = r#"{"topic":"t","count":256}"#;
    let head = "POST /delay/task/pull HTTP/1.1\r\nhost: [::1]\r\ncontent-length";
    let request = format!("{head}: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).await.unwrap();
    // The first byte of the answer is there, so the tasks are claimed. Then the caller disconnects.
    socket.peek(&mut [0]).await.unwrap();
    drop(socket);
    let mut got = HashSet::new();
    let all_come = async || {
        let tasks = pull(&delayd, json!({"count": 256})).await["tasks"].as_array().unwrap().clone();
        got.extend(tasks.iter().map(|task| task["task_id"].as_u64().unwrap()));
        got.len() == ids.len()
    };
    poll::until(all_come).await;
    assert_eq!(got, ids);
}

async fn a_nacked_task_comes_back_and_dies_of_its_attempts(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let id = delayd
        .add(json!({"topic": "t", "delay": 0, "max_attempts": 2, "content": {"n": 1}}))
        .await
        .id();
    for attempt in 1..=2 {
        let pulled = pull(&delayd, json!({"lease": "1m"})).await;
        assert_eq!((&pulled["task_id"], &pulled["attempt"]), (&json!(id), &json!(attempt)));
        let nack = json!({"topic": "t", "task_id": id, "receipt": pulled["receipt"], "delay": 0});
        delayd.post("/delay/task/nack", nack.to_string()).await.ok();
    }
    assert_eq!(delayd.task("t", id).await["state"], "dead");
}

/// Each lane used to return as much as all of them together may.
async fn the_contents_of_a_pull_are_bounded_over_all_lanes(kept: Kept) {
    const MOST: usize = 4 << 20;
    let settings =
        ["limits.content=\"6MiB\"", "limits.body=\"7MiB\"", "store.redis.timeout=\"20s\""];
    let delayd = kept.start(&settings.map(str::to_owned)).await;
    delayd.post("/delay/topic/set", json!({"topic": "t", "shards": 8}).to_string()).await.ok();
    let task = |bytes: usize| {
        let content = "x".repeat(bytes);
        json!({"topic": "t", "delay": 0, "mode": "pull", "content": content})
    };
    let mut ids = HashSet::new();
    for _ in 0..10 {
        ids.extend(
            delayd.add_all(&[task(600_000), task(600_000), task(600_000), task(600_000)]).await,
        );
    }
    let larger = delayd.add(task(MOST + 1)).await.id();
    ids.insert(larger);
    let mut pulls = 0;
    while !ids.is_empty() {
        // Waiting pulls are bounded as well.
        let wait = if pulls % 2 == 0 { "0s" } else { "1s" };
        let answer = pull(&delayd, json!({"count": 100, "lease": "60s", "wait": wait})).await;
        let tasks = answer["tasks"].as_array().unwrap();
        let bytes: usize = tasks.iter().map(|task| task["content"].as_str().unwrap().len()).sum();
        let is_alone = tasks.len() == 1 && tasks[0]["task_id"] == larger;
        assert!(bytes <= MOST || is_alone, "{bytes} bytes in {} tasks", tasks.len());
        for task in tasks {
            assert!(
                ids.remove(&task["task_id"].as_u64().unwrap()),
                "{} came twice",
                task["task_id"]
            );
            assert_eq!(
                task["attempt"], 1,
                "a task was claimed and given back, and its attempt was spent"
            );
        }
        pulls += 1;
        assert!(pulls < 200, "{} tasks never came", ids.len());
    }
}
