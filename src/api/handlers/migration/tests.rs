use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use serde_json::{Value, json};

use crate::api::edge;
use crate::api::testing::{Ask, edge_with_store, json_of};
use crate::model::clock::Clock;
use crate::model::task::TaskId;

/// The status and the answer of a call.
async fn call(path: &str, body: Value) -> (u16, Value) {
    let (api, _draining, _folder) = edge_with_store();
    let asked = Request::post(path).body(Body::from(body.to_string())).unwrap();
    let response = edge(Arc::new(api)).answer(asked).await;
    (response.status().as_u16(), json_of(response).await)
}

fn task(id: u64, other: Value) -> Value {
    let mut record = json!({
        "topic": "t", "task_id": id, "mode": "pull", "content": "{}",
        "created_ms": 1_700_000_000_000_u64, "due_ms": 1_900_000_000_000_u64,
    });
    record.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    record
}

fn schedule(other: Value) -> Value {
    let mut record = json!({
        "topic": "t", "schedule": "s", "origin": "00c0ffee00c0ffee",
        "set_ms": 1_700_000_000_000_u64, "since_ms": 1_700_000_000_000_u64,
        "definition": {
            "cron": "@daily", "zone": "UTC", "misfire": "once", "overlap": "allow",
            "destination": "@pull", "content": "{}",
        },
    });
    record.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    record
}

async fn adopt_tasks(records: &[Value]) -> (u16, Value) {
    call("/delay/task/adopt", json!({"records": records})).await
}

async fn adopt_schedules(records: &[Value]) -> (u16, Value) {
    call("/delay/schedule/adopt", json!({"topic": "t", "records": records})).await
}

/// A record with seconds was once stored as due in January 1970, and its task was called at once.
#[tokio::test]
async fn seconds_are_not_taken_for_milliseconds() {
    let says = "expected Unix milliseconds from 2001 on, got";
    let check = |(_, answer): (u16, Value), field: &str, at: u64| {
        let message = answer["results"][0]["error_msg"].as_str().unwrap();
        assert!(message.starts_with(&format!("{field}: {says} {at}")), "{field}: {answer}");
    };
    for at in [0, 1_900_000_000, 978_307_199_999] {
        let ended = json!({"state": "delivered", "finished_ms": at});
        for (field, other) in [
            ("due_ms", json!({"due_ms": at})),
            ("created_ms", json!({"created_ms": at})),
            ("waits_ms", json!({"waits_ms": at})),
            ("key_set_ms", json!({"key": "a", "key_set_ms": at})),
            ("finished_ms", ended),
        ] {
            check(adopt_tasks(&[task(7, other)]).await, field, at);
        }
        for field in ["set_ms", "since_ms"] {
            check(adopt_schedules(&[schedule(json!({(field): at}))]).await, field, at);
        }
    }
    let earliest = 978_307_200_000_u64;
    let (_, answer) = adopt_tasks(&[task(7, json!({"created_ms": earliest}))]).await;
    assert_eq!(answer["results"][0]["dm_error"], 0, "{answer}");
}

/// Adds with one key in a topic of 256 lanes use 256 ids each. At 9,700 a second, the counter is a
/// day ahead of the clock after 14 hours, and the tasks could no longer move.
#[tokio::test]
async fn an_id_that_keyed_adds_brought_far_ahead_of_the_clock_is_adopted() {
    let now = Clock::system().now().0.unsigned_abs() / 1_000;
    for (days, code) in [(2, 0), (9 * 366, 0), (11 * 366, 1000)] {
        let id = (now + days * 86_400) * TaskId::PER_SECOND;
        let (_, answer) = adopt_tasks(&[task(id, json!({}))]).await;
        assert_eq!(answer["results"][0]["dm_error"], code, "{days} days: {answer}");
    }
}

/// An earlier version accepted such headers, and its tasks must be able to move.
#[tokio::test]
async fn headers_that_only_delayd_may_set_do_not_keep_a_task_from_moving() {
    let options = json!({"headers": {"delay_tenant": "a", "Webhook_Id": "b"}});
    let (_, answer) = adopt_tasks(&[task(7, json!({"options": options}))]).await;
    assert_eq!(answer["results"][0]["dm_error"], 0, "{answer}");
    let mut record = schedule(json!({}));
    record["definition"]["options"] = options;
    let (_, answer) = adopt_schedules(&[record]).await;
    assert_eq!(answer["results"][0]["dm_error"], 0, "{answer}");
}

/// An adopt once answered `dm_error` 0, and a caller that looked only at this believed that its
/// records were stored.
#[tokio::test]
async fn an_adopt_of_which_every_record_failed_is_a_failure() {
    let bad = || task(7, json!({"mode": "auto"}));
    let check = |(status, answer): (u16, Value), failed: u64, count: usize| {
        let (code, says) = if failed as usize == count { (1000, 400) } else { (0, 200) };
        assert_eq!((status, &answer["dm_error"]), (says, &json!(code)), "{answer}");
        assert_eq!(answer["failed"], failed, "{answer}");
        assert_eq!(answer["results"].as_array().unwrap().len(), count, "{answer}");
    };
    check(adopt_tasks(&[bad()]).await, 1, 1);
    check(adopt_tasks(&[bad(), bad()]).await, 2, 2);
    check(adopt_tasks(&[bad(), task(8, json!({}))]).await, 1, 2);
    check(adopt_tasks(&[task(8, json!({}))]).await, 0, 1);
    let wrong = || schedule(json!({"origin": "there"}));
    check(adopt_schedules(&[wrong()]).await, 1, 1);
    check(adopt_schedules(&[wrong(), wrong()]).await, 2, 2);
    check(adopt_schedules(&[wrong(), schedule(json!({}))]).await, 1, 2);
    check(adopt_schedules(&[schedule(json!({}))]).await, 0, 1);
}
