//! The producers and consumers in `docs/samples` do what `docs/CLIENTS.md` says, although a front
//! between them and delayd refuses calls and loses answers.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::program::{Program, client, command, run};
use crate::{Kept, poll};

/// The status of a call whose answer never arrived.
pub const LOST: u16 = 0;

/// The calls of each path: their status, and when they arrived.
type Calls = Arc<Mutex<HashMap<String, Vec<(u16, Instant)>>>>;

/// A server in front of delayd that fails. Of each path it refuses the first call, and carries out
/// the second one without answering. Pulls and extensions never lose their answer.
pub struct Front {
    pub url: String,
    calls: Calls,
}

#[derive(Clone)]
struct Inner {
    to: String,
    client: reqwest::Client,
    calls: Calls,
    /// Whether it carries out all calls and loses all answers.
    loses_all: bool,
}

impl Front {
    pub async fn before(delayd: &Program) -> Self {
        Self::start(delayd, false).await
    }

    async fn that_loses_all_answers(delayd: &Program) -> Self {
        Self::start(delayd, true).await
    }

    async fn start(delayd: &Program, loses_all: bool) -> Self {
        let calls = Calls::default();
        let client = client();
        let inner = Inner { to: delayd.url(""), client, calls: calls.clone(), loses_all };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(carry).with_state(inner);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, calls }
    }

    /// The statuses of the calls of a path so far, and when they arrived.
    fn calls(&self, path: &str) -> Vec<(u16, Instant)> {
        self.calls.lock().unwrap().get(path).cloned().unwrap_or_default()
    }

    pub fn statuses(&self, path: &str) -> Vec<u16> {
        self.calls(path).into_iter().map(|(status, _)| status).collect()
    }
}

async fn carry(State(front): State<Inner>, uri: Uri, body: Bytes) -> Response {
    let arrived = Instant::now();
    let path = uri.path().to_owned();
    let nth = front.calls.lock().unwrap().entry(path.clone()).or_default().len();
    let note = |status: u16| {
        front.calls.lock().unwrap().get_mut(&path).unwrap().push((status, arrived));
    };
    let is_extension = path.ends_with("/extend");
    if nth == 0 && !is_extension && !front.loses_all {
        note(503);
        let answer = json!({"dm_error": 2003, "error_msg": "not confirmed"});
        return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], answer.to_string())
            .into_response();
    }
    let sent = front.client.post(format!("{}{path}", front.to)).body(body).send().await.unwrap();
    let (status, answer) = (sent.status(), sent.bytes().await.unwrap());
    if front.loses_all || nth == 1 && !is_extension && !path.ends_with("/pull") {
        note(LOST);
        let broken = [Ok(answer.slice(..1)), Err(std::io::Error::other("lost"))];
        return Body::from_stream(futures_util::stream::iter(broken)).into_response();
    }
    note(status.as_u16());
    (status, answer).into_response()
}

/// Runs a sample with an interpreter. With "go", it is built first, because `go run` passes no
/// signals on.
pub fn interpreted(program: &str, file: &str) -> Command {
    let source = format!("{}/docs/samples/{file}", env!("CARGO_MANIFEST_DIR"));
    if program != "go" {
        let mut command = Command::new(program);
        command.arg(source);
        return command;
    }
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file).with_extension("");
    let mut build = Command::new(program);
    build.args(["build", "-o"]).arg(&built).arg(source);
    let status = build.status();
    let status = status.unwrap_or_else(|error| panic!("go: {error}; scripts/needs installs it"));
    assert!(status.success(), "{file}: {status}");
    Command::new(built)
}

pub fn sample(program: &str, file: &str, argument: &str, server: &str) -> Command {
    let mut command = interpreted(program, file);
    command
        .arg(argument)
        .env("DELAYD_SERVER", server)
        .env("no_proxy", "127.0.0.1")
        .stdin(Stdio::null());
    command
}

pub async fn check_producer(program: &str, file: &str) {
    let kept = Kept::embedded();
    let delayd = kept.start(&[]).await;
    let front = Front::before(&delayd).await;
    let (code, output, error) = run(sample(program, file, "42", &front.url)).await;
    assert_eq!(code, 0, "{file}: {error}");
    assert_eq!(front.statuses("/delay/task/add"), [503, LOST, 200], "{file}");
    let calls = front.calls("/delay/task/add");
    let waited = calls[1].1 - calls[0].1;
    assert!(waited >= Duration::from_secs(1), "{file} heeds no Retry-After: {waited:?}");

    let listed = json!({"topic": "order.cancel", "state": "scheduled"}).to_string();
    let listed = delayd.post("/delay/task/list", listed).await.ok().body;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1, "{file}: {listed}");
    assert_eq!(output, format!("task {} was known\n", listed["tasks"][0]["task_id"]), "{file}");

    // Sent again, what delayd refuses would be refused for ever.
    let other = json!({"topic": "order.cancel", "idempotency_key": "order-43", "delay": "1h",
        "mode": "pull", "content": {}});
    delayd.add(other).await;
    let (code, output, error) = run(sample(program, file, "43", &front.url)).await;
    assert_eq!((code, output.as_str()), (1, ""), "{file}");
    assert!(error.contains("idempotency_key: "), "{file}: {error}");
    assert_eq!(front.statuses("/delay/task/add"), [503, LOST, 200, 422], "{file}");
}

fn add_with_retry(server: &str, words: &[&str]) -> Command {
    let mut add = command(&[]);
    add.args(["add", "t", "--in", "1h", "--mode", "pull", "--server", server]).args(words);
    add.arg("{}");
    add
}

