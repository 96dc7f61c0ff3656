//! What waiting pulls cost, and how soon a drain ends them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::long_poll::{add, pull, settle_down};
use crate::{Kept, on_both_stores, redis_server};

on_both_stores!(a_drain_ends_all_waits_at_once);

async fn a_drain_ends_all_waits_at_once(kept: Kept) {
    let delayd = Arc::new(kept.start_as_shipped(&[]).await);
    add(&delayd, "1h").await;
    let waiting: Vec<_> = (0..3).map(|_| pull(&delayd, json!({"wait": "28s"}))).collect();
    settle_down(&delayd).await;
    let began = Instant::now();
    delayd.signal("TERM");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap()["task_id"], Value::Null);
    }
    assert!(began.elapsed() < Duration::from_secs(14), "the waiting pulls delayed the drain");
    let mut delayd = Arc::try_unwrap(delayd).unwrap();
    assert!(delayd.ended().await.success(), "{}", delayd.log());
}

/// The poll that the instance makes every second also answers for twenty topics. A request for each
/// topic would be a hundred requests more.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_many_topics_share_the_look_of_each_second() {
    let kept = Kept::redis();
    let delayd = Arc::new(kept.start_as_shipped(&[]).await);
    let topics: Vec<String> = (0..20).map(|n| format!("idle{n}")).collect();
    for topic in &topics {
        delayd.add(json!({"topic": topic, "delay": "1h", "mode": "pull", "content": {}})).await;
    }
    let requests = async || {
        let before = redis_server::shared().statistic("total_reads_processed");
        delayd.lives_for(Duration::from_secs(5)).await;
        redis_server::shared().statistic("total_reads_processed") - before
    };
    let alone = requests().await;
    let pulls = topics.iter().map(|topic| pull(&delayd, json!({"topic": topic, "wait": "20s"})));
    let waiting: Vec<_> = pulls.collect();
    settle_down(&delayd).await;
    let with_waiters = requests().await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    assert!(
        with_waiters < alone + 20,
        "{with_waiters} requests in five seconds; {alone} without waiters"
    );
    for waiting in waiting {
        waiting.abort();
    }
}

/// A hundred and one waiting pulls cost as much as one: a poll a second. A poll for each would be a
/// thousand commands.
#[tokio::test(flavor = "multi_thread")]
async fn idle_waiters_hardly_ask_the_store() {
    let kept = Kept::redis();
    let delayd = Arc::new(kept.start_as_shipped(&[]).await);
    add(&delayd, "1h").await;
    let commands = || redis_server::shared().statistic("total_commands_processed");
    let during = async |span| {
        let before = commands();
        delayd.lives_for(span).await;
        commands() - before
    };
    let span = Duration::from_secs(5);
    let alone = during(span).await;
    let waiting: Vec<_> = (0..100).map(|_| pull(&delayd, json!({"wait": "20s"}))).collect();
    settle_down(&delayd).await;
    let with_waiters = during(span).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    // A poll reads the time and runs three commands.
    assert!(with_waiters - alone < 60, "{} commands more in {span:?}", with_waiters - alone);
    for waiting in waiting {
        waiting.abort();
    }
}
