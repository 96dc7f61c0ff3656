//! The client commands against the real service, and what the service writes to its log.

use serde_json::{Value, json};

use crate::program::{command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, Program, on_both_stores};

on_both_stores!(the_client_commands_do_what_the_calls_do);

/// Runs a client command against the service; answers its exit code and what it printed on both channels.
async fn client(delayd: &Program, words: &[&str]) -> (i32, String) {
    let mut client = command(&[]);
    client.args(words).arg("--server").arg(delayd.url(""));
    let (code, output, error) = run(client).await;
    (code, output + &error)
}

async fn the_client_commands_do_what_the_calls_do(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let content = r#"{"sn":"message.call","url":"/cancel"}"#;
    let (code, added) = client(&delayd, &["add", "orders", "--in", "10ms", content, "--json"]).await;
    assert_eq!(code, 0, "{added}");
    let id = serde_json::from_str::<Value>(&added).unwrap()["task_id"].as_u64().unwrap();
    receiver.wait_for(1).await;
    delayd.wait_for_state("orders", id, "delivered").await;
    let (code, shown) = client(&delayd, &["get", "orders", &id.to_string()]).await;
    assert!(code == 0 && shown.contains("delivered") && shown.contains("200 OK"), "{shown}");

    let (code, _) = client(&delayd, &["add", "reviews", "--in", "0s", r#"{"review":7}"#]).await;
    assert_eq!(code, 0);
    let (code, pulled) = client(&delayd, &["pull", "reviews"]).await;
    assert!(code == 0 && pulled.contains("review") && pulled.contains('7'), "{pulled}");

    let (code, refused) = client(&delayd, &["add", "t", "--in", "1s", r#"{"sn":"nobody","url":"/"}"#]).await;
    assert!(code == 1 && refused.contains("\"nobody\" is not a service"), "{refused}");
    let (code, healthy) = client(&delayd, &["healthcheck"]).await;
    assert_eq!(code, 0, "{healthy}");
    let (code, usage) = client(&delayd, &["add", "t"]).await;
    assert_eq!(code, 2, "{usage}");
}

/// A call that went over a hundred thousand and meant none of them used to end the command.
#[tokio::test]
async fn a_replay_goes_on_behind_the_cursor_until_there_is_no_more() {
    let service = Receiver::answering(|seen| {
        Answer::With(
            200,
            vec![],
            match seen.path.as_str() {
                "/delay/topic/get" => r#"{"dm_error":0,"error_msg":"","counts":{"dead":100001}}"#,
                _ if seen.body.contains("cursor") => {
                    r#"{"dm_error":0,"error_msg":"","count":1,"seen":1,"more":false,"cursor":null}"#
                }
                _ => r#"{"dm_error":0,"error_msg":"","count":0,"seen":100000,"more":true,"cursor":"0.5.6.7"}"#,
            },
        )
    })
    .await;
    for (verb, flag, says) in [
        ("replay", "--reason=410 Gone", "1 task replayed"),
        ("purge", "--reason=410 Gone", "1 task thrown away"),
        ("purge", "--dry-run", "1 task would be thrown away"),
    ] {
        let before = service.seen().len();
        let mut client = command(&[]);
        client.args(["dead", verb, "orders", "--all", flag, "--server"]).arg(service.endpoint());
        let (code, output, error) = run(client).await;
        assert_eq!((code, output.trim_end()), (0, says), "{error}");
        let seen = service.seen().split_off(before);
        let bodies: Vec<Value> = seen.iter().map(|seen| serde_json::from_str(&seen.body).unwrap()).collect();
        assert_eq!((bodies.len(), &bodies[2]["cursor"]), (3, &json!("0.5.6.7")), "{bodies:?}");
        assert_eq!(bodies[1]["reason"], bodies[2]["reason"]);
    }
}

#[tokio::test]
async fn nobody_there_is_an_error_and_not_a_hang() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for words in [&["get", "t", "1"][..], &["healthcheck"], &["pull", "t"], &["stats"], &["export"]] {
        let mut client = command(&[]);
        client.args(words).arg("--server").arg(format!("http://{closed}"));
        let (code, output, error) = run(client).await;
        assert!(code == 1 && (output.clone() + &error).lines().count() == 1, "{words:?}: {output}{error}");
    }
}

#[tokio::test]
async fn check_says_what_is_configured_and_whether_the_store_answers() {
    let folder = crate::program::folder();
    let path = folder.path().join("delayd.db");
    let mut check = command(&[format!("store.embedded.path={path:?}")]);
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert!(code == 0 && output.contains("fsynced") && output.contains("delayd.db"), "{output}{error}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut check = command(&["store.kind=\"redis\"".into(), format!("store.redis.urls=[\"redis://{closed}/0\"]")]);
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert_eq!(code, 1, "{output}{error}");
}

/// What callers send is theirs: neither their content, nor a header, nor a receipt is ever written to the log, however much it tells.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_json_if_asked_for_and_never_holds_a_payload() {
    let kept = Kept::embedded();
    let receiver = Receiver::answering(|_| Answer::With(500, vec![], "answer-payload")).await;
    let delayd = kept
        .start(&[service("message.call", &receiver), "log.format=\"json\"".into(), "log.level=\"debug\"".into()])
        .await;
    let content = json!({"sn": "message.call", "url": "/path-payload", "data": "content-payload"});
    let headers = json!({"authorization": "Bearer header-payload"});
    let task = json!({"topic": "t", "delay": 0, "max_attempts": 1, "headers": headers, "content": content});
    let id = delayd.add(task).await.id();
    delayd.wait_for_state("t", id, "dead").await;
    delayd.task("t", id).await;
    for headers in [json!({"x": "header-payload\n"}), json!({"host": "header-payload"}), json!("header-payload")] {
        let task = json!({"topic": "t", "delay": 0, "headers": headers, "content": {}}).to_string();
        let refused = delayd.post("/delay/task/add", task).await;
        assert!(refused.status == 400 && !refused.body.to_string().contains("payload"), "{refused:?}");
    }
    delayd
        .post("/delay/task/add", r#"{"topic":"t","delay":"refused-payload","content":{"x":"content-payload"}}"#)
        .await;
    delayd.add(json!({"topic": "p", "delay": 0, "content": {"data": "content-payload"}})).await;
    let pulled = delayd.post("/delay/task/pull", r#"{"topic":"p","lease":"30s"}"#).await.ok();
    let log = delayd.log();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert!(log.contains(&format!("Task {id} is dead after attempt 1 (500 Internal Server Error)")), "{log}");
    assert!(!log.contains("payload"), "{log}");
    assert!(!log.contains(pulled.body["receipt"].as_str().unwrap()), "{log}");
}