async fn count_of(delayd: &Program) -> usize {
    let listed = json!({"topic": "t", "state": "scheduled"}).to_string();
    let listed = delayd.post("/delay/task/list", listed).await.ok().body;
    listed["tasks"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_add_with_retry_adds_one_task_although_answers_are_lost() {
    let kept = Kept::embedded();
    let delayd = kept.start(&[]).await;
    let front = Front::before(&delayd).await;
    let (code, output, error) = run(add_with_retry(&front.url, &["--retry=20s", "--json"])).await;
    assert_eq!(code, 0, "{output}{error}");
    assert_eq!(front.statuses("/delay/task/add"), [503, LOST, 200], "{error}");
    let calls = front.calls("/delay/task/add");
    let waited = calls[1].1 - calls[0].1;
    assert!(waited >= Duration::from_secs(1), "it heeds no Retry-After: {waited:?}");
    let answer: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&answer["duplicate"], count_of(&delayd).await), (&json!(true), 1), "{output}");
    assert_eq!(error.matches("delayd: trying again: ").count(), 2, "{error}");

    // What is refused is not repeated.
    let (code, _, error) =
        run(add_with_retry(&front.url, &["--retry", "--max-attempts", "0"])).await;
    assert!(code == 1 && error.contains("max_attempts: "), "{error}");
    assert_eq!(front.statuses("/delay/task/add"), [503, LOST, 200, 400]);
}

/// The key is printed, so that the caller can go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_add_that_stays_unconfirmed_names_its_key() {
    let kept = Kept::embedded();
    let delayd = kept.start(&[]).await;
    // The first call is refused with a Retry-After of a second, which is too long.
    let front = Front::before(&delayd).await;
    let (code, output, error) = run(add_with_retry(&front.url, &["--retry=500ms"])).await;
    assert_eq!((code, output.as_str()), (1, ""), "{error}");
    assert_eq!(front.statuses("/delay/task/add"), [503], "it does not wait for as long as asked");
    // Each call is carried out, and its answer is lost.
    let front = Front::that_loses_all_answers(&delayd).await;
    let (code, output, error) = run(add_with_retry(&front.url, &["--retry=2s"])).await;
    assert_eq!((code, output.as_str()), (1, ""), "{error}");
    let statuses = front.statuses("/delay/task/add");
    assert!(statuses.len() > 1 && statuses.iter().all(|status| *status == LOST), "{statuses:?}");
    let key = error.split("--idempotency-key ").nth(1).expect(&error).split(':').next().unwrap();
    assert!(key.starts_with("delayd-add-"), "{error}");
    assert_eq!(count_of(&delayd).await, 1);
    let again = ["--retry", "--idempotency-key", key];
    let (code, output, error) = run(add_with_retry(&delayd.url(""), &again)).await;
    assert!(code == 0 && output.contains("was added before"), "{output}{error}");
    assert_eq!(count_of(&delayd).await, 1);
    // Nothing listens there.
    let (code, _, error) = run(add_with_retry("http://127.0.0.1:1", &["--retry=300ms"])).await;
    assert!(code == 1 && error.contains("--idempotency-key delayd-add-"), "{error}");
}

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub async fn check_consumer(program: &str, file: &str) {
    let kept = Kept::embedded();
    let delayd = kept.start(&[]).await;
    let front = Front::before(&delayd).await;
    let add = async |content: &str| {
        let task = json!({"topic": "t", "delay": 0, "mode": "pull", "max_attempts": 1,
            "content": content});
        delayd.add(task).await.id()
    };
    let good = add(r#"{"order":42}"#).await;
    let bad = add("no order").await;

    // The work is shorter than the lease, and longer than the time until it is extended.
    let mut consumer = sample(program, file, "t", &front.url);
    consumer.env("LEASE", "3").env("WORK", "2").stdout(Stdio::piped());
    let mut consumer = Running(consumer.spawn().unwrap());

    let task = delayd.wait_for_state("t", good, "delivered").await;
    assert_eq!((&task["attempts"], &task["last_outcome"]), (&json!(1), &json!("acked")), "{file}");
    let task = delayd.wait_for_state("t", bad, "dead").await;
    assert_eq!((&task["attempts"], &task["last_outcome"]), (&json!(1), &json!("nacked")), "{file}");
    for path in ["/delay/task/ack", "/delay/task/nack"] {
        let repeated = poll::until(async || front.statuses(path) == [503, LOST, 200]).await;
        assert!(repeated, "{file}: {path} {:?}", front.statuses(path));
    }
    let extensions = front.statuses("/delay/task/extend");
    assert!(!extensions.is_empty() && extensions.iter().all(|status| *status == 200), "{file}");

    let id = consumer.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let ended = poll::answer(async || consumer.0.try_wait().unwrap()).await;
    assert!(ended.is_some_and(|status| status.success()), "{file} ends with {ended:?}");
    let output = std::io::read_to_string(consumer.0.stdout.take().unwrap()).unwrap();
    assert_eq!(output, "did 42\n", "{file}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_producer_in_python_adds_one_task_although_answers_are_lost() {
    check_producer("python3", "producer.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_producer_in_node_adds_one_task_although_answers_are_lost() {
    check_producer("node", "producer.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_python_extends_settles_and_stops() {
    check_consumer("python3", "consumer.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_node_extends_settles_and_stops() {
    check_consumer("node", "consumer.mjs").await;
}
