//! Who delays a task: each culprit is provoked for [`LONG`], and the lateness of that time stands
//! under its name.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::{Program, StoreAt, service};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::slow_wire::SlowWire;
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    a_pause_is_charged_to_the_operator,
    a_hold_is_charged_to_the_operator,
    rates_are_charged_to_the_operator,
    a_service_without_an_address_is_charged_to_the_operator,
    an_open_breaker_is_charged_to_the_receiver,
    a_retry_after_is_charged_to_the_receiver,
    taken_slots_are_charged_to_their_receivers,
    a_task_that_nobody_pulls_is_charged_to_the_consumer,
    what_was_due_before_the_start_is_charged_to_nobody,
    a_backlog_of_a_full_receiver_or_topic_is_charged_to_the_receiver,
    the_objective_of_a_topic_decides_what_is_late,
);

/// How long each cause lasts. The lateness of healthy tasks is a few milliseconds.
const LONG: Duration = Duration::from_millis(1_500);

/// The value of a series.
async fn value(delayd: &Program, series: &str) -> f64 {
    let text = delayd.get("/metrics").await.body;
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("{series} is absent")).trim().parse().unwrap()
}

async fn seconds(delayd: &Program, mode: &str, culprit: &str) -> f64 {
    let labels = format!("{{mode=\"{mode}\",culprit=\"{culprit}\"}}");
    value(delayd, &format!("delayd_lateness_seconds_total{labels}")).await
}

/// Waits until a task was handed out late because of `culprit`, and checks that this was for
/// [`LONG`], and that all others together delayed it less.
async fn charged(delayd: &Program, mode: &str, culprit: &str) {
    let count =
        format!("delayd_task_lateness_seconds_count{{mode=\"{mode}\",culprit=\"{culprit}\"}}");
    let is_counted = async || value(delayd, &count).await >= 1.0;
    assert!(
        poll::until(is_counted).await,
        "nothing was charged to {culprit}: {}",
        all(delayd).await
    );
    let ours = seconds(delayd, mode, culprit).await;
    assert!(ours >= 0.8 * LONG.as_secs_f64(), "{culprit}: {}", all(delayd).await);
    for other in ["delayd", "receiver", "operator", "store", "consumer", "clock", "unknown"] {
        let theirs = seconds(delayd, mode, other).await;
        assert!(other == culprit || theirs < ours / 2.0, "{culprit}: {}", all(delayd).await);
    }
}

