//! Every page of the dashboard in a browser, in both themes: `tests/it/dashboard/*.mjs`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::dashboard::browse;
use crate::destinations::one_fails;
use crate::nginx::Nginx;
use crate::oauth::{Issuer, Mode, task, wait_for_reason};
use crate::program::{Program, client, command, folder, run, service};
use crate::receiver::{Answer, Receiver, now_ms};
use crate::{Kept, on_both_stores};

on_both_stores!(
    an_operator_sees_the_state_and_does_everything_once,
    an_operator_sets_changes_and_runs_schedules,
);

/// A content that would be markup, would break out of an attribute, or would look like another
/// text, if the page did not show it as text. Its number is larger than JavaScript can hold.
const CONTENT: &str = concat!(
    r#"{"sn":"message.call","url":"/hook", "big":12345678901234567890,"#,
    r#" "html":"<img src=x onerror=\"window.broken=1\"></pre><script>window.broken=1</script>","#,
    r#" "quotes":"\"'`&amp;","rtl":""#,
    "\u{202e}gnp.exe\u{2066}\u{200f}",
    r#""}"#,
);

async fn an_operator_sees_the_state_and_does_everything_once(kept: Kept) {
    let has_failed = AtomicBool::new(false);
    let receiver = Receiver::answering(move |call| match call.path.as_str() {
        "/dies" => Answer::Status(410),
        "/fails" => Answer::Status(500),
        "/breaks" if !has_failed.swap(true, Ordering::Relaxed) => Answer::Status(500),
        _ => Answer::Status(200),
    })
    .await;
    let mut sets = vec![service("message.call", &receiver), service("fragile", &receiver)];
    let breaker = ["consecutive_failures=1", "open='1h'", "open_max='1h'", "half_open_probes=1"];
    sets.extend(breaker.map(|set| format!("callback.breaker.{set}")));
    let delayd = kept.start_as_shipped(&sets).await;
    let task = json!({"topic": "orders", "delay": "1h", "content": {"a": 1}});
    delayd.add(task).await;
    browse("operator.mjs", json!({"url": delayd.url("/"), "content": CONTENT})).await;
    let seen = receiver.wait_for(1).await;
    assert_eq!(seen[0].body, CONTENT);
    browse("settings.mjs", json!({"url": delayd.url("/")})).await;
    browse("replays.mjs", json!({"url": delayd.url("/")})).await;
    browse("details.mjs", json!({"url": delayd.url("/")})).await;
    browse("times.mjs", json!({"url": delayd.url("/")})).await;
}

async fn an_operator_sets_changes_and_runs_schedules(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start_as_shipped(&[service("message.call", &receiver)]).await;
    delayd.add(json!({"topic": "bill", "delay": "1h", "content": {}})).await;
    browse("schedules.mjs", json!({"url": delayd.url("/"), "content": CONTENT})).await;
    let seen = receiver.seen();
    let runs = seen.iter().filter(|call| call.path == "/hook").map(|call| &call.body);
    assert_eq!(runs.collect::<Vec<_>>(), [CONTENT]);
    assert!(seen.iter().any(|call| call.path == "/tick"));
}

/// A schedule that is not due during a test.
fn daily() -> Value {
    json!({"topic": "orders", "schedule": "daily", "cron": "0 9 1 1 *", "zone": "Asia/Shanghai",
        "content": {"sn": "message.call", "url": "/daily"}, "max_attempts": 3})
}

fn token(name: &str, scope: &str) -> String {
    let hash = delayd::model::token::TokenHash::of(name).to_hex();
    let name = json!(name);
    format!("{{name={name}, token_sha256='{hash}', scopes=['{scope}'], topics=['*']}}")
}

async fn post_as(delayd: &Program, token: &str, path: &str, body: &Value) -> Value {
    let post = client().post(delayd.url(path)).bearer_auth(token);
    let answer: Value = post.body(body.to_string()).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["dm_error"], 0, "{answer}");
    answer
}

