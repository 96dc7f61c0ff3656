//! Several instances on one Redis.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Kept;
use crate::program::service;
use crate::receiver::{Answer, Receiver, now_ms};
use crate::redis_server;

fn tasks(count: usize, delay: &str) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"topic": "t", "delay": delay, "content": {"sn": "message.call", "url": "/", "n": n}}))
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

/// The holder is killed in the middle of a burst. Tasks that it had not claimed go on at once (its lock lasts 2 s).
#[tokio::test(flavor = "multi_thread")]
async fn when_the_holder_of_a_lane_is_killed_the_other_goes_on_within_three_seconds() {
    let kept = Kept::redis();
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let settings = [service("message.call", &receiver)];
    let holder = kept.start(&settings).await;
    holder.add_all(&tasks(100, "0s")).await;
    let before = receiver.wait_for(1).await.len();
    let other = kept.start(&settings).await;
    // As a holder that dies in the middle of a burst would leave it: its lock stays behind.
    let lock = format!("{}:DELAY_TOPIC_RELOAD_LOCK-{{t:0}}", kept.prefix());
    redis_server::shared().command(&["SET", &lock, "the killed one", "EX", "2"]);
    receiver.answer(|_| Answer::Status(200));
    holder.kill();
    let killed_at = now_ms();
    receiver.open_gate();
    let seen = receiver.wait_for(before.max(32) + 40).await;
    let first = seen.iter().map(|call| call.arrived_ms).find(|&at| at > killed_at).unwrap();
    assert!(first - killed_at < 3_000, "the other took {} ms", first - killed_at);
    drop(other);
}

/// An instance that only takes tasks hints at them, so that the one that works need not wait for its look.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_work_leaves_its_tasks_to_one_that_does() {
    let kept = Kept::redis();
    let receiver = Receiver::start().await;
    let works = kept.start(&[service("message.call", &receiver)]).await;
    let takes = kept.start(&[service("message.call", &receiver), "worker.enabled=false".into()]).await;
    let id = takes.add_all(&tasks(1, "10ms")).await[0];
    works.wait_for_state("t", id, "delivered").await;
}

/// Idle topics cost one look a second over all of them, a script for each 64, and no other script.
#[tokio::test(flavor = "multi_thread")]
async fn idle_topics_are_not_polled() {
    let redis = redis_server::Server::start();
    let store = crate::StoreAt::Redis(redis.port(), "idle".into());
    let receiver = Receiver::start().await;
    let delayd =
        crate::Program::start(&store, &[service("message.call", &receiver), "worker.idle_stop=\"100ms\"".into()]).await;
    let far: Vec<Value> = (0..200)
        .map(|n| json!({"topic": format!("idle.{n}"), "delay": "1h", "content": {"sn": "message.call", "url": "/"}}))
        .collect();
    delayd.add_all(&far).await;
    // Topics with a worker that has had work, and has gone idle.
    delayd.add(json!({"topic": "idle.0", "delay": 0, "content": {"sn": "message.call", "url": "/"}})).await;
    receiver.wait_for(1).await;
    let calls = |name: &str| {
        let stats = redis.command(&["INFO", "commandstats"]);
        let line =
            stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap_or_default().to_owned();
        line.split("calls=").nth(1).and_then(|rest| rest.split(',').next()?.parse::<i64>().ok()).unwrap_or_default()
    };
    // Until the workers have ended, others may run; then not one may.
    const SCRIPTS_A_LOOK: i64 = 4;
    let mut before = calls("evalsha");
    for _ in 0..60 {
        let since = Instant::now();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (now, seconds) = (calls("evalsha"), since.elapsed().as_secs_f64());
        let (looks, others) = ((now - before) / SCRIPTS_A_LOOK, (now - before) % SCRIPTS_A_LOOK);
        if others == 0 && looks >= 2 && looks as f64 <= seconds + 2.0 {
            return;
        }
        before = now;
    }
    panic!("idle topics are still polled:\n{}", delayd.log());
}
