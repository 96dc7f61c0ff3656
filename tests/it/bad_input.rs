//! Bad input gets a clear error message and changes nothing: one row for each row of the error
//! table.

use serde_json::json;

use crate::program::{Program, client, service};
use crate::receiver::Receiver;
use crate::{Kept, on_both_stores};

on_both_stores!(
    bad_adds_say_what_would_be_right_and_store_nothing,
    the_rest_of_the_error_table,
    one_bad_task_does_not_spoil_its_batch,
);

async fn refused(delayd: &Program, path: &str, body: &str, status: u16, dm_error: u16, says: &str) {
    let answer = delayd.post(path, body).await;
    assert_eq!(
        (answer.status, &answer.body["dm_error"]),
        (status, &json!(dm_error)),
        "{}: {answer:?}",
        &body[..body.len().min(200)]
    );
    let message = answer.body["error_msg"].as_str().unwrap();
    assert!(
        message.contains(says),
        "{}: {message:?} should say {says:?}",
        &body[..body.len().min(200)]
    );
    assert!(answer.headers.contains_key("x-request-id"));
}

async fn bad_adds_say_what_would_be_right_and_store_nothing(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd =
        kept.start(&[service("message.call", &receiver), "limits.content=\"1KiB\"".into()]).await;
    let good = r#""topic":"t","content":{"sn":"message.call","url":"/x"}"#;
    let big = format!(r#"{{"topic":"t","delay":1,"content":{{"a":"{}"}}}}"#, "x".repeat(2_000));
    let huge = format!(r#"{{"topic":"t","delay":1,"content":"{}"}}"#, "x".repeat(2 << 20));
    let far = now_seconds() + 3_651 * 86_400;
    let cases: &[(String, u16, u16, &str)] = &[
        ("".into(), 400, 1000, "JSON"),
        ("{".into(), 400, 1000, "JSON"),
        ("[]".into(), 400, 1000, "object"),
        (r#"{"delay":1,"content":{}}"#.into(), 400, 1000, "topic"),
        (r#"{"topic":"","delay":1,"content":{}}"#.into(), 400, 1000, "topic"),
        (r#"{"topic":"a b","delay":1,"content":{}}"#.into(), 400, 1000, "topic"),
        (r#"{"topic":7,"delay":1,"content":{}}"#.into(), 400, 1000, "topic"),
        (r#"{"topic":"t","delay":1}"#.into(), 400, 1000, "content"),
        (r#"{"topic":"t","delay":1,"content":7}"#.into(), 400, 1000, "content"),
        (r#"{"topic":"t","delay":1,"content":"no json"}"#.into(), 400, 1000, "content"),
        (format!("{{{good}}}"), 400, 1000, "timing_moment"),
        (format!(r#"{{{good},"delay":1,"timing_moment":1900000000}}"#), 400, 1000, "delay"),
        (format!(r#"{{{good},"timing_moment":60}}"#), 400, 1000, "delay"),
        (format!(r#"{{{good},"timing_moment":1900000000000}}"#), 400, 1000, "millisecond"),
        (format!(r#"{{{good},"timing_moment":{far}}}"#), 400, 1000, "timing_moment"),
        (format!(r#"{{{good},"timing_moment":"soon"}}"#), 400, 1000, "timing_moment"),
        (format!(r#"{{{good},"delay":-1}}"#), 400, 1000, "delay"),
        (format!(r#"{{{good},"delay":"3651d"}}"#), 400, 1000, "delay"),
        (format!(r#"{{{good},"delay":"later"}}"#), 400, 1000, "delay"),
        (format!(r#"{{{good},"delay":1,"mode":"shove"}}"#), 400, 1000, "mode"),
        (format!(r#"{{{good},"delay":1,"max_attempts":0}}"#), 400, 1000, "max_attempts"),
        (format!(r#"{{{good},"delay":1,"timeout":"11m"}}"#), 400, 1000, "timeout"),
        (format!(r#"{{{good},"delay":1,"backoff":{{"kind":"fixed"}}}}"#), 400, 1000, "backoff"),
        (format!(r#"{{{good},"delay":1,"idempotency_key":""}}"#), 400, 1000, "idempotency_key"),
        (
            format!(r#"{{{good},"delay":1,"idempotency_key":"schedule-run/nightly/1"}}"#),
            400,
            1000,
            "idempotency_key: expected a key that does not begin with \"schedule-run/\"",
        ),
        (format!(r#"{{{good},"delay":1,"key":7}}"#), 400, 1000, "key"),
        (format!(r#"{{{good},"delay":1,"expires_after":0}}"#), 400, 1000, "expires_after"),
        (
            format!(r#"{{{good},"delay":1,"on_dead":{{"sn":"nobody","url":"/x"}}}}"#),
            400,
            1000,
            "on_dead.sn",
        ),
        (format!(r#"{{{good},"delay":1,"headers":{{"host":"x"}}}}"#), 400, 1000, "headers"),
        (format!(r#"{{{good},"dleay":1}}"#), 400, 1000, "delay"),
        (format!(r#"{{{good},"delay":"5M"}}"#), 400, 1000, "units ms, s, m, h and d"),
        (format!(r#"{{{good},"delay":"1h30m"}}"#), 400, 1000, "units ms, s, m, h and d"),
        (
            format!(r#"{{{good},"delay":1800000}}"#),
            400,
            1000,
            "20 days 20 hours as seconds, or 30 minutes as milli",
        ),
        (format!(r#"{{{good},"delay":1,"sn":"x"}}"#), 400, 1000, "it belongs into content"),
        (format!(r#"{{{good},"delay":1,"url":"/x"}}"#), 400, 1000, "it belongs into content"),
        (
            r#"{"topic":"t","delay":1,"content":{"url":"/x"}}"#.into(),
            400,
            1000,
            "content.sn is missing",
        ),
        (r#"{"topic":"t","delay":1,"content":{"sn":"message.call"}}"#.into(), 400, 1000, "url"),
        (r#"{"topic":"t","delay":1,"content":{"sn":"nobody","url":"/x"}}"#.into(), 400, 1000, "sn"),
        (
            r#"{"topic":"t","delay":1,"content":{"sn":"message.call","url":"//evil"}}"#.into(),
            400,
            1000,
            "url",
        ),
        (
            r#"{"topic":"t","delay":1,"content":{"sn":"message.call","url":"x"}}"#.into(),
            400,
            1000,
            "url",
        ),
        (r#"{"topic":"t","delay":1,"mode":"push","content":{"a":1}}"#.into(), 400, 1000, "push"),
        (big, 413, 1013, "content"),
        (huge, 413, 1013, "larger than 1.0 MiB"),
    ];
    for (body, status, dm_error, says) in cases {
        refused(&delayd, "/delay/task/add", body, *status, *dm_error, says).await;
    }
    let pulled = delayd.post("/delay/task/pull", r#"{"topic":"t","count":10}"#).await.ok();
    assert_eq!(pulled.body["tasks"], json!([]));
    assert!(receiver.seen().is_empty());
}

fn now_seconds() -> i64 {
    crate::receiver::now_ms() / 1000
}

async fn the_rest_of_the_error_table(kept: Kept) {
    let delayd = kept.start(&["limits.topics=2".into()]).await;
    delayd.add(json!({"topic": "one", "delay": "1h", "content": {"a": 1}})).await;
    refused(&delayd, "/delay/task/get", r#"{"topic":"one","task_id":12345}"#, 404, 1004, "task")
        .await;
    refused(&delayd, "/delay/task/get", r#"{"topic":"none","task_id":12345}"#, 404, 1004, "").await;
    refused(&delayd, "/delay/task/get", r#"{"topic":"one","task_id":"x"}"#, 400, 1000, "task_id")
        .await;
    refused(&delayd, "/delay/task/nothing", "{}", 404, 1004, "no such route").await;
    refused(
        &delayd,
        "/delay/task/ack",
        r#"{"topic":"one","task_id":12345,"receipt":"abc"}"#,
        404,
        1004,
        "task",
    )
    .await;
    refused(&delayd, "/delay/task/pull", r#"{"topic":"one","count":0}"#, 400, 1000, "count").await;
    refused(&delayd, "/delay/task/pull", r#"{"topic":"one","count":257}"#, 400, 1000, "count")
        .await;
    refused(&delayd, "/delay/task/pull", r#"{"topic":"one","lease":"1ms"}"#, 400, 1000, "lease")
        .await;
    refused(&delayd, "/delay/task/pull", r#"{"topic":"one","wait":31}"#, 400, 1000, "wait").await;

    let client = client();
    let wrong_method = client.get(delayd.url("/delay/task/add")).send().await.unwrap();
    assert_eq!(wrong_method.status(), 405);
    assert!(wrong_method.text().await.unwrap().contains("1005"));
    let wrong_type = client
        .post(delayd.url("/delay/task/add"))
        .header("content-type", "text/xml")
        .body("<a/>")
        .send()
        .await
        .unwrap();
    assert_eq!(wrong_type.status(), 415);
    assert!(wrong_type.text().await.unwrap().contains("1015"));
    let keyed = client
        .post(delayd.url("/delay/task/add"))
        .header("idempotency-key", "k")
        .body(r#"{"topic":"one","delay":"1h","content":{}}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(keyed.status(), 200, "the header is honoured");
    let batch = client.post(delayd.url("/delay/task/add_batch")).header("idempotency-key", "k");
    let batch = batch
        .body(r#"{"tasks":[{"topic":"one","delay":"1h","content":{}}]}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(batch.status(), 400, "a header without effect must be refused");
    let form = client
        .post(delayd.url("/delay/task/pull"))
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-request-id", "mine-1")
        .body(r#"{"topic":"one"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (form.status().as_u16(), &form.headers()["x-request-id"]),
        (200, &"mine-1".parse().unwrap())
    );

    delayd.add(json!({"topic": "two", "delay": "1h", "content": {"a": 1}})).await;
    let third =
        delayd.post("/delay/task/add", r#"{"topic":"three","delay":"1h","content":{}}"#).await;
    assert_eq!((third.status, &third.body["dm_error"]), (429, &json!(1029)), "{third:?}");
    assert!(third.headers.contains_key("retry-after"));

    // A stale receipt is answered with the task's state. A repeated ack succeeds.
    delayd.add(json!({"topic": "one", "delay": 0, "content": {"b": 1}})).await;
    let pulled = delayd.post("/delay/task/pull", r#"{"topic":"one","lease":"30s"}"#).await.ok();
    let (id, receipt) = (pulled.id(), pulled.body["receipt"].as_str().unwrap());
    let ack =
        |receipt: &str| json!({"topic": "one", "task_id": id, "receipt": receipt}).to_string();
    let stale = delayd.post("/delay/task/ack", ack("not-it")).await;
    assert_eq!(
        (stale.status, &stale.body["dm_error"], &stale.body["state"]),
        (409, &json!(1009), &json!("leased"))
    );
    delayd.post("/delay/task/ack", ack(receipt)).await.ok();
    delayd.post("/delay/task/ack", ack(receipt)).await.ok();
    let over = delayd.post("/delay/task/nack", ack(receipt)).await;
    assert_eq!((over.status, &over.body["state"]), (409, &json!("delivered")));
}

async fn one_bad_task_does_not_spoil_its_batch(kept: Kept) {
    let delayd = kept.start(&["limits.batch=3".into()]).await;
    let body = concat!(
        r#"{"tasks":[{"topic":"t","delay":0,"content":{"n":1}},"#,
        r#"{"topic":"t","content":{}},"#,
        r#"{"topic":"t","delay":0,"content":{"n":2}}]}"#,
    );
    let answer = delayd.post("/delay/task/add_batch", body).await.ok();
    assert_eq!(answer.body["failed"], 1);
    let results = answer.body["results"].as_array().unwrap();
    assert_eq!(
        [&results[0]["dm_error"], &results[1]["dm_error"], &results[2]["dm_error"]],
        [&json!(0), &json!(1000), &json!(0)]
    );
    let pulled = delayd.post("/delay/task/pull", r#"{"topic":"t","count":10}"#).await.ok();
    assert_eq!(pulled.body["tasks"].as_array().unwrap().len(), 2);
    let many =
        format!(r#"{{"tasks":[{}]}}"#, [r#"{"topic":"t","delay":0,"content":{}}"#; 4].join(","));
    refused(&delayd, "/delay/task/add_batch", &many, 400, 1000, "3").await;
}
