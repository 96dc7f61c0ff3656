//! Services with OAuth: tokens that expire, are revoked, or cannot be had.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::certificates::replace;
use crate::metrics::value;
use crate::program::{Program, command, embedded, folder, run, service};
use crate::receiver::{Answer, Receiver, Seen};
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    tokens_that_expire_and_are_revoked_cost_no_attempt,
    without_a_token_tasks_wait_and_other_services_are_called,
);

/// How the token endpoint answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Up,
    Down,
    Hangs,
    /// More than 64 KiB.
    Huge,
}

struct Inner {
    mode: Mode,
    lifetime: Duration,
    secret: String,
    /// The tokens that count, and when each expires.
    valid: HashMap<String, Instant>,
    issued: Vec<String>,
}

/// A token endpoint.
#[derive(Clone)]
pub struct Issuer {
    url: String,
    inner: Arc<Mutex<Inner>>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    asked: Arc<Notify>,
}

impl Issuer {
    pub async fn start(lifetime: Duration, mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token?tenant=1", listener.local_addr().unwrap());
        let secret = "hush+hush".to_owned();
        let (valid, issued) = (HashMap::new(), Vec::new());
        let inner = Arc::new(Mutex::new(Inner { mode, lifetime, secret, valid, issued }));
        let (running, most, asked) = (Arc::default(), Arc::default(), Arc::default());
        let issuer = Self { url, inner, running, most, asked };
        let router = Router::new().route("/token", post(issue)).with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    pub fn turn(&self, mode: Mode) {
        self.inner.lock().unwrap().mode = mode;
    }

    fn revoke(&self) {
        self.inner.lock().unwrap().valid.clear();
    }

    fn issued(&self) -> Vec<String> {
        self.inner.lock().unwrap().issued.clone()
    }

    /// Whether the call carries a token that counts now.
    fn admits(&self, seen: &Seen) -> bool {
        let given = seen.headers.get("authorization").map(|value| value.to_str().unwrap());
        let token = given.and_then(|given| given.strip_prefix("Bearer ")).unwrap_or_default();
        let inner = self.inner.lock().unwrap();
        inner.valid.get(token).is_some_and(|expires| *expires > Instant::now())
    }

    /// A receiver that asks for its tokens.
    pub async fn receiver(&self) -> Receiver {
        let issuer = self.clone();
        Receiver::answering(move |seen| match issuer.admits(seen) {
            true => Answer::Status(200),
            false => Answer::Status(401),
        })
        .await
    }

    /// The settings of a service that uses them.
    pub fn sets(&self, receiver: &Receiver) -> Vec<String> {
        let oauth = format!(
            "services.shop.oauth={{token_url={:?}, client_id=\"me\", client_secret=\"hush+hush\", \
             scope=\"a b\"}}",
            self.url
        );
        vec![service("shop", receiver), oauth]
    }
}

async fn issue(State(issuer): State<Issuer>, headers: HeaderMap, body: String) -> Response {
    issuer.asked.notify_one();
    let running = issuer.running.fetch_add(1, Ordering::SeqCst) + 1;
    issuer.most.fetch_max(running, Ordering::SeqCst);
    let response = answer(&issuer, &headers, &body).await;
    issuer.running.fetch_sub(1, Ordering::SeqCst);
    response
}

async fn answer(issuer: &Issuer, headers: &HeaderMap, body: &str) -> Response {
    let mode = issuer.inner.lock().unwrap().mode;
    match mode {
        Mode::Up => {}
        Mode::Down => {
            let repeated = headers["authorization"].to_str().unwrap();
            let body = json!({"error": "server_error", "error_description": repeated});
            return (StatusCode::SERVICE_UNAVAILABLE, body.to_string()).into_response();
        }
        Mode::Hangs => std::future::pending().await,
        Mode::Huge => return "x".repeat(70_000).into_response(),
    }
    let mut inner = issuer.inner.lock().unwrap();
    let pair = format!("me:{}", inner.secret.replace('+', "%2B"));
    if headers["authorization"] != format!("Basic {}", STANDARD.encode(pair)) {
        let body = json!({"error": "invalid_client", "error_description": "hush+hush is wrong"});
        return (StatusCode::UNAUTHORIZED, body.to_string()).into_response();
    }
    assert_eq!(body, "grant_type=client_credentials&scope=a+b");
    let token = format!("token-{:016x}", rand::random::<u64>());
    let lifetime = inner.lifetime;
    inner.valid.insert(token.clone(), Instant::now() + lifetime);
    inner.issued.push(token.clone());
    let expires_in = lifetime.as_secs();
    json!({"access_token": token, "token_type": "bearer", "expires_in": expires_in})
        .to_string()
        .into_response()
}

pub fn task(sn: &str, delay: &str) -> Value {
    json!({"topic": "t", "delay": delay, "content": {"sn": sn, "url": "/"}})
}

async fn shown(delayd: &Program) -> Value {
    delayd.post("/delay/destination/get", r#"{"sn":"shop"}"#).await.ok().body
}

pub async fn wait_for_reason(delayd: &Program, says: &str) {
    let is_there =
        async || shown(delayd).await["no_access_token"].as_str().is_some_and(|why| why == says);
    let found = poll::until(is_there).await;
    assert!(found, "{says}: {}\n{}", shown(delayd).await, delayd.log());
}

/// The log and the metrics show neither the secret nor a token.
fn shows_no_secret(delayd: &Program, issuer: &Issuer) {
    let log = delayd.log();
    let pair = STANDARD.encode("me:hush%2Bhush");
    for secret in issuer.issued().iter().map(String::as_str).chain(["hush+hush", &pair]) {
        assert!(!log.contains(secret), "{secret}\n{log}");
    }
}

/// Tokens of three seconds that are also revoked at times. Each task succeeds on its first attempt.
async fn tokens_that_expire_and_are_revoked_cost_no_attempt(kept: Kept) {
    const TASKS: usize = 300;
    let issuer = Issuer::start(Duration::from_secs(3), Mode::Up).await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let (state, taken) = (issuer.clone(), accepted.clone());
    // How many were accepted since the last revocation, and the tasks whose repeat is to come. The
    // token of a repeat is not revoked: a call is repeated once.
    let calls = Mutex::new((0, HashSet::new()));
    let receiver = Receiver::answering(move |seen| {
        let mut calls = calls.lock().unwrap();
        let (since, refused) = &mut *calls;
        if !state.admits(seen) {
            refused.insert(seen.id);
            return Answer::Status(401);
        }
        refused.remove(&seen.id);
        taken.fetch_add(1, Ordering::SeqCst);
        *since += 1;
        if *since >= 60 && refused.is_empty() {
            *since = 0;
            state.revoke();
        }
        Answer::Status(200)
    })
    .await;
    let delayd = kept.start(&issuer.sets(&receiver)).await;
    let tasks: Vec<Value> =
        (0..TASKS).map(|number| task("shop", &format!("{}ms", 20 * number))).collect();
    let ids = delayd.add_all(&tasks).await;
    for id in &ids {
        let task = delayd.wait_for_state("t", *id, "delivered").await;
        assert_eq!(task["attempts"], 1, "{task}\n{}", delayd.log());
    }
    let seen = receiver.seen();
    assert_eq!(accepted.load(Ordering::SeqCst), TASKS, "each is accepted once");
    assert!(seen.iter().all(|seen| seen.attempt == 1));
    assert!(seen.len() > TASKS, "no token was refused");
    assert_eq!(seen.iter().map(|seen| seen.id).collect::<HashSet<_>>().len(), TASKS);
    assert!(issuer.issued().len() >= 4, "{:?}", issuer.issued());
    assert_eq!(issuer.most.load(Ordering::SeqCst), 1, "one request at a time");
    let shown = shown(&delayd).await;
    assert_eq!((&shown["breaker"], &shown["no_access_token"]), (&json!("closed"), &Value::Null));
    assert_eq!(shown["recent"]["failures"], 0, "{shown}");
    let granted = "delayd_oauth_token_requests_total{service=\"shop\",result=\"granted\"}";
    assert!(value(&delayd, granted).await >= issuer.issued().len() as f64 - 1.0);
    shows_no_secret(&delayd, &issuer);
}

/// No attempt is spent while there is no token, be it at the start or after all were revoked.
async fn without_a_token_tasks_wait_and_other_services_are_called(kept: Kept) {
    let issuer = Issuer::start(Duration::from_secs(3_600), Mode::Down).await;
    let receiver = issuer.receiver().await;
    let other = Receiver::start().await;
    let mut sets = issuer.sets(&receiver);
    sets.push(service("other", &other));
    let delayd = kept.start(&sets).await;
    let waiting = delayd.add_all(&vec![task("shop", "0s"); 5]).await;
    let unharmed = async || {
        let id = delayd.add(task("other", "0s")).await.id();
        delayd.wait_for_state("t", id, "delivered").await;
    };
    unharmed().await;
    let missing = "delayd_oauth_token_missing{service=\"shop\"}";
    let down = "the token endpoint answers 503 Service Unavailable (server_error)";
    wait_for_reason(&delayd, down).await;
    issuer.turn(Mode::Huge);
    wait_for_reason(&delayd, "the token endpoint: expected an answer of at most 64 KiB").await;
    issuer.turn(Mode::Down);
    wait_for_reason(&delayd, down).await;
    assert_eq!(value(&delayd, missing).await, 1.0);
    for id in &waiting {
        let task = delayd.task("t", *id).await;
        assert_eq!((&task["attempts"], &task["last_outcome"]), (&json!(0), &Value::Null), "{task}");
    }
    assert!(receiver.seen().is_empty());
    assert_eq!(delayd.log().matches("its tasks wait").count(), 1, "{}", delayd.log());
    assert_eq!(shown(&delayd).await["breaker"], "closed");

    issuer.turn(Mode::Up);
    for id in waiting {
        assert_eq!(delayd.wait_for_state("t", id, "delivered").await["attempts"], 1);
    }
    delayd.wait_for_log("Service shop has an OAuth access token again").await;
    assert_eq!(value(&delayd, missing).await, 0.0);

    // A token that was revoked, and no other.
    issuer.turn(Mode::Down);
    issuer.revoke();
    let waiting = delayd.add_all(&vec![task("shop", "0s"); 5]).await;
    wait_for_reason(&delayd, down).await;
    unharmed().await;
    for id in &waiting {
        assert_eq!(delayd.task("t", *id).await["attempts"], 0, "{}", delayd.log());
    }
    let calls = receiver.seen().len();
    issuer.turn(Mode::Up);
    for id in waiting {
        assert_eq!(delayd.wait_for_state("t", id, "delivered").await["attempts"], 1);
    }
    assert_eq!(receiver.seen().len(), calls + 5, "the waiting tasks were not called in vain");
    let shown = shown(&delayd).await;
    assert_eq!((&shown["breaker"], &shown["recent"]["failures"]), (&json!("closed"), &json!(0)));
    // A task whose call was given back for want of a token was counted twice.
    let tasks =
        ["good", "bad"].map(|is| format!("delayd_objective_tasks_total{{result=\"{is}\"}}"));
    let [good, bad] = [value(&delayd, &tasks[0]).await, value(&delayd, &tasks[1]).await];
    assert_eq!(good + bad, 12.0, "{good} {bad}");
    shows_no_secret(&delayd, &issuer);
}

/// A token endpoint that accepts the connection and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_endpoint_that_hangs_delays_only_its_service() {
    let issuer = Issuer::start(Duration::from_secs(3_600), Mode::Hangs).await;
    let (receiver, other) = (issuer.receiver().await, Receiver::start().await);
    let mut sets = issuer.sets(&receiver);
    sets.push(service("other", &other));
    let delayd = Kept::embedded().start(&sets).await;
    issuer.asked.notified().await;
    let id = delayd.add(task("shop", "0s")).await.id();
    for other in delayd.add_all(&vec![task("other", "0s"); 50]).await {
        delayd.wait_for_state("t", other, "delivered").await;
    }
    let late = other.seen().iter().map(Seen::lateness_ms).max().unwrap();
    assert!(late < 5_000, "{late}");
    assert_eq!(shown(&delayd).await["no_access_token"], "the token endpoint was not asked yet");
    issuer.turn(Mode::Up);
    // The next request comes after the timeout of the first.
    delayd.wait_for_log("the token endpoint: timed out after 10s").await;
    assert_eq!(delayd.wait_for_state("t", id, "delivered").await["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_a_second_token_counts() {
    let issuer = Issuer::start(Duration::from_secs(3_600), Mode::Up).await;
    let receiver = Receiver::answering(|_| Answer::Status(401)).await;
    let delayd = Kept::embedded().start(&issuer.sets(&receiver)).await;
    let mut task = task("shop", "0s");
    task["max_attempts"] = json!(1);
    task["headers"] = json!({"x-tenant": "7"});
    let id = delayd.add(task).await.id();
    let dead = delayd.wait_for_state("t", id, "dead").await;
    assert_eq!((&dead["attempts"], &dead["last_outcome"]), (&json!(1), &json!("401 Unauthorized")));
    let seen = receiver.seen();
    let tokens = issuer.issued();
    assert_eq!((seen.len(), tokens.len()), (2, 2));
    for (seen, token) in seen.iter().zip(&tokens) {
        assert_eq!(seen.headers["authorization"], format!("Bearer {token}").as_str());
        assert_eq!((seen.attempt, &seen.headers["x-tenant"]), (1, &"7".parse().unwrap()));
    }
    assert_eq!(shown(&delayd).await["breaker"], "closed");
}

/// A receiver may show the token, for example in an error page.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_a_receiver_repeats_is_hidden_and_no_task_sets_the_header() {
    let issuer = Issuer::start(Duration::from_secs(3_600), Mode::Up).await;
    let receiver = Receiver::answering(|seen| {
        let given = seen.headers["authorization"].to_str().unwrap();
        Answer::Echo(500, format!("got {given}"))
    })
    .await;
    let delayd = Kept::embedded().start(&issuer.sets(&receiver)).await;
    let mut once = task("shop", "0s");
    once["max_attempts"] = json!(1);
    let id = delayd.add(once).await.id();
    delayd.wait_for_state("t", id, "dead").await;
    let noted = async || delayd.task("t", id).await.to_string().contains("got Bearer ***");
    assert!(poll::until(noted).await, "{}", delayd.task("t", id).await);
    let (shown, tokens) = (delayd.task("t", id).await.to_string(), issuer.issued());
    assert!(tokens.iter().all(|token| !shown.contains(token)), "{shown}");
    shows_no_secret(&delayd, &issuer);
    let mut own = task("shop", "0s");
    own["headers"] = json!({"authorization": "Bearer mine"});
    let refused = delayd.post("/delay/task/add", own.to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (400, &json!(1000)), "{refused:?}");
    assert!(refused.body["error_msg"].as_str().unwrap().contains("authorization"), "{refused:?}");
}

/// The file of a secret is read for each request, and a reload that does not change the section
/// keeps the token.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_replaced_without_a_restart() {
    let issuer = Issuer::start(Duration::from_secs(3_600), Mode::Up).await;
    let receiver = issuer.receiver().await;
    let folder = folder();
    let (file, secret) = (folder.path().join("delayd.toml"), folder.path().join("secret"));
    replace(&secret, "hush+hush\n");
    let save = |further: &str| {
        let text = format!(
            "[services.shop]\nendpoints = [{:?}]\n[services.shop.oauth]\ntoken_url = {:?}\n\
             client_id = \"me\"\n\
             client_secret = {{ file = {secret:?} }}\nscope = \"a b\"\n{further}",
            receiver.endpoint(),
            issuer.url
        );
        replace(&file, &text);
    };
    save("");
    let delayd = Program::start_from(&embedded(folder.path()), &file).await;
    let deliver = async |delayd: &Program| {
        let id = delayd.add(task("shop", "0s")).await.id();
        assert_eq!(delayd.wait_for_state("t", id, "delivered").await["attempts"], 1);
    };
    deliver(&delayd).await;
    save("[objective]\ntarget = 0.5\n");
    delayd.wait_for_log("changed: objective").await;
    deliver(&delayd).await;
    assert_eq!(issuer.issued().len(), 1, "the token stays");
    replace(&secret, "new-hush\n");
    issuer.inner.lock().unwrap().secret = "new-hush".into();
    issuer.revoke();
    deliver(&delayd).await;
    assert_eq!(issuer.issued().len(), 2);
    // Another client gets another token, and a service without OAuth needs none.
    save("[services.shop.success]\nstatuses = [200]\n");
    delayd.wait_for_log("changed: services").await;
    deliver(&delayd).await;
    assert_eq!(issuer.issued().len(), 2);
    replace(&file, &format!("[services.shop]\nendpoints = [{:?}]\n", receiver.endpoint()));
    delayd.wait_for_logs("changed: services", 2).await;
    receiver.answer(|seen| match seen.headers.contains_key("authorization") {
        true => Answer::Status(403),
        false => Answer::Status(200),
    });
    deliver(&delayd).await;
    assert!(!delayd.log().contains("hush"), "{}", delayd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_refuses_what_cannot_work_and_names_where_tokens_come_from() {
    let folder = folder();
    let check = async |secret: &str, code: i32, says: &str| {
        let mut sets = embedded(folder.path()).sets();
        sets.push("services.a.endpoints=[\"https://a\"]".into());
        sets.push(format!(
            "services.a.oauth={{token_url=\"https://login/t?key=hush\", client_id=\"me\", \
             client_secret={secret}}}"
        ));
        let mut check = command(&sets);
        check.arg("check");
        let (status, output, error) = run(check).await;
        assert_eq!(status, code, "{output}{error}");
        assert!(format!("{output}{error}").contains(says), "{output}{error}");
        assert!(!format!("{output}{error}").contains("hush"), "{output}{error}");
    };
    check("\"hush\"", 0, "a at https://a, tokens from https://login/t").await;
    check("{env=\"NO_SUCH\"}", 78, "in the environment variable NO_SUCH, got none").await;
    check("{file=\"/no/file\"}", 78, "in the file /no/file, got No such file").await;
    check("\"\"", 78, "oauth.client_secret: expected one line of visible ASCII, got nothing").await;
}
