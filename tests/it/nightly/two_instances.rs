//! Several instances on one Redis: what idle topics cost, and how soon a dead instance is replaced.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::service;
use crate::receiver::{Answer, Receiver, now_ms};
use crate::two_instances::tasks;
use crate::{Kept, redis_server};

/// The holder of a lane is killed during a burst. Tasks that it had not claimed are called soon
/// (its lock lasts 2 s).
#[tokio::test(flavor = "multi_thread")]
async fn when_the_holder_of_a_lane_is_killed_the_other_goes_on_within_three_seconds() {
    let kept = Kept::redis();
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let settings = [service("message.call", &receiver)];
    let holder = kept.start_as_shipped(&settings).await;
    holder.add_all(&tasks(100, "0s")).await;
    let before = receiver.wait_for(1).await.len();
    let other = kept.start_as_shipped(&settings).await;
    // The state that a killed holder leaves: its lock remains.
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

/// Idle topics cost one poll a second over all of them (a script for each 64 topics), a heartbeat
/// and a sample (a script for each 16 topics), and no other script.
#[tokio::test(flavor = "multi_thread")]
async fn idle_topics_are_not_polled() {
    let redis = redis_server::Server::start();
    let store = crate::StoreAt::Redis(redis.port(), "idle".into());
    let receiver = Receiver::start().await;
    let delayd = crate::Program::start(
        &store,
        &[service("message.call", &receiver), "worker.idle_stop=\"100ms\"".into()],
    )
    .await;
    let far: Vec<Value> = (0..200)
        .map(|n| {
            json!({
                "topic": format!("idle.{n}"), "delay": "1h",
                "content": {"sn": "message.call", "url": "/"},
            })
        })
        .collect();
    delayd.add_all(&far).await;
    // Topics with a worker that had work and became idle.
    delayd
        .add(json!({"topic": "idle.0", "delay": 0, "content": {"sn": "message.call", "url": "/"}}))
        .await;
    receiver.wait_for(1).await;
    // Other scripts may run until the workers have ended. Then none may.
    const SCRIPTS_A_LOOK: u64 = 4 + 1 + 13;
    let mut before = redis.calls("evalsha");
    for _ in 0..60 {
        let since = Instant::now();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (now, seconds) = (redis.calls("evalsha"), since.elapsed().as_secs_f64());
        let (looks, others) = ((now - before) / SCRIPTS_A_LOOK, (now - before) % SCRIPTS_A_LOOK);
        if others == 0 && looks >= 2 && looks as f64 <= seconds + 2.0 {
            return;
        }
        before = now;
    }
    panic!("idle topics are still polled:\n{}", delayd.log());
}
