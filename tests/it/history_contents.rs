//! `history.contents = false`: ended tasks without their contents.

use serde_json::{Value, json};

use crate::program::{command, run, service};
use crate::receiver::Receiver;
use crate::{Kept, Program, on_both_stores, poll};

on_both_stores!(contents_of_ended_tasks_are_removed_and_the_tasks_are_still_recognized);

const TOPIC: &str = "t";
const DELIVERED: u64 = 1_700_000_000_000_001;
const DEAD: u64 = 1_700_000_000_000_002;

/// A task that ended an hour ago, as another store has it.
fn record(id: u64, state: &str) -> Value {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    json!({
        "topic": TOPIC, "task_id": id, "mode": "push", "state": state, "attempts": 2,
        "created_ms": 1_700_000_000_000_u64, "due_ms": 1_700_000_000_000_u64,
        "finished_ms": now - 3_600_000, "last_outcome": "200 OK",
        "options": {"origin": "4c1f0a9be2d87356", "max_attempts": 7},
        "content": json!({"sn": "message.call", "url": "/", "secret": 7}).to_string(),
    })
}

/// Adopts a record. Returns the answer to it.
async fn adopt(delayd: &Program, record: &Value) -> Value {
    let body = json!({"records": [record]}).to_string();
    delayd.post("/delay/task/adopt", body).await.body["results"][0].clone()
}

async fn known(delayd: &Program, record: &Value) -> Value {
    adopt(delayd, record).await["known"].clone()
}

async fn contents_of_ended_tasks_are_removed_and_the_tasks_are_still_recognized(kept: Kept) {
    let receiver = Receiver::start().await;
    let with_contents = [service("message.call", &receiver)];
    let mut delayd = kept.start(&with_contents).await;
    let (delivered, dead) = (record(DELIVERED, "delivered"), record(DEAD, "dead"));
    for record in [&delivered, &dead] {
        assert_eq!(known(&delayd, record).await, json!(false));
    }
    let whole = delayd.task(TOPIC, DELIVERED).await;
    assert_eq!(whole["content"], delivered["content"]);
    assert_eq!(whole["content_removed"], Value::Null);
    delayd.signal("TERM");
    delayd.ended().await;

    // The first round of the janitor begins at once.
    let without = [service("message.call", &receiver), "history.contents=false".into()];
    let delayd = kept.start(&without).await;
    let removed = async || delayd.task(TOPIC, DELIVERED).await["content_removed"] == json!(true);
    assert!(poll::until(removed).await, "the content stays");
    let mut expected = whole.clone();
    expected["content"] = Value::Null;
    expected["content_removed"] = json!(true);
    assert_eq!(delayd.task(TOPIC, DELIVERED).await, expected);
    assert_eq!(delayd.task(TOPIC, DEAD).await["content"], dead["content"]);
    let one = json!({"topic": TOPIC, "task_id": DELIVERED}).to_string();
    let pulled = delayd.post("/delay/task/pull", one).await.ok().body;
    assert_eq!((&pulled["content"], &pulled["content_removed"]), (&Value::Null, &json!(true)));
    let mut client = command(&[]);
    client.args(["get", TOPIC, &DELIVERED.to_string(), "--server"]).arg(delayd.url(""));
    assert!(run(client).await.1.contains("(removed)"));

    // The same task is recognized, and another one is not.
    assert_eq!(known(&delayd, &delivered).await, json!(true));
    let mut other = delivered.clone();
    other["content"] = json!(json!({"sn": "message.call", "url": "/other"}).to_string());
    assert_eq!(adopt(&delayd, &other).await["dm_error"], json!(1009));

    // It moves on without its content, to a store that does not know the service.
    let ask = json!({"topic": TOPIC, "task_ids": [DELIVERED]}).to_string();
    let answer = delayd.post("/delay/task/records", ask).await.ok().body;
    let bare = &answer["records"][0];
    assert_eq!((&bare["content"], &bare["destination"]), (&json!(""), &json!("message.call")));
    let target = Kept::embedded();
    let next = target.start(&[]).await;
    assert_eq!(known(&next, bare).await, json!(false));
    let moved = next.task(TOPIC, DELIVERED).await;
    for field in ["state", "content", "content_removed", "sn", "options", "webhook_id"] {
        assert_eq!(moved[field], expected[field], "{field}");
    }
    assert_eq!(known(&next, bare).await, json!(true));

    // Only an ended task has no content.
    for state in ["scheduled", "dead"] {
        let mut wrong = bare.clone();
        (wrong["state"], wrong["task_id"]) = (json!(state), json!(DELIVERED + 10));
        let answer = adopt(&next, &wrong).await;
        assert_eq!(answer["dm_error"], json!(1000), "{answer}");
    }
}