/// What is known of lateness, for messages.
async fn all(delayd: &Program) -> String {
    let text = delayd.get("/metrics").await.body;
    let lines = text.as_str().unwrap().lines();
    lines
        .filter(|line| line.contains("lateness_seconds") && !line.contains("_bucket"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn task(sn: &str) -> Value {
    json!({"topic": "t", "delay": 0, "content": {"sn": sn, "url": "/"}})
}

async fn call(delayd: &Program, verb: &str, body: Value) {
    delayd.post(&format!("/delay/{verb}"), body.to_string()).await.ok();
}

/// The cause lasts this long.
async fn long() {
    tokio::time::sleep(LONG).await;
}

async fn a_pause_is_charged_to_the_operator(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start_as_shipped(&[service("s", &receiver)]).await;
    call(&delayd, "topic/set", json!({"topic": "t", "paused": true})).await;
    delayd.add(task("s")).await.ok();
    long().await;
    call(&delayd, "topic/resume", json!({"topic": "t"})).await;
    charged(&delayd, "push", "operator").await;
}

async fn a_hold_is_charged_to_the_operator(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start_as_shipped(&[service("s", &receiver)]).await;
    call(&delayd, "destination/hold", json!({"sn": "s"})).await;
    delayd.add(task("s")).await.ok();
    long().await;
    call(&delayd, "destination/release", json!({"sn": "s"})).await;
    charged(&delayd, "push", "operator").await;
}

/// The rate of a service, and that of a topic.
async fn rates_are_charged_to_the_operator(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets =
        [service("s", &receiver), service("free", &receiver), "services.s.rate=\"1/s\"".to_owned()];
    let delayd = kept.start_as_shipped(&sets).await;
    delayd.add_all(&[task("s"), task("s"), task("s")]).await;
    receiver.wait_for(3).await;
    charged(&delayd, "push", "operator").await;
    let before = seconds(&delayd, "push", "operator").await;
    call(&delayd, "topic/set", json!({"topic": "slow", "rate": "1/s"})).await;
    let mut slow = task("free");
    slow["topic"] = "slow".into();
    delayd.add_all(&[slow.clone(), slow.clone(), slow]).await;
    receiver.wait_for(6).await;
    let grew = seconds(&delayd, "push", "operator").await - before;
    assert!(grew >= 0.8 * LONG.as_secs_f64(), "{}", all(&delayd).await);
}

async fn a_service_without_an_address_is_charged_to_the_operator(kept: Kept) {
    let folder = crate::program::folder();
    let file = folder.path().join("delayd.toml");
    let receiver = Receiver::start().await;
    let services = |names: &[&str]| {
        let endpoint = receiver.endpoint();
        let sections =
            names.iter().map(|name| format!("[services.{name}]\nendpoints = [\"{endpoint}\"]\n"));
        std::fs::write(&file, sections.collect::<String>()).unwrap();
    };
    services(&["s", "other"]);
    let mut serve = crate::program::serve(&kept.store, &[]);
    serve.arg("--config").arg(&file);
    let delayd = Program::launch(serve).await;
    let mut later = task("s");
    later["delay"] = "2s".into();
    delayd.add(later).await.ok();
    services(&["other"]);
    delayd.wait_for_log("Tasks for s are due but neither").await;
    long().await;
    services(&["s", "other"]);
    charged(&delayd, "push", "operator").await;
}

async fn an_open_breaker_is_charged_to_the_receiver(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(500)).await;
    let open = LONG.as_millis();
    let sets = [
        service("s", &receiver),
        format!("callback.breaker.open=\"{open}ms\""),
        format!("callback.breaker.open_max=\"{open}ms\""),
        "callback.breaker.consecutive_failures=1".to_owned(),
        "callback.retry.max_attempts=1".to_owned(),
    ];
    let delayd = kept.start_as_shipped(&sets).await;
    let first = delayd.add(task("s")).await.ok().id();
    delayd.wait_for_state("t", first, "dead").await;
    receiver.answer(|_| Answer::Status(200));
    delayd.add(task("s")).await.ok();
    charged(&delayd, "push", "receiver").await;
}

async fn a_retry_after_is_charged_to_the_receiver(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::With(429, vec![("retry-after", "2")], "")).await;
    let delayd = kept
        .start_as_shipped(&[service("s", &receiver), "callback.retry.max_attempts=1".into()])
        .await;
    let first = delayd.add(task("s")).await.ok().id();
    delayd.wait_for_state("t", first, "dead").await;
    receiver.answer(|_| Answer::Status(200));
    delayd.add(task("s")).await.ok();
    charged(&delayd, "push", "receiver").await;
}

/// The slots of a service, and the slots in total, which another service takes.
async fn taken_slots_are_charged_to_their_receivers(kept: Kept) {
    let (slow, free) = (Receiver::answering(|_| Answer::AtTheGate).await, Receiver::start().await);
    let sets = [
        service("slow", &slow),
        service("free", &free),
        "services.slow.concurrency=1".to_owned(),
        "callback.concurrency=1".to_owned(),
    ];
    let delayd = kept.start_as_shipped(&sets).await;
    delayd.add(task("slow")).await.ok();
    slow.wait_for(1).await;
    delayd.add_all(&[task("slow"), task("free")]).await;
    long().await;
    slow.open_gate();
    free.wait_for(1).await;
    slow.wait_for(2).await;
    charged(&delayd, "push", "receiver").await;
    let both = seconds(&delayd, "push", "receiver").await;
    assert!(both >= 1.6 * LONG.as_secs_f64(), "{}", all(&delayd).await);
}

async fn a_task_that_nobody_pulls_is_charged_to_the_consumer(kept: Kept) {
    let delayd = kept.start_as_shipped(&[]).await;
    let pull = json!({"topic": "t", "delay": 0, "content": {"order": 1}});
    delayd.add(pull.clone()).await.ok();
    long().await;
    call(&delayd, "task/pull", json!({"topic": "t", "lease": "1m"})).await;
    charged(&delayd, "pull", "consumer").await;
    // A consumer that waits is not late.
    let before = seconds(&delayd, "pull", "consumer").await;
    let waiting = delayd.post("/delay/task/pull", json!({"topic": "t", "wait": "20s"}).to_string());
    let adding = async {
        long().await;
        delayd.add(pull).await.ok()
    };
    let (pulled, _) = tokio::join!(waiting, adding);
    assert_eq!(pulled.ok().body["attempt"], 1);
    assert!(seconds(&delayd, "pull", "consumer").await - before < 0.5 * LONG.as_secs_f64());
}

/// The breaker of the instance before was open, for example.
async fn what_was_due_before_the_start_is_charged_to_nobody(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start_as_shipped(&[service("s", &receiver)]).await;
    let mut later = task("s");
    later["delay"] = "1s".into();
    delayd.add(later).await.ok();
    delayd.kill();
    tokio::time::sleep(Duration::from_secs(1) + LONG).await;
    let delayd = kept.start_as_shipped(&[service("s", &receiver)]).await;
    charged(&delayd, "push", "unknown").await;
    assert_eq!(value(&delayd, "delayd_objective_tasks_total{result=\"bad\"}").await, 0.0);
}

/// A claim takes some milliseconds, and slots become free meanwhile. So there were always free
/// ones, and delayd was charged for a backlog of seconds.
async fn a_backlog_of_a_full_receiver_or_topic_is_charged_to_the_receiver(kept: Kept) {
    for of_topic in [false, true] {
        let receiver = Receiver::answering(|_| Answer::After(Duration::from_millis(20))).await;
        let slots = if of_topic { 256 } else { 16 };
        let sets = [service("s", &receiver), format!("services.s.concurrency={slots}")];
        let delayd = kept.start_as_shipped(&sets).await;
        if of_topic {
            call(&delayd, "topic/set", json!({"topic": "t", "concurrency": 16})).await;
        }
        let mut later = task("s");
        later["delay"] = "2s".into();
        for _ in 0..4 {
            delayd.add_all(&vec![later.clone(); 500]).await;
        }
        receiver.wait_for(2_000).await;
        let own = seconds(&delayd, "push", "delayd").await;
        let theirs = seconds(&delayd, "push", "receiver").await;
        assert!(own < 0.1 * theirs, "{}", all(&delayd).await);
        assert_eq!(value(&delayd, "delayd_objective_tasks_total{result=\"bad\"}").await, 0.0);
    }
}

async fn the_objective_of_a_topic_decides_what_is_late(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [service("s", &receiver), "objective.lateness=\"1ms\"".to_owned()];
    let delayd = kept.start_as_shipped(&sets).await;
    call(&delayd, "topic/set", json!({"topic": "t", "lateness_objective": "2h"})).await;
    let mut later = task("s");
    later["delay"] = "1s".into();
    delayd.add(later.clone()).await.ok();
    later["topic"] = "strict".into();
    delayd.add(later).await.ok();
    delayd.signal("STOP");
    tokio::time::sleep(Duration::from_secs(1) + LONG).await;
    delayd.signal("CONT");
    receiver.wait_for(2).await;
    for result in ["good", "bad"] {
        let series = format!("delayd_objective_tasks_total{{result=\"{result}\"}}");
        let is_one = async || value(&delayd, &series).await == 1.0;
        assert!(poll::until(is_one).await, "{series}");
    }
    assert_eq!(value(&delayd, "delayd_objective_lateness_seconds").await, 0.001);
    assert_eq!(value(&delayd, "delayd_objective_ratio").await, 0.999);
}

/// A task falls due while Redis does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_redis_is_charged_to_the_store() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let store = StoreAt::Redis(server.port(), "late".into());
    let delayd = Program::start(&store, &[service("s", &receiver)]).await;
    let mut later = task("s");
    later["delay"] = "1s".into();
    delayd.add(later).await.ok();
    server.signal("STOP");
    tokio::time::sleep(Duration::from_secs(1) + LONG).await;
    server.signal("CONT");
    charged(&delayd, "push", "store").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_redis_is_charged_to_the_store() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let wire = SlowWire::to(server.port(), Duration::ZERO).await;
    let store = StoreAt::Redis(wire.address.port(), "late".into());
    let sets = [service("s", &receiver), "store.redis.timeout=\"20s\"".to_owned()];
    let delayd = Program::start(&store, &sets).await;
    let mut later = task("s");
    later["delay"] = "1s".into();
    delayd.add(later).await.ok();
    wire.set_delay(LONG);
    charged(&delayd, "push", "store").await;
}

/// A task that is due at once is not called before its add is durable.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_disk_is_charged_to_the_store() {
    let (kept, receiver) = (Kept::embedded(), Receiver::start().await);
    drop(kept.start_as_shipped(&[]).await);
    let StoreAt::Embedded(folder) = &kept.store else { unreachable!() };
    // An add whose fsync takes longer than 0.9 s is answered with 503.
    let delay = LONG.as_micros() / 5;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-P"]);
    strace.arg(folder.join("delayd.db-wal"));
    strace.args(["-e", &format!("inject=fsync,fdatasync:delay_enter={delay}")]);
    let delayd = Program::start_under(strace, &kept.store, &[service("s", &receiver)]).await;
    // The first commit syncs the header of the log as well.
    let mut later = task("s");
    later["delay"] = "1h".into();
    delayd.try_post("/delay/task/add", later.to_string()).await;
    let tasks: Vec<Value> = (0..12).map(|_| task("s")).collect();
    delayd.add_all(&tasks).await;
    charged(&delayd, "push", "store").await;
}
