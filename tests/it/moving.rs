//! `delayd move`: from one store to another, while both serve.

use std::collections::{HashMap, HashSet};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Kept;
use crate::poll;
use crate::program::{Program, command, run, service};
use crate::receiver::{Receiver, Seen};
use crate::redis_server::ports;

/// The command that moves the tasks of one service to another.
pub(crate) fn mover(old: &Program, new: &Program, words: &[&str]) -> Command {
    mover_from(&old.url(""), &new.url(""), words)
}

pub(crate) fn mover_from(old: &str, new: &str, words: &[&str]) -> Command {
    let mut mover = command(&[]);
    mover.arg("move").args(["--server", old, "--to", new, "--json"]).args(words);
    mover
}

pub(crate) async fn move_all(old: &Program, new: &Program, words: &[&str]) -> Value {
    let (code, output, error) = run(mover(old, new, words)).await;
    assert_eq!(code, 0, "{output}{error}\n{}\n{}", old.log(), new.log());
    serde_json::from_str(&output).unwrap()
}

const HOUR_MS: usize = 3_600_000;

/// A task that is called `delay_ms` milliseconds from now.
fn called(topic: &str, n: usize, delay_ms: usize) -> Value {
    json!({
        "topic": topic, "delay": format!("{delay_ms}ms"),
        "content": {"sn": "message.call", "url": "/", "n": n},
    })
}

pub(crate) async fn counts(delayd: &Program, topic: &str) -> Value {
    delayd.post("/delay/topic/get", json!({"topic": topic}).to_string()).await.ok().body["counts"]
        .clone()
}

async fn scheduled(delayd: &Program, topic: &str) -> u64 {
    let body = json!({"topic": topic}).to_string();
    let Some(answer) = delayd.try_post("/delay/topic/get", body).await else { return 0 };
    answer.body["counts"]["scheduled"].as_u64().unwrap_or(0)
}

/// Makes tasks due now that were far from due, so that a slow machine had time for the steps
/// before.
async fn make_due(delayd: &Program, ids: &[u64]) {
    for some in ids.chunks(16) {
        let now = |id: &u64| json!({"topic": "t", "task_id": id, "delay": 0}).to_string();
        let updates = some.iter().map(|id| delayd.post("/delay/task/update", now(id)));
        for answer in futures_util::future::join_all(updates).await {
            answer.ok();
        }
    }
}

/// Asserts that each task was called once, and none before its moment.
async fn check_each_came_once(new: &Program, receiver: &Receiver, ids: &[u64]) {
    let seen = receiver.wait_for(ids.len()).await;
    // A duplicate may come late.
    new.lives_for(Duration::from_secs(1)).await;
    let seen = if receiver.seen().len() > seen.len() { receiver.seen() } else { seen };
    let mut calls: HashMap<u64, Vec<&Seen>> = HashMap::new();
    for call in &seen {
        calls.entry(call.id).or_default().push(call);
        assert!(call.lateness_ms() >= 0, "task {} came {} ms early", call.id, -call.lateness_ms());
    }
    let expected: HashSet<u64> = ids.iter().copied().collect();
    let lost: Vec<_> = expected.iter().filter(|id| !calls.contains_key(id)).collect();
    assert!(lost.is_empty(), "{} tasks never came, such as {:?}", lost.len(), lost.first());
    let twice: Vec<_> = calls.iter().filter(|(_, calls)| calls.len() > 1).collect();
    assert!(twice.is_empty(), "{} tasks came twice, such as {:?}", twice.len(), twice.first());
    assert_eq!(calls.len(), expected.len(), "a task was called that was never added");
}

