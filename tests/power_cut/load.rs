//! The load: callers of every kind, at the same time. Each works on tasks of its own, one call
//! after the other, so that it knows which states are possible.

use std::future::Future;
use std::time::Duration;

use rand::seq::IndexedRandom;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::SERVICE;
use crate::caller::{Caller, id};
use crate::history::{PUSHED, Step};
use crate::receiver::now_ms;

const HOUR_MS: i64 = 3_600_000;

/// Starts all callers. They end when the load is over.
pub fn start(caller: &Caller) -> JoinSet<()> {
    let mut set = JoinSet::new();
    for lane in 0..2 {
        until_over(&mut set, caller, move |caller| add_for_consumers(caller, lane));
        until_over(&mut set, caller, move |caller| add_for_consumers(caller, lane));
        until_over(&mut set, caller, move |caller| consume(caller, lane));
        until_over(&mut set, caller, move |caller| consume(caller, lane));
    }
    for _ in 0..3 {
        until_over(&mut set, caller, change);
        until_over(&mut set, caller, push);
        until_over(&mut set, caller, push_by_update);
    }
    until_over(&mut set, caller, replace);
    until_over(&mut set, caller, batch);
    until_over(&mut set, caller, adopt);
    until_over(&mut set, caller, set_topics);
    set
}

fn until_over<F>(
    set: &mut JoinSet<()>,
    caller: &Caller,
    act: impl Fn(Caller) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let caller = caller.clone();
    set.spawn(async move {
        while !caller.is_over() {
            act(caller.clone()).await;
        }
    });
}

/// Some text, so that contents cover parts of a page, or several pages.
fn padding() -> String {
    let longest = *[40, 300, 3_000, 20_000].choose(&mut rand::rng()).unwrap();
    "x".repeat(rand::random_range(0..longest))
}

fn content(version: u64) -> Value {
    json!({"version": version, "padding": padding()})
}

fn called(url: &str, version: u64) -> Value {
    json!({"sn": SERVICE, "url": url, "version": version, "padding": padding()})
}

/// The version in a content; 0 in that of a dead-letter call, which has none.
pub fn version(content: &str) -> u64 {
    let content: Value = serde_json::from_str(content).unwrap();
    content["version"].as_u64().unwrap_or(0)
}

/// Adds a task, and notes it. Returns its id.
async fn add(caller: &Caller, task: &Value, shows: &[&str]) -> Option<u64> {
    let sent = caller.position();
    let (answer, at) = match task.get("idempotency_key") {
        Some(_) => caller.call_twice("/delay/task/add", task).await,
        None => caller.call("/delay/task/add", task).await,
    }?;
    let step = Step::new(sent, Some(at), shows).version(0);
    let mut history = caller.history();
    history.drawn.push((at, id(&answer)));
    history.added(id(&answer), task["topic"].as_str().unwrap(), step);
    Some(id(&answer))
}

async fn add_for_consumers(caller: Caller, lane: u64) {
    let topic = format!("pulled.{lane}");
    let mut task = json!({"topic": topic, "mode": "pull", "delay": 0, "content": content(0)});
    if rand::random_bool(0.3) {
        task["idempotency_key"] = json!(rand::random::<u64>().to_string());
    }
    // A pull whose answer was lost may have it.
    add(&caller, &task, &["scheduled", "leased"]).await;
}

/// Pulls with a lease. Nobody else may get the tasks, and an ack or nack is for good.
async fn consume(caller: Caller, lane: u64) {
    let topic = format!("pulled.{lane}");
    let pull = json!({"topic": topic, "lease": "1h", "count": 8, "wait": "300ms"});
    let (sent, lease_ms) = (caller.position(), now_ms() + HOUR_MS);
    let Some((answer, at)) = caller.call("/delay/task/pull", &pull).await else { return };
    let mut settles = JoinSet::new();
    for task in answer["tasks"].as_array().into_iter().flatten() {
        let step = Step::new(sent, Some(at), &["leased"])
            .from(lease_ms)
            .version(version(task["content"].as_str().unwrap()));
        let mut history = caller.history();
        history.drawn.push((at, id(task)));
        history.step(id(task), &topic, step);
        let mut settle = json!({"topic": topic, "task_id": id(task), "receipt": task["receipt"]});
        let caller = caller.clone();
        settles.spawn(async move {
            if rand::random_bool(0.2) {
                settle["lease"] = json!("5h");
                let extended = settle_by(&caller, "extend", &settle, "leased", 5).await;
                settle.as_object_mut().unwrap().remove("lease");
                if !extended || rand::random_bool(0.3) {
                    return;
                }
            }
            if rand::random_bool(0.7) {
                settle_by(&caller, "ack", &settle, "delivered", 0).await;
            } else {
                settle["delay"] = json!("1h");
                settle_by(&caller, "nack", &settle, "scheduled", 1).await;
            }
        });
    }
    settles.join_all().await;
}

/// A call about a task, after which it shows `state`, until so many hours from now at least.
async fn settle_by(caller: &Caller, verb: &str, call: &Value, state: &str, hours: i64) -> bool {
    let (sent, from_ms) = (caller.position(), now_ms() + hours * HOUR_MS);
    let answer = caller.insist(&format!("/delay/task/{verb}"), call).await;
    let promised = answer.as_ref().map(|(_, at)| *at);
    let mut step = Step::new(sent, promised, &[state]);
    if hours > 0 {
        step = step.from(from_ms);
    }
    step.version = call["content"]["version"].as_u64();
    let topic = call["topic"].as_str().unwrap();
    caller.history().step(call["task_id"].as_u64().unwrap(), topic, step);
    promised.is_some()
}