/// A dead task, as another store would have moved it here.
fn dead_task(topic: &str, id: u64, outcome: &str, content: &str) -> Value {
    let now = now_ms();
    json!({
        "topic": topic, "task_id": id, "mode": "pull", "state": "dead", "content": content,
        "created_ms": now - 90_000, "due_ms": now - 60_000, "finished_ms": now - 1_000,
        "attempts": 1, "last_outcome": outcome,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_and_decides_what_is_shown_and_done() {
    let tokens = [("viewer", "view"), ("adder", "produce"), ("mover", "admin")];
    let tokens = tokens.map(|(name, scope)| token(name, scope)).join(", ");
    let receiver = Receiver::start().await;
    let sets = [format!("http.auth.tokens=[{tokens}]"), service("message.call", &receiver)];
    let delayd = Kept::embedded().start_as_shipped(&sets).await;
    let records = json!({"records": [dead_task("orders", 7, "nacked", "{}")]});
    post_as(&delayd, "mover", "/delay/task/adopt", &records).await;
    post_as(&delayd, "mover", "/delay/schedule/set", &daily()).await;
    browse("tokens.mjs", json!({"url": delayd.url("/"), "task": 7})).await;
    let shown = post_as(&delayd, "viewer", "/delay/topic/get", &json!({"topic": "orders"})).await;
    assert_eq!((&shown["counts"]["dead"], &shown["paused"]), (&json!(1), &json!(false)));
}

/// Texts that would be markup, leave an attribute, run, or change their direction.
#[tokio::test(flavor = "multi_thread")]
async fn texts_of_others_are_shown_as_text() {
    const ODD: &str = concat!(
        r#""'><img src=x onerror="window.broken=1;alert(1)"></textarea></pre>"#,
        r#"<script>window.broken=1</script><b onclick=alert(1)>&lt;&amp;{{1}}${1}"#,
        "\u{202e}gnp\u{2066}\u{200f}\u{2028}",
    );
    const NAME: &str = r#"<img/src=x/onerror=alert(1)>"'&amp;"#;
    const BYTES: usize = 256 << 10;
    let sets = [format!("http.auth.tokens=[{}]", token(NAME, "admin"))];
    let delayd = Kept::embedded().start_as_shipped(&sets).await;
    let odd = json!(ODD).to_string();
    let marks = "\u{202e}\u{2067}".repeat(500);
    let start = format!(r#"{{"odd":{odd},"marks":"{marks}","long":""#);
    let piece = "<i>\u{202e}'&quot;</i>";
    let mut content = start + &piece.repeat(BYTES / piece.len() / 2);
    content.extend(std::iter::repeat_n('x', BYTES - content.len() - 2));
    content.push_str(r#""}"#);
    assert_eq!(content.len(), BYTES);
    let mut task = dead_task("texts:odd", 7, ODD, &content);
    task["key"] = json!(ODD);
    task["log"] = json!([{
        "attempt": 1, "started_ms": now_ms(), "duration_ms": 5, "outcome": ODD, "answer": ODD,
    }]);
    post_as(&delayd, NAME, "/delay/task/adopt", &json!({"records": [task]})).await;
    let input = json!({
        "url": delayd.url("/"), "token": NAME, "tokenName": NAME, "topic": "texts:odd", "task": 7,
        "odd": ODD, "content": content,
    });
    browse("texts.mjs", input).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_said_in_sentences() {
    let delayd = Kept::embedded().start_as_shipped(&[]).await;
    delayd.add(json!({"topic": "orders", "delay": "1h", "content": {}})).await;
    browse("failures.mjs", json!({"url": delayd.url("/"), "pid": delayd.pid()})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_topics_are_paged() {
    let delayd = Kept::embedded().start_as_shipped(&[]).await;
    let task = |at: usize| json!({"topic": format!("topic-{at}"), "delay": "1h", "content": {}});
    let tasks: Vec<Value> = (0..10_000).map(task).collect();
    delayd.add_all(&tasks).await;
    let dead = [("topic-9999", 7), ("topic-9999", 8), ("topic-5", 9)];
    let records = dead.map(|(topic, id)| dead_task(topic, id, "nacked", "{}"));
    let records = json!({"records": records});
    delayd.post("/delay/task/adopt", &records.to_string()).await.ok();
    browse("many.mjs", json!({"url": delayd.url("/"), "dead": "topic-9999"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_many_tasks_says_what_it_selects() {
    let receiver = Receiver::start().await;
    let delayd = Kept::embedded().start_as_shipped(&[service("message.call", &receiver)]).await;
    let content = json!({"sn": "message.call", "url": "/"});
    let task = json!({"topic": "orders", "delay": "1h", "content": content});
    delayd.add_all(&[task.clone(), task.clone(), task]).await;
    browse("selections.mjs", json!({"url": delayd.url("/"), "now": now_ms() / 1000})).await;
}

/// The proxy rewrites `Host`, buffers, and serves the page below a prefix. The name of the host is
/// none of this machine, so the browser finds the address unsafe.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_behind_a_proxy_and_in_many_tabs() {
    const HOST: &str = "delay.example";
    let place = folder();
    let file = place.path().join("delayd.toml");
    let configure = |origins: &str| {
        std::fs::write(&file, format!("[http]\npublic_origins = [{origins}]\n")).unwrap();
    };
    configure("");
    let kept = Kept::embedded();
    let delayd = Program::start_from(&kept.store, &file).await;
    let nginx = Nginx::before(&delayd, "/ops/delay").await;
    let origin = format!("http://{HOST}:{}", nginx.port);
    configure(&format!("{origin:?}"));
    delayd.wait_for_log("changed: http.public_origins").await;
    let task = json!({"topic": "orders", "delay": "1h", "content": {"a": 1}});
    let task = delayd.add(task).await.id();
    let url = format!("{origin}/ops/delay/");
    browse("proxy.mjs", json!({"url": url, "host": HOST, "task": task})).await;
}

/// The pictures of the documentation. `WRITE_DOCS=1` lets the test take them again.
const PICTURES: [&str; 5] = ["overview", "task", "dead-letters", "overview-narrow", "task-narrow"];

/// The most bytes of a picture.
const PICTURE: u64 = 150 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_accessible_and_has_its_picture_in_the_documentation() {
    let receiver = Receiver::answering(|call| match call.path.as_str() {
        "/orders/refund" => Answer::With(500, vec![], r#"{"error": "no such order"}"#),
        "/orders/notify" => Answer::Status(410),
        _ => Answer::Status(200),
    })
    .await;
    let delayd = Kept::embedded().start_as_shipped(&[service("message.call", &receiver)]).await;
    let call = |path: &str, delay: u64| {
        json!({"topic": "orders", "delay": format!("{delay}ms"), "max_attempts": 3,
            "backoff": {"kind": "fixed", "every": "1ms"},
            "content": {"sn": "message.call", "url": path, "order": 40_000 + delay}})
    };
    let refused: Vec<Value> = (0..5).map(|at| call("/orders/notify", at)).collect();
    delayd.add_all(&refused).await;
    delayd.post("/delay/topic/set", r#"{"topic":"paused","paused":true,"rate":"9/s"}"#).await.ok();
    delayd.post("/delay/schedule/set", daily().to_string()).await.ok();
    let waiting = delayd.add(call("/orders/remind", 3_600_000)).await.id();
    let task = delayd.add(call("/orders/refund", 0)).await.id();
    delayd.wait_for_state("orders", task, "dead").await;
    receiver.wait_for(5 + 3).await;
    let is_drawn = std::env::var_os("WRITE_DOCS").is_some();
    let mut seconds = 0_usize..;
    // A second of traffic, with rates that rise and fall, so that the graphs have a shape.
    let mut traffic = async || {
        let second = seconds.next().expect("the range has no end");
        let size = 6 + 3 * ((second % 23) / 4) + 2 * (second % 7);
        let before = receiver.seen().len();
        let tasks: Vec<Value> = (0..size).map(|_| call("/orders/remind", 1000)).collect();
        delayd.add_all(&tasks).await;
        receiver.wait_for(before + size).await;
    };
    for _ in 0..if is_drawn { 60 } else { 0 } {
        traffic().await;
    }
    let pictures = is_drawn.then_some(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/dashboard"));
    let url = delayd.url("/");
    let input = json!({"url": url, "task": task, "waiting": waiting, "pictures": pictures});
    let browser = browse("looks.mjs", input);
    if is_drawn {
        let goes_on = async {
            loop {
                traffic().await;
            }
        };
        tokio::select! {
            () = browser => {}
            () = goes_on => {}
        }
    } else {
        browser.await;
    }

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/DASHBOARD.md");
    let page = std::fs::read_to_string(page).unwrap();
    for name in PICTURES {
        let file = format!("dashboard/{name}.png");
        assert!(page.contains(&format!("({file})")), "the page does not show {file}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(&file);
        let size = path.metadata().unwrap_or_else(|_| panic!("WRITE_DOCS=1 makes {file}")).len();
        assert!(size <= PICTURE, "{file} has {size} bytes");
    }
}

/// The overview and the pages of destinations show that there is no token, and why.
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_that_there_is_no_token() {
    let issuer = Issuer::start(Duration::from_secs(3_600), Mode::Down).await;
    let receiver = issuer.receiver().await;
    let delayd = Kept::embedded().start_as_shipped(&issuer.sets(&receiver)).await;
    let id = delayd.add(task("shop", "0s")).await.id();
    let why = "the token endpoint answers 503 Service Unavailable (server_error)";
    wait_for_reason(&delayd, why).await;
    browse("access_tokens.mjs", json!({"url": delayd.url("/"), "why": why})).await;
    issuer.turn(Mode::Up);
    delayd.wait_for_state("t", id, "delivered").await;
    browse("access_tokens.mjs", json!({"url": delayd.url("/"), "why": null})).await;
}

/// Behind a load balancer, the pages changed with the instance that answered.
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_the_breaker_that_is_open_on_another_instance() {
    let kept = Kept::redis();
    let (_receiver, calls, looks) = one_fails(&kept).await;
    let id = calls.post("/delay/whoami", "{}").await.ok().body["instance"].clone();
    let task = json!({"topic": "t", "delay": "1h", "content": {"sn": "message.call", "url": "/"}});
    looks.add(task).await.ok();
    browse("instances.mjs", json!({"url": looks.url("/"), "id": id})).await;

    let mut client = command(&[]);
    client.args(["destination", "probe", "message.call", "--server", &looks.url("")]);
    let (code, shown, error) = run(client).await;
    assert_eq!(code, 0, "{error}");
    assert!(shown.contains("all instances have heard of the probe:"), "{shown}");
    assert!(shown.contains(id.as_str().unwrap()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_names_what_delays_tasks_and_leads_to_them() {
    let receiver = Receiver::answering(|call| match call.path.as_str() {
        "/fails" => Answer::Status(500),
        _ => Answer::Never,
    })
    .await;
    let sets = [service("slow", &receiver), "services.slow.concurrency=1".into()];
    let delayd = Kept::embedded().start_as_shipped(&sets).await;
    let call = |url: &str| {
        json!({"topic": "called", "delay": 0, "max_attempts": 1,
            "content": {"sn": "slow", "url": url}})
    };
    delayd.add(call("/fails")).await.ok();
    receiver.wait_for(1).await;
    delayd.add_all(&[call("/hangs"), call("/hangs")]).await;
    let task = json!({"topic": "pulled", "mode": "pull", "delay": 0, "content": {}});
    let task = delayd.add(task).await.id();
    let pull = json!({"topic": "pulled", "lease": "1s"}).to_string();
    assert_eq!(delayd.post("/delay/task/pull", pull).await.ok().body["task_id"], task);
    browse("causes.mjs", json!({"url": delayd.url("/"), "task": task})).await;
}
