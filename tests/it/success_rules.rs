//! Receivers that say success or failure in their own way.

use serde_json::{Value, json};

use crate::metrics::value;
use crate::program::{Program, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores};

on_both_stores!(a_rule_ends_what_an_ambiguous_answer_loses);

const JSON: (&str, &str) = ("content-type", "application/json");
const AMBIGUOUS: &str = "delayd_ambiguous_success_total{service=\"message.call\"}";

async fn add(delayd: &Program, url: &str) -> u64 {
    let content = json!({"sn": "message.call", "url": url});
    delayd.add(json!({"topic": "t", "delay": 0, "max_attempts": 1, "content": content})).await.id()
}

async fn destination(delayd: &Program) -> Value {
    delayd.post("/delay/destination/get", r#"{"sn":"message.call"}"#).await.ok().body
}

/// Such a receiver counted as successful, and its tasks were lost without a trace.
async fn a_rule_ends_what_an_ambiguous_answer_loses(kept: Kept) {
    let receiver = Receiver::answering(|seen| match seen.path.as_str() {
        "/fine" => Answer::With(200, vec![JSON], r#"{"code":0.0,"msg":"done"}"#),
        "/ours" => Answer::With(200, vec![JSON], r#"{"dm_error":0,"code":500}"#),
        "/gone" => Answer::With(404, vec![JSON], r#"{"code":"0"}"#),
        "/html" => Answer::With(200, vec![("content-type", "text/html")], "<html></html>"),
        _ => Answer::With(200, vec![JSON], r#"{"code":500,"msg":"no"}"#),
    })
    .await;
    let plain = service("message.call", &receiver);

    let delayd = kept.start(std::slice::from_ref(&plain)).await;
    assert_eq!(value(&delayd, AMBIGUOUS).await, 0.0);
    for url in ["/fine", "/ours", "/no", "/no"] {
        let id = add(&delayd, url).await;
        delayd.wait_for_state("t", id, "delivered").await;
    }
    assert_eq!(value(&delayd, AMBIGUOUS).await, 2.0);
    delayd.wait_for_log("looks like a").await;
    let log = delayd.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("looks like a")).collect();
    let [warning] = warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("WARN") && warning.contains("message.call"), "{warning}");
    assert!(warning.contains("pointer = \"/code\"") && !warning.contains("\"no\""), "{warning}");
    assert_eq!(destination(&delayd).await["success"], "dm_error");
    drop(delayd);

    let rule = "{ pointer = \"/code\", equals = [0, \"0\"], statuses = [200, 404] }";
    let delayd = kept.start(&[plain, format!("services.\"message.call\".success={rule}")]).await;
    for (url, state, outcome) in [
        ("/fine", "delivered", "200 OK"),
        ("/gone", "delivered", "404 Not Found"),
        ("/no", "dead", "200 OK, /code is 500"),
        ("/html", "dead", "200 OK, but the answer is not JSON"),
    ] {
        let id = add(&delayd, url).await;
        let task = delayd.wait_for_state("t", id, state).await;
        assert_eq!(task["last_outcome"], outcome, "{task}");
    }
    // Mismatches are the tasks' failures: more of them in a row than open a breaker.
    for _ in 0..8 {
        let id = add(&delayd, "/no").await;
        delayd.wait_for_state("t", id, "dead").await;
    }
    let shown = destination(&delayd).await;
    assert_eq!((&shown["breaker"], &shown["success"]), (&json!("closed"), &json!(rule)), "{shown}");
    assert_eq!(value(&delayd, AMBIGUOUS).await, 0.0);
    assert!(!delayd.log().contains("looks like a"), "{}", delayd.log());
}