/// Changes a waiting task a few times, and cancels it or not.
async fn change(caller: Caller) {
    let topic = "changed";
    let key = rand::random::<u64>().to_string();
    let task = json!({
        "topic": topic, "mode": "pull", "delay": "1h", "idempotency_key": key,
        "content": content(0),
    });
    let Some(id) = add(&caller, &task, &["scheduled"]).await else { return };
    for version in 1..=rand::random_range(0..4) {
        let update = json!({
            "topic": topic, "task_id": id, "delay": format!("{}h", version + 1),
            "content": content(version),
        });
        if !settle_by(&caller, "update", &update, "scheduled", version as i64 + 1).await {
            return;
        }
    }
    if rand::random_bool(0.5) {
        let cancel = json!({"topic": topic, "task_id": id});
        settle_by(&caller, "cancel", &cancel, "cancelled", 0).await;
    }
}

/// A task that is called soon: with success, with failures and a dead-letter call, or by a receiver
/// that acknowledges later, or also. Such an ack often writes nothing, and tells of the worker's
/// settle, which a power cut may undo.
async fn push(caller: Caller) {
    let url = *["/ok", "/both", "/fails", "/later"].choose(&mut rand::rng()).unwrap();
    let task = json!({
        "topic": "pushed", "delay": format!("{}ms", rand::random_range(0..150)),
        "max_attempts": 2, "backoff": {"kind": "fixed", "every": "50ms"},
        "on_dead": {"sn": SERVICE, "url": "/dead"}, "content": called(url, 0),
    });
    add(&caller, &task, PUSHED).await;
}

/// An update makes a task due. Its call may overtake the answer to the update.
async fn push_by_update(caller: Caller) {
    let task = json!({"topic": "pushed", "delay": "1h", "content": called("/ok", 0)});
    let Some(id) = add(&caller, &task, PUSHED).await else { return };
    let update = json!({"topic": "pushed", "task_id": id, "delay": 0, "content": called("/ok", 1)});
    let sent = caller.position();
    // Once only: a second update might come during the call, and be refused.
    let promised = caller.call("/delay/task/update", &update).await.map(|(_, at)| at);
    let step = Step::new(sent, promised, PUSHED).version(1);
    caller.history().step(id, "pushed", step);
}

/// One key, whose task is replaced again and again.
async fn replace(caller: Caller) {
    let key = rand::random::<u64>().to_string();
    let mut task = json!({
        "topic": "keyed", "mode": "pull", "delay": "1h", "key": key, "content": content(0),
    });
    let Some(id) = add(&caller, &task, &["scheduled"]).await else { return };
    for version in 1..=rand::random_range(1..8) {
        task["content"] = content(version);
        let sent = caller.position();
        let answer = caller.call("/delay/task/add", &task).await;
        let promised = answer.as_ref().map(|(_, at)| *at);
        let step = Step::new(sent, promised, &["scheduled"]).version(version);
        caller.history().step(id, "keyed", step);
        let Some((answer, _)) = answer else { return };
        assert_eq!(answer["task_id"], id, "it was not replaced");
    }
}

async fn batch(caller: Caller) {
    let task = json!({"topic": "batch", "mode": "pull", "delay": "1h", "content": content(0)});
    let batch = json!({"tasks": vec![task; 40]});
    let sent = caller.position();
    if let Some((answer, at)) = caller.call("/delay/task/add_batch", &batch).await {
        let mut history = caller.history();
        for stored in answer["results"].as_array().unwrap() {
            history.drawn.push((at, id(stored)));
            let step = Step::new(sent, Some(at), &["scheduled"]).version(0);
            history.added(id(stored), "batch", step);
        }
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
}

/// Tasks of another store, whose ids are ahead of the clock: ids that are drawn later are higher.
async fn adopt(caller: Caller) {
    let began_ms = caller.history().began_ms;
    let id = (began_ms + HOUR_MS) as u64 * 1_000 + caller.position() * 100;
    let record = json!({
        "topic": "adopted", "task_id": id, "mode": "pull", "content": content(0).to_string(),
        "created_ms": began_ms, "due_ms": began_ms + 24 * HOUR_MS,
    });
    let records = json!({"records": [record]});
    let sent = caller.position();
    let answer = caller.insist("/delay/task/adopt", &records).await;
    let step = Step::new(sent, answer.map(|(_, at)| at), &["scheduled"]).version(0);
    caller.history().added(id, "adopted", step);
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Topics are created, changed, paused and resumed.
async fn set_topics(caller: Caller) {
    let topic = format!("set.{}", rand::random::<u32>());
    let (policy, pause) = (format!("policy of {topic}"), format!("pause of {topic}"));
    for attempts in 1..5 {
        let set = json!({"topic": topic, "retry": {"max_attempts": attempts}});
        if !set_by(&caller, "topic/set", &set, &policy, &attempts.to_string()).await {
            return;
        }
    }
    let topic = json!({"topic": topic});
    caller.history().set(&pause, Step::new(0, None, &["off"]));
    if set_by(&caller, "topic/pause", &topic, &pause, "on").await {
        set_by(&caller, "topic/resume", &topic, &pause, "off").await;
    }
}

/// A call that sets something, which shows `value` after it.
async fn set_by(caller: &Caller, path: &str, call: &Value, setting: &str, value: &str) -> bool {
    let sent = caller.position();
    let answer = caller.insist(&format!("/delay/{path}"), call).await;
    let promised = answer.map(|(_, at)| at);
    caller.history().set(setting, Step::new(sent, promised, &[value]));
    promised.is_some()
}
