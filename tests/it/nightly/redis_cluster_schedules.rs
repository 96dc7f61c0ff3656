//! Recurring schedules that move into a Redis Cluster and back while they fire and tasks are added.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::load::{Answered, Load};
use crate::moving::{counts, move_all};
use crate::moving_schedules::{
    by_schedule, call, check_moments, records, set, stop, text, waiting,
};
use crate::program::{Program, service};
use crate::receiver::{Answer, Receiver};
use crate::redis_many::Cluster;
use crate::{Kept, poll};

use super::redis_cluster;

/// Schedules with a moment each second. Every other one calls each missed moment separately.
const FIRING: usize = 12;
/// Tasks that wait for an hour.
const FAR: usize = 40;
/// Occurrences that have failed once and wait for their retry: too few to open a circuit breaker.
const RETRYING: usize = 3;
const SHARDS: u16 = 8;

/// What a move must not change of each schedule.
async fn definitions(delayd: &Program) -> BTreeMap<String, Value> {
    let kept = ["definition", "set_ms", "origin", "paused"];
    let of = |record: &Value| {
        let fields = kept.map(|field| (field, record[field].clone()));
        (record["schedule"].as_str().unwrap().to_owned(), json!(HashMap::from(fields)))
    };
    records(delayd).await.iter().map(of).collect()
}

/// Waits until each schedule has called two more moments.
async fn each_fires_twice(receiver: &Receiver, names: &[String]) {
    let counts = || {
        let calls = by_schedule(receiver.seen());
        names.iter().map(|name| calls.get(name).map_or(0, Vec::len)).collect::<Vec<_>>()
    };
    let before = counts();
    let all = async || counts().iter().zip(&before).all(|(now, before)| *now >= before + 2);
    assert!(poll::until(all).await, "{before:?} calls became {:?}", counts());
}

/// Moves everything while tasks are added to the old service, before and after it has handed its
/// schedules over. Returns the answers to these adds.
async fn move_under_load(old: &Arc<Program>, new: &Program, schedules: usize) -> Vec<Answered> {
    let load = Load::start(old, "t", "500ms", 2);
    load.accepted_after(Instant::now(), 20).await;
    let adding = async {
        let moved = async || records(new).await.len() == schedules && records(old).await.is_empty();
        assert!(poll::until(moved).await, "the schedules do not move:\n{}", old.log());
        load.accepted_after(Instant::now(), 20).await;
        load.stop().await.1
    };
    // The load falls due within the margin, so it fires where it was added.
    let (summary, answers) = tokio::join!(move_all(old, new, &["--linger", "1s"]), adding);
    let topic = &summary["topics"][0];
    assert_eq!(
        (&topic["schedules"], &topic["moved"], &topic["refused"], &summary["left"]),
        (&json!(schedules), &json!(FAR + RETRYING), &json!(0), &json!(0)),
        "{summary}"
    );
    let left = counts(old, "t").await;
    assert_eq!((&left["scheduled"], &left["leased"]), (&json!(0), &json!(0)), "{left}");
    answers
}

/// Sets all schedules, and has the occurrences of one fail. Returns the names of those that fire
/// each second.
async fn set_schedules(delayd: &Program, receiver: &Receiver) -> Vec<String> {
    set(delayd, "far", json!({"cron": "0 0 1 1 *", "zone": "Asia/Shanghai"})).await;
    set(delayd, "paused", json!({"every": "1h", "overlap": "skip"})).await;
    call(delayd, "pause", json!({"topic": "t", "schedule": "paused"})).await.ok();
    let retry = json!({"kind": "fixed", "every": "1h"});
    let more =
        json!({"cron": "0 0 1 1 *", "zone": "UTC", "backoff": retry, "headers": {"x-a": "b"}});
    set(delayd, "retrying", more).await;
    for _ in 0..RETRYING {
        call(delayd, "run", json!({"topic": "t", "schedule": "retrying"})).await.ok();
    }
    receiver.wait_for(RETRYING).await;
    let names: Vec<String> = (0..FIRING).map(|n| format!("s{n:02}")).collect();
    for (n, name) in names.iter().enumerate() {
        let misfire = if n.is_multiple_of(2) { "all" } else { "once" };
        set(delayd, name, json!({"every": "1s", "misfire": misfire})).await;
    }
    each_fires_twice(receiver, &names).await;
    names
}

