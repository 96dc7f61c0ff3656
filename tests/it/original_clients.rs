//! Clients written for the original service, whose interface delayd keeps: two ways to add, the
//! pull and the answers, sent as `curl -d` sends them.
//!
//! The tests read what such a client reads: four fields of these types. An answer may hold more
//! fields.

use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::poll;
use crate::program::{Program, run, service};
use crate::receiver::{Answer, Receiver, now_ms};
use crate::{Kept, on_both_stores};

on_both_stores!(
    a_task_of_the_first_version_is_pulled_once_it_is_due,
    a_task_of_the_second_version_is_called_back,
    a_task_that_is_not_due_is_read_by_its_id_alone,
    a_second_version_receiver_says_no_by_dm_error,
);

/// Every answer, as such a client declares it.
#[derive(Debug, Deserialize)]
struct Reply {
    dm_error: i64,
    error_msg: String,
    content: Option<String>,
    task_id: Option<i64>,
}

/// Posts as `curl -d` does, with a form's content type, and reads the answer.
async fn call(delayd: &Program, path: &str, body: Value) -> Reply {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-X", "POST", "-d", &body.to_string()]).arg(delayd.url(path));
    let (code, output, error) = run(curl).await;
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

async fn add(delayd: &Program, topic: &str, timing_moment: i64, content: &Value) -> i64 {
    // The content is a string that holds JSON, not an object.
    let task =
        json!({"topic": topic, "timing_moment": timing_moment, "content": content.to_string()});
    let reply = call(delayd, "/delay/task/add", task).await;
    assert_eq!((reply.dm_error, reply.error_msg.as_str()), (0, "操作成功"), "{reply:?}");
    reply.task_id.expect("an add answers the task's id")
}

/// The task id and the content of a successful pull.
async fn pull(delayd: &Program, body: Value) -> (Option<i64>, Option<String>) {
    let reply = call(delayd, "/delay/task/pull", body).await;
    assert_eq!((reply.dm_error, reply.error_msg.as_str()), (0, "操作成功"), "{reply:?}");
    (reply.task_id, reply.content)
}

fn seconds_from_now(seconds: i64) -> i64 {
    now_ms() / 1000 + seconds
}

async fn a_task_of_the_first_version_is_pulled_once_it_is_due(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let nothing = (None, None);
    assert_eq!(pull(&delayd, json!({"topic": "order"})).await, nothing, "no such topic yet");
    let content = json!({"order_id": 42, "note": "未支付"});
    let due = seconds_from_now(2);
    let id = add(&delayd, "order", due, &content).await;
    let early = pull(&delayd, json!({"topic": "order", "task_id": 0})).await;
    assert!(early == nothing || now_ms() >= due * 1000, "pulled before its moment: {early:?}");
    let mut pulled = early;
    let is_pulled = async || {
        if pulled == nothing {
            pulled = pull(&delayd, json!({"topic": "order"})).await;
        }
        pulled != nothing
    };
    assert!(poll::until(is_pulled).await, "it never fell due");
    assert!(now_ms() >= due * 1000, "pulled before its moment");
    assert_eq!(pulled, (Some(id), Some(content.to_string())));
    assert_eq!(pull(&delayd, json!({"topic": "order"})).await, nothing, "a pull consumes");
    // The task stays readable by its id, which may be a number or a string. Clients without 64-bit
    // numbers send a string.
    for task_id in [json!(id), json!(id.to_string())] {
        let read = pull(&delayd, json!({"topic": "order", "task_id": task_id})).await;
        assert_eq!(read, (Some(id), Some(content.to_string())));
    }
}

async fn a_task_of_the_second_version_is_called_back(kept: Kept) {
    let receiver = Receiver::answering(|_| {
        let headers = vec![("content-type", "application/json")];
        Answer::With(200, headers, r#"{"dm_error":0,"error_msg":"操作成功"}"#)
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let content =
        json!({"sn": "message.call", "url": "/orders/cancel", "order_id": 42, "note": "未支付"});
    let due = seconds_from_now(1);
    let id = add(&delayd, "order.cancel", due, &content).await;
    let added_ms = now_ms();
    let call = receiver.wait_for(1).await.remove(0);
    assert_eq!(
        (call.path.as_str(), call.body.as_str()),
        ("/orders/cancel", content.to_string().as_str())
    );
    assert_eq!(call.id as i64, id);
    // A moment that has already passed becomes the moment of the add.
    assert!(
        (due * 1000..=added_ms.max(due * 1000)).contains(&call.due_ms),
        "due at {}",
        call.due_ms
    );
    assert!(call.arrived_ms >= due * 1000, "called before its moment");
    delayd.wait_for_state("order.cancel", id as u64, "delivered").await;
    assert_eq!(
        pull(&delayd, json!({"topic": "order.cancel"})).await,
        (None, None),
        "a pull returned a task that is called back"
    );
}

async fn a_task_that_is_not_due_is_read_by_its_id_alone(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let content = json!({"order_id": 7});
    let id = add(&delayd, "order", seconds_from_now(3600), &content).await;
    let read = pull(&delayd, json!({"topic": "order", "task_id": id.to_string()})).await;
    assert_eq!(read, (Some(id), Some(content.to_string())));
    assert_eq!(
        pull(&delayd, json!({"topic": "order", "task_id": null})).await,
        (None, None),
        "reading the task changed it"
    );
    let unknown =
        call(&delayd, "/delay/task/pull", json!({"topic": "order", "task_id": id + 1})).await;
    assert!(
        unknown.dm_error != 0 && !unknown.error_msg.is_empty() && unknown.task_id.is_none(),
        "{unknown:?}"
    );
    // An error is told in the same fields.
    let refused =
        call(&delayd, "/delay/task/add", json!({"topic": "order", "content": "{}"})).await;
    assert!(
        refused.dm_error != 0 && !refused.error_msg.is_empty() && refused.content.is_none(),
        "{refused:?}"
    );
}

/// Such receivers say "failed" with status 200 and a `dm_error`. delayd calls them again.
async fn a_second_version_receiver_says_no_by_dm_error(kept: Kept) {
    let receiver = Receiver::answering(|call| {
        let answer = if call.attempt == 1 {
            r#"{"dm_error":500,"error_msg":"later"}"#
        } else {
            r#"{"dm_error":0,"error_msg":"操作成功"}"#
        };
        Answer::With(200, vec![], answer)
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let content = json!({"sn": "message.call", "url": "/orders/cancel"});
    let id = add(&delayd, "order.cancel", seconds_from_now(0), &content).await;
    let calls = receiver.wait_for(2).await;
    assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2]);
    delayd.wait_for_state("order.cancel", id as u64, "delivered").await;
}