async fn everything_moves_while_both_serve(from: Kept, into: Kept) {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    let set = json!({"topic": "t", "shards": 4, "quota": 100_000, "retry": {"max_attempts": 3}})
        .to_string();
    old.post("/delay/topic/set", set).await.ok();
    // Half of them fall due meanwhile, if they are not moved by then.
    let delay_ms = |n: usize| if n.is_multiple_of(2) { 1_000 + n * 5 } else { HOUR_MS };
    let tasks: Vec<Value> = (0..3_000).map(|n| called("t", n, delay_ms(n))).collect();
    let mut ids = old.add_all(&tasks).await;
    let far: Vec<u64> = ids.iter().copied().skip(1).step_by(2).collect();
    // A task without a consumer is overdue and moves. A task of a held destination moves as well,
    // and stays held.
    let pulled = old
        .add(json!({"topic": "p", "delay": 0, "mode": "pull", "content": "any \"text\"\n"}))
        .await
        .id();
    let held = old.add(called("held", 0, 0)).await.id();
    old.wait_for_state("held", held, "delivered").await;
    old.post("/delay/topic/set", json!({"topic": "held", "paused": true}).to_string()).await.ok();
    ids.push(held);
    let kept_back = old.add(called("held", 1, 0)).await.id();
    let doomed =
        json!({"topic": "d", "delay": 0, "mode": "pull", "max_attempts": 1, "content": "x"});
    let doomed = old.add(doomed).await.id();
    let lease = json!({"topic": "d", "lease": "30s"}).to_string();
    let receipt = old.post("/delay/task/pull", lease).await.ok().body["receipt"].clone();
    old.post(
        "/delay/task/nack",
        json!({"topic": "d", "task_id": doomed, "receipt": receipt}).to_string(),
    )
    .await
    .ok();
    let dead = old.wait_for_state("d", doomed, "dead").await;
    let cancelled = old.add(called("t", 0, 60_000)).await.id();
    let later = old.add(called("t", 0, 3_600_000)).await.id();

    // Adds go on at the old service meanwhile.
    let moving = move_all(&old, &new, &["--margin", "1s", "--batch", "100"]);
    let adding = async {
        let mut added = Vec::new();
        for n in 0..100 {
            added.push(old.add(called("t", n, 4_000)).await.id());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        added
    };
    let (summary, added) = tokio::join!(moving, adding);
    ids.extend(added);
    assert_eq!(summary["left"], 0, "{summary}");
    assert!(summary["moved"].as_u64().unwrap() > 1_000, "{summary}");
    assert!(
        !new.log().contains("resumed by hand"),
        "the log says that a topic was resumed by hand: {}",
        new.log()
    );

    let shown = new.post("/delay/topic/get", json!({"topic": "t"}).to_string()).await.ok().body;
    assert_eq!(
        (&shown["shards"], &shown["policy"]["quota"], &shown["policy"]["retry"]["max_attempts"]),
        (&json!(4), &json!(100_000), &json!(3))
    );
    let shown = new.post("/delay/topic/get", json!({"topic": "held"}).to_string()).await.ok().body;
    assert_eq!((&shown["paused"], &shown["counts"]["scheduled"]), (&json!(true), &json!(1)));
    assert_eq!(new.task("held", kept_back).await["state"], "scheduled");
    assert_eq!(new.task("d", doomed).await, dead);
    let pull = new.post("/delay/task/pull", json!({"topic": "p"}).to_string()).await.ok().body;
    assert_eq!((&pull["task_id"], &pull["content"]), (&json!(pulled), &json!("any \"text\"\n")));

    // Callers hold ids. They can cancel and read the tasks at the new service with them.
    let one = |id: u64| json!({"topic": "t", "task_id": id}).to_string();
    new.post("/delay/task/cancel", one(cancelled)).await.ok();
    assert_eq!(new.task("t", later).await["task_id"], later);
    assert_eq!(old.post("/delay/task/get", one(later)).await.status, 404);
    make_due(&new, &far).await;
    check_each_came_once(&new, &receiver, &ids).await;
    let fresh = new.add(called("t", 0, 3_600_000)).await.id();
    assert!(!ids.contains(&fresh) && fresh > later);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_moves_from_embedded_to_redis_while_both_serve() {
    everything_moves_while_both_serve(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_moves_from_redis_to_embedded_while_both_serve() {
    everything_moves_while_both_serve(Kept::redis(), Kept::embedded()).await;
}

/// A mover in the background. Dropping it kills it.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut mover: Command) -> Self {
        Self(mover.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits until the mover has ended successfully.
    pub(crate) async fn ended(self) {
        let mut running = self;
        let wait = move || {
            let running = &mut running;
            running.0.wait().unwrap()
        };
        let status = tokio::task::spawn_blocking(wait).await.unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until the new service has `count` scheduled tasks.
async fn wait_for_moved(new: &Program, count: u64) {
    let is_moved = async || scheduled(new, "t").await >= count;
    assert!(poll::until(is_moved).await, "the tasks were not moved:\n{}", new.log());
}

async fn a_killed_mover_is_resumed(from: Kept, into: Kept) {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    let tasks: Vec<Value> = (0..2_000).map(|n| called("t", n, HOUR_MS + n)).collect();
    let ids = old.add_all(&tasks).await;
    // Killed at any of its steps.
    for kills in 1..=8 {
        let running = Running::start(mover(&old, &new, &["--batch", "20", "--margin", "1s"]));
        wait_for_moved(&new, kills * 50).await;
        drop(running);
    }
    let summary = move_all(&old, &new, &["--margin", "1s"]).await;
    assert_eq!(summary["left"], 0, "{summary}");
    assert_eq!(scheduled(&new, "t").await, 2_000);
    make_due(&new, &ids).await;
    check_each_came_once(&new, &receiver, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mover_is_resumed_into_redis() {
    a_killed_mover_is_resumed(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mover_is_resumed_into_embedded() {
    a_killed_mover_is_resumed(Kept::redis(), Kept::embedded()).await;
}

/// The state that a mover leaves if it dies between two of its steps.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_partial_move_each_task_is_called_once() {
    let (from, into) = (Kept::redis(), Kept::embedded());
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    let ids = old.add_all(&(0..30).map(|n| called("t", n, 6_000)).collect::<Vec<_>>()).await;
    let lend = |ids: &[u64]| {
        json!({"topic": "t", "task_ids": ids, "lend": "10m", "receipt": "mover"}).to_string()
    };
    // Ten tasks are leased by the mover. Ten more are also stored at the new service. The last ten
    // are also confirmed to the old service, and are only not finished.
    let lent = old.post("/delay/task/records", lend(&ids)).await.ok().body;
    assert_eq!(lent["records"].as_array().unwrap().len(), 30);
    let adopt = json!({"records": lent["records"].as_array().unwrap()[10..]}).to_string();
    let adopted = new.post("/delay/task/adopt", adopt.clone()).await.ok().body;
    assert_eq!(adopted["failed"], 0, "{adopted}");
    let moved = json!({"topic": "t", "task_ids": ids[20..], "receipt": "mover"}).to_string();
    for _ in 0..2 {
        assert_eq!(old.post("/delay/task/moved", moved.clone()).await.ok().body["count"], 10);
    }
    assert_eq!(new.post("/delay/task/adopt", adopt).await.ok().body["results"][0]["known"], true);

    let summary = move_all(&old, &new, &["--margin", "1s"]).await;
    assert_eq!(
        (&summary["moved"], &summary["topics"][0]["known"]),
        (&json!(20), &json!(10)),
        "{summary}"
    );
    check_each_came_once(&new, &receiver, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_the_new_service_refuses_stays_at_the_old_one() {
    let (from, into) = (Kept::embedded(), Kept::redis());
    let receiver = Receiver::start().await;
    let old = from.start(&[service("message.call", &receiver)]).await;
    let new = into.start(&[]).await;
    let ids = old.add_all(&(0..5).map(|n| called("t", n, 4_000)).collect::<Vec<_>>()).await;
    let (code, output, error) =
        run(mover(&old, &new, &["--margin", "1s", "--patience", "1s"])).await;
    assert!(
        code == 1 && error.contains("message.call") && error.contains("5 tasks left"),
        "{output}{error}"
    );
    let waiting = counts(&old, "t").await;
    assert_eq!((&waiting["scheduled"], &waiting["leased"]), (&json!(5), &json!(0)));
    check_each_came_once(&new, &receiver, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_and_a_wrong_address_move_nothing() {
    let (from, into) = (Kept::embedded(), Kept::redis());
    let old = from.start(&[]).await;
    let token = "http.auth.tokens=[{name=\"a\",token_sha256=\"".to_owned()
        + &"0".repeat(64)
        + "\",scopes=[\"admin\"],topics=[\"*\"]}]";
    let new = into.start(&[token]).await;
    old.add(json!({"topic": "t", "delay": "1h", "mode": "pull", "content": "x"})).await;
    for words in [&[][..], &["--to-token", "wrong"]] {
        let (code, output, error) = run(mover(&old, &new, words)).await;
        assert!(code == 1 && error.contains("dm_error 1001"), "{output}{error}");
    }
    let mut nobody = command(&[]);
    nobody.args([
        "move",
        "--server",
        &old.url(""),
        "--to",
        &format!("http://127.0.0.1:{}", ports::take()),
    ]);
    let (code, output, error) = run(nobody).await;
    assert!(code == 1 && error.contains("does not answer"), "{output}{error}");
    let waiting = counts(&old, "t").await;
    assert_eq!((&waiting["scheduled"], &waiting["leased"]), (&json!(1), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_of_one_store_move_nothing() {
    let kept = Kept::redis();
    let (one, two) = (kept.start(&[]).await, kept.start(&[]).await);
    let id =
        one.add(json!({"topic": "t", "delay": "1h", "mode": "pull", "content": "x"})).await.id();
    let before = one.task("t", id).await;
    let (code, output, error) = run(mover(&one, &two, &[])).await;
    assert!(code == 1 && error.contains("the same store"), "{output}{error}");
    assert_eq!(one.task("t", id).await, before);
}

/// Each record is answered separately, as each task of a batch is.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_kept_leaves_the_others_alone() {
    let receiver = Receiver::start().await;
    let delayd = Kept::embedded().start(&[service("message.call", &receiver)]).await;
    let record = |id: u64, other: Value| {
        let mut record = json!({
            "topic": "t", "task_id": id, "mode": "pull", "content": "x",
            "created_ms": 1_700_000_000_000_u64, "due_ms": 1_900_000_000_000_u64,
        });
        record.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        record
    };
    let first = 1_700_000_000_000_000;
    let wrong = [
        (json!({"state": "leased"}), "state: "),
        (json!({"state": "dead"}), "finished_ms: is missing"),
        (json!({"due_ms": -1}), "due_ms: must be Unix milliseconds"),
        (json!({"due_ms": 1_900_000_000}), "due_ms: expected Unix milliseconds from 2001 on"),
        (json!({"task_id": 9_007_199_254_740_991_u64}), "task_id: lies further ahead"),
        (
            json!({"mode": "push", "content": r#"{"sn":"nobody","url":"/"}"#}),
            "is not a service that is known here",
        ),
        (json!({"mode": "auto"}), "mode: must be"),
        (
            json!({"options": {"on_dead": {"sn": "message.call", "url": "/"}}}),
            "options.on_dead.task_id: is missing",
        ),
        (
            json!({"options": {"on_dead": {"sn": "nobody", "url": "/", "task_id": 7}}}),
            "options.on_dead.sn: \"nobody\" is not a service that is known here",
        ),
        (json!({"options": {"expires_after": "3651d"}}), "options.expires_after: must be"),
        (json!({"options": {"expires_after": 0}}), "options.expires_after: must be"),
        (json!({"options": {"headers": {"host": "a"}}}), "options.headers: "),
        (json!({"options": {"origin": "there"}}), "options.origin: expected the id of a store"),
        (json!({"colour": "red"}), "colour"),
    ];
    let mut records: Vec<Value> = wrong
        .iter()
        .enumerate()
        .map(|(i, (other, _))| record(first + i as u64, other.clone()))
        .collect();
    records.push(record(first + 100, json!({})));
    let answer =
        delayd.post("/delay/task/adopt", json!({"records": records}).to_string()).await.ok().body;
    for (result, (other, why)) in answer["results"].as_array().unwrap().iter().zip(&wrong) {
        assert_eq!(result["dm_error"], 1000, "{other}: {result}");
        assert!(result["error_msg"].as_str().unwrap().contains(why), "{other}: {result}");
    }
    assert_eq!(
        (&answer["failed"], &answer["results"][wrong.len()]["known"]),
        (&json!(wrong.len()), &json!(false))
    );
    assert_eq!(counts(&delayd, "t").await["scheduled"], 1);
}

/// The new service restarts during the run, at the same address.
#[tokio::test(flavor = "multi_thread")]
async fn the_mover_waits_for_a_target_that_restarts() {
    let (from, into) = (Kept::redis(), Kept::embedded());
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    let ids = old.add_all(&(0..1_500).map(|n| called("t", n, HOUR_MS)).collect::<Vec<_>>()).await;
    let address = new.address;
    let running = tokio::spawn(run(mover(
        &old,
        &new,
        &["--batch", "25", "--margin", "1s", "--rate", "700/s"],
    )));
    wait_for_moved(&new, 300).await;
    new.kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = [settings[0].clone(), format!("http.bind=\"{address}\"")];
    let new = Program::start(&into.store, &again).await;
    let (code, output, error) = running.await.unwrap();
    assert_eq!(code, 0, "{output}{error}");
    let summary: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&summary["moved"], &summary["left"]), (&json!(1_500), &json!(0)));
    assert_eq!(scheduled(&new, "t").await, 1_500);
    make_due(&new, &ids).await;
    check_each_came_once(&new, &receiver, &ids).await;
}