/// Asserts that each task that was added to one store under load was called once. An add that was
/// not confirmed may have been stored.
fn check_load(receiver: &Receiver, is_of_store: impl Fn(&str) -> bool, answers: &[Answered]) {
    let seen = receiver.seen();
    let load = seen.iter().filter(|call| call.path == "/");
    let of_store = load.filter(|call| is_of_store(text(call, "webhook-id")));
    let called: Vec<u64> = of_store.map(|call| call.id).collect();
    let distinct: HashSet<u64> = called.iter().copied().collect();
    assert_eq!(distinct.len(), called.len(), "a task was called twice");
    let added: HashSet<u64> = answers.iter().filter_map(|answer| answer.id).collect();
    let lost: Vec<&u64> = added.difference(&distinct).collect();
    assert!(lost.is_empty(), "{} tasks were never called, such as {:?}", lost.len(), lost.first());
    let unconfirmed = answers.iter().filter(|answer| answer.status == 503).count();
    assert_eq!(added.len() + unconfirmed, answers.len(), "an add was refused: {answers:?}");
    assert!(distinct.len() <= answers.len(), "a task was called that was never added");
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_move_into_a_cluster_and_back_under_load() {
    let cluster = block_in_place(Cluster::start);
    let receiver = Receiver::answering(|seen| {
        Answer::Status(if seen.path == "/retrying" { 500 } else { 200 })
    })
    .await;
    let kept = Kept::embedded();
    let single = Arc::new(kept.start_as_shipped(&[service("message.call", &receiver)]).await);
    let many = redis_cluster::start(&cluster, &receiver).await;
    let topic = json!({"topic": "t", "shards": SHARDS}).to_string();
    single.post("/delay/topic/set", topic).await.ok();
    let far =
        json!({"topic": "t", "delay": "1h", "content": {"sn": "message.call", "url": "/far"}});
    let far = single.add_all(&vec![far; FAR]).await;
    let names = set_schedules(&single, &receiver).await;
    let retrying: Vec<u64> =
        by_schedule(receiver.seen())["retrying"].iter().map(|call| call.id).collect();
    assert_eq!(retrying.len(), RETRYING);
    for id in &retrying {
        single.wait_for_state("t", *id, "scheduled").await;
    }
    let before = definitions(&single).await;
    assert_eq!(before.len(), FIRING + 3);
    let wait: HashSet<u64> = far.iter().chain(&retrying).copied().collect();
    assert_eq!(wait.len(), FAR + RETRYING);

    let added_to_single = move_under_load(&single, &many, before.len()).await;
    for node in &cluster.nodes[..3] {
        let keys = node.command(&["KEYS", "*DELAY_RECURRING*"]);
        assert!(keys.contains("DELAY_RECURRING"), "a primary has no schedule: {keys}");
    }
    assert_eq!(definitions(&many).await, before);
    each_fires_twice(&receiver, &names).await;
    assert!(wait.is_subset(&waiting(&many).await), "a waiting task is not at the cluster");

    let added_to_many = move_under_load(&many, &single, before.len()).await;
    assert_eq!(definitions(&single).await, before);
    each_fires_twice(&receiver, &names).await;

    stop(&single, &names).await;
    assert_eq!(waiting(&single).await, wait);
    // Beside these, the two schedules that are not paused have one occurrence each.
    assert_eq!(counts(&single, "t").await["scheduled"], wait.len() + 2);
    receiver.answer(|_| Answer::Status(200));
    for id in &retrying {
        let now = json!({"topic": "t", "task_id": id, "delay": 0}).to_string();
        single.post("/delay/task/update", now).await.ok();
        single.wait_for_state("t", *id, "delivered").await;
    }
    // A duplicate may come late.
    single.lives_for(std::time::Duration::from_secs(1)).await;

    let origin = before["far"]["origin"].as_str().unwrap();
    let mut calls = by_schedule(receiver.seen());
    let of_origin = |call: &crate::receiver::Seen| text(call, "webhook-id").starts_with(origin);
    assert!(calls.values().flatten().all(of_origin), "a moment has another webhook-id");
    let retried = calls.remove("retrying").unwrap();
    let tries = |id: u64| {
        let calls = retried.iter().filter(|call| call.id == id);
        calls.map(|call| text(call, "webhook-id")).collect::<Vec<_>>()
    };
    assert_eq!(retried.len(), 2 * RETRYING);
    for id in retrying {
        let tries = tries(id);
        assert_eq!((tries.len(), tries[0]), (2, tries[1]), "a retry has another webhook-id");
    }
    assert_eq!(calls.keys().cloned().collect::<Vec<_>>(), names);
    for (name, calls) in &calls {
        assert!(check_moments(name, calls) >= 6, "{name}: {} calls", calls.len());
    }
    let is_single = |webhook_id: &str| webhook_id.starts_with(origin);
    check_load(&receiver, is_single, &added_to_single);
    check_load(&receiver, |webhook_id| !is_single(webhook_id), &added_to_many);
}
