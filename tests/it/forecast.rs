//! The forecast over all topics, by service.

use serde_json::{Value, json};

use crate::program::{Program, client, command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    the_forecast_counts_all_topics_by_service_and_due_time,
    calls_that_fail_are_no_capacity,
);

const FORECAST: &str = "/delay/forecast";

/// A token whose text is its name.
fn token(name: &str, scopes: &str, topics: &str) -> String {
    let hash = delayd::model::token::TokenHash::of(name).to_hex();
    format!("{{name='{name}', token_sha256='{hash}', scopes=[{scopes}], topics=['{topics}']}}")
}

/// Status and answer of a call with this token.
async fn ask(delayd: &Program, token: &str, path: &str, body: Value) -> (u16, Value) {
    let post = client().post(delayd.url(path)).bearer_auth(token);
    let answer = post.body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn read(delayd: &Program, body: Value) -> Value {
    let (status, answer) = ask(delayd, "view", FORECAST, body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The named service of an answer.
fn of<'a>(answer: &'a Value, sn: &str) -> &'a Value {
    let mut services = answer["services"].as_array().unwrap().iter();
    services.find(|service| service["sn"] == sn).unwrap_or_else(|| panic!("{sn}: {answer}"))
}

async fn the_forecast_counts_all_topics_by_service_and_due_time(kept: Kept) {
    let tokens = [
        token("all", "'admin', 'produce'", "*"),
        token("view", "'view'", "*"),
        token("part", "'admin'", "orders*"),
        token("add", "'produce'", "*"),
    ];
    let delayd = kept
        .start(&[
            format!("http.auth.tokens=[{}]", tokens.join(", ")),
            "services.mail.endpoints=[\"http://127.0.0.1:1\"]".into(),
            "services.mail.rate=\"40/s\"".into(),
            "services.held.endpoints=[\"http://127.0.0.1:1\"]".into(),
        ])
        .await;
    assert_eq!(ask(&delayd, "all", "/delay/destination/hold", json!({"sn": "held"})).await.0, 200);
    let task = |topic: &str, delay: &str, sn: Option<&str>| {
        let content = sn.map_or(json!({}), |sn| json!({"sn": sn, "url": "/"}));
        json!({"topic": topic, "delay": delay, "content": content})
    };
    let tasks = [
        task("orders", "12m", Some("mail")),
        task("orders", "13m", Some("mail")),
        task("orders", "3h", Some("mail")),
        task("bills", "13m", Some("mail")),
        task("bills", "10d", Some("mail")),
        task("bills", "0s", Some("held")),
        task("pulled", "0s", None),
        task("pulled", "58m", None),
    ];
    let (status, added) =
        ask(&delayd, "all", "/delay/task/add_batch", json!({"tasks": tasks})).await;
    assert_eq!((status, &added["failed"]), (200, &json!(0)), "{added}");

    let hour = read(&delayd, json!({"span": "hour"})).await;
    assert_eq!((&hour["bucket_ms"], &hour["complete"]), (&json!(300_000), &json!(true)), "{hour}");
    assert_eq!((&hour["topics"], &hour["topics_seen"]), (&json!(3), &json!(3)), "{hour}");
    let total = &hour["total"];
    assert_eq!((&total["overdue"], &total["rest"]), (&json!(2), &json!(2)), "{hour}");
    let buckets: Vec<u64> =
        total["buckets"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(buckets, [0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1], "{hour}");
    let pulled = of(&hour, "@pull");
    assert_eq!(pulled["figures"]["overdue"], 1, "{hour}");
    assert_eq!(pulled["figures"]["calls_per_second"], Value::Null, "{hour}");

    // The heartbeat of the instance says that it makes callbacks.
    let rated = async || {
        let hour = read(&delayd, json!({"span": "hour"})).await;
        (hour["workers"] == 1).then_some(hour)
    };
    let hour = poll::answer(rated).await.expect("the instance has workers");
    let (mail, held) = (of(&hour, "mail"), of(&hour, "held"));
    assert_eq!((&mail["configured"], &mail["held"]), (&json!(true), &json!(false)), "{hour}");
    assert_eq!(mail["figures"]["calls_per_second"], 40.0, "{hour}");
    assert_eq!(mail["figures"]["drain_ms"], 0, "{hour}");
    assert_eq!((&held["held"], &held["figures"]["overdue"]), (&json!(true), &json!(1)), "{hour}");
    assert_eq!(held["figures"]["calls_per_second"], 0.0, "{hour}");
    assert_eq!(held["figures"]["drain_ms"], Value::Null, "{hour}");
    assert_eq!(hour["total"]["calls_per_second"], 40.0, "{hour}");
    assert_eq!(hour["total"]["drain_ms"], Value::Null, "{hour}");

    let orders = read(&delayd, json!({"match": "ORD*"})).await;
    assert_eq!((&orders["span"], &orders["topics"]), (&json!("day"), &json!(1)), "{orders}");
    let mail = &of(&orders, "mail")["figures"];
    assert_eq!((&mail["buckets"][0], &mail["buckets"][2]), (&json!(2), &json!(1)), "{orders}");
    assert_eq!(orders["services"].as_array().unwrap().len(), 1, "{orders}");
    let week = read(&delayd, json!({"span": "week"})).await;
    assert_eq!((&week["bucket_ms"], &week["total"]["rest"]), (&json!(21_600_000), &json!(1)));

    for token in ["part", "add"] {
        let (status, refused) = ask(&delayd, token, FORECAST, json!({})).await;
        assert_eq!((status, &refused["dm_error"]), (403, &json!(1003)), "{token}: {refused}");
    }
    let (status, wrong) = ask(&delayd, "view", FORECAST, json!({"span": "year"})).await;
    let said = wrong["error_msg"].as_str().unwrap();
    assert!(status == 400 && said.contains("hour") && said.contains("week"), "{wrong}");

    let mut client = command(&[]);
    client.env("DELAYD_TOKEN", "view").args(["forecast", "--span", "hour", "--match", "bills"]);
    client.args(["--server", &delayd.url("")]);
    let (code, table, error) = run(client).await;
    assert_eq!(code, 0, "{error}");
    assert!(table.contains("held (held)") && table.contains("UNTIL"), "{table}");
    assert!(!table.contains("@pull"), "{table}");
}

/// Calls that failed fast were the measure, also while the breaker was open: 300 overdue tasks
/// would be called within a second.
async fn calls_that_fail_are_no_capacity(kept: Kept) {
    let receiver = Receiver::answering(|seen| match seen.path.as_str() {
        "/down" => Answer::Status(503),
        "/refused" => Answer::Status(404),
        _ => Answer::Status(200),
    })
    .await;
    let names = ["down", "refused", "fine"];
    let delayd = kept.start(&names.map(|sn| service(sn, &receiver))).await;
    let task = |sn: &str, delay: &str| {
        let content = json!({"sn": sn, "url": format!("/{sn}")});
        json!({"topic": sn, "delay": delay, "content": content})
    };
    delayd.add_all(&vec![task("down", "0s"); 300]).await;
    for sn in ["refused", "fine"] {
        delayd.add_all(&[task(sn, "0s"), task(sn, "10m")]).await;
    }
    let post = async |path: &str, body: Value| delayd.post(path, body.to_string()).await.ok().body;
    let known = async || {
        let listed = post("/delay/destination/list", json!({})).await;
        let called = listed["destinations"].as_array().unwrap().iter();
        let is_known = |one: &Value| one["breaker"] != "closed" || one["recent"]["calls"] != 0;
        let all = called.filter(|one| one["sn"] != "down" || one["breaker"] != "closed");
        let answer = post(FORECAST, json!({})).await;
        (all.filter(|one| is_known(one)).count() == 3 && answer["workers"] == 1).then_some(answer)
    };
    let answer = poll::answer(known).await.expect("all services were called");
    let figures = |sn: &str| of(&answer, sn)["figures"].clone();
    assert_eq!(figures("down")["calls_per_second"], 0.0, "{answer}");
    assert_eq!(figures("down")["drain_ms"], Value::Null, "{answer}");
    assert_eq!(figures("refused")["calls_per_second"], Value::Null, "{answer}");
    assert!(figures("fine")["calls_per_second"].as_f64().unwrap() > 0.0, "{answer}");
    assert_eq!(answer["total"]["drain_ms"], Value::Null, "{answer}");
}

/// The forecast of a service was 0 as soon as one of several breakers was open.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_breaker_is_open_is_no_capacity() {
    let kept = Kept::redis();
    let fails = Receiver::answering(|_| Answer::Status(500)).await;
    let well = Receiver::start().await;
    let sets = |receiver: &Receiver| {
        let breaker = ["open='1h'", "open_max='1h'"].map(|set| format!("callback.breaker.{set}"));
        let mut sets = vec![service("s", receiver), "services.s.rate='100/s'".into()];
        sets.extend(breaker);
        sets
    };
    let one = kept.start(&sets(&fails)).await;
    let task =
        |delay: &str| json!({"topic": "t", "delay": delay, "content": {"sn": "s", "url": "/"}});
    one.add_all(&[vec![task("0s"); 20], vec![task("1h")]].concat()).await;
    let shown = async || {
        let answer = one.post(FORECAST, "{}").await.ok().body;
        let service = answer["services"][0].clone();
        (answer["workers"].clone(), service["breaker"].clone(), service["figures"].clone())
    };
    let is = async |workers: u64, per_second: f64| {
        let is = async || {
            let (seen, breaker, figures) = shown().await;
            breaker == "open" && seen == workers && figures["calls_per_second"] == per_second
        };
        assert!(poll::until(is).await, "{workers}, {per_second}: {:?}", shown().await);
    };
    is(1, 0.0).await;
    // Nobody has succeeded here, so the rate of the other is what is known.
    let _two = kept.start(&sets(&well)).await;
    is(2, 100.0).await;
}
