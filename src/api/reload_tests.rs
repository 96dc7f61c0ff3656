//! What a reload of the tokens does to requests that have begun.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::places::Places;
use super::testing::{Ask, edge_with_store, json_of};
use super::{Api, TokenParams, edge};
use crate::model::task::Topic;
use crate::model::token::Scope::{self, Admin, Consume, Produce, View};
use crate::model::token::TokenHash;
use crate::sampler::Sampled;

const CONSUMER: &str = "dly_consumer";
const PRODUCER: &str = "dly_producer";
const VIEWER: &str = "dly_viewer";
/// For the test itself: no reload changes it.
const KEEPER: &str = "dly_keeper";

/// That something ends at all.
const AT_ALL: Duration = Duration::from_secs(60);

fn token(secret: &str, scopes: &[Scope], topic: &str) -> TokenParams {
    TokenParams {
        name: secret.into(),
        hash: TokenHash::of(secret),
        scopes: scopes.to_vec(),
        topics: vec![topic.parse().unwrap()],
        rate: None,
    }
}

fn replace(api: &Api, tokens: &[TokenParams]) {
    let keeper = token(KEEPER, &[Produce, Consume], "*");
    api.tokens.replace(tokens.iter().cloned().chain([keeper]).collect());
}

fn request(token: &str, path: &str, body: impl Into<Body>) -> Request {
    let bearer = format!("Bearer {token}");
    Request::post(path).header("authorization", bearer).body(body.into()).unwrap()
}

async fn send(api: &Arc<Api>, request: Request) -> Response {
    timeout(AT_ALL, edge(api.clone()).answer(request)).await.expect("an answer")
}

async fn add(api: &Arc<Api>) {
    let body = r#"{"topic":"order.a","delay":"0s","content":{}}"#;
    let response = send(api, request(KEEPER, "/delay/task/add", body)).await;
    assert_eq!(response.status(), 200);
}

const PATH: &str = "/delay/task/pull";
const PULL: &str = r#"{"topic":"order.a","wait":"30s","lease":"60s"}"#;

/// A pull of a consumer waits, these tokens replace all others, and a task arrives.
async fn pull_over(tokens: &[TokenParams], status: u16) {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    replace(&api, &[token(CONSUMER, &[Consume], "order.*")]);
    let pulling = tokio::spawn(edge(api.clone()).answer(request(CONSUMER, PATH, PULL)));
    let topic: Topic = "order.a".parse().unwrap();
    while api.pulls.waiters.queue_of(&topic).is_none() {
        tokio::task::yield_now().await;
    }
    replace(&api, tokens);
    add(&api).await;
    let response = timeout(AT_ALL, pulling).await.expect("an answer").unwrap();
    assert_eq!(response.status().as_u16(), status, "{tokens:?}");
    let answer = json_of(response).await;
    if status != 200 {
        // Another consumer gets the task, and it is the first attempt.
        let response = send(&api, request(KEEPER, PATH, PULL)).await;
        assert_eq!(json_of(response).await["attempt"], json!(1), "{answer}");
    }
}

/// The pull was once handed a task that was added after its token had gone.
#[tokio::test]
async fn a_waiting_pull_ends_with_its_token() {
    pull_over(&[], 401).await;
    pull_over(&[token("dly_other", &[Consume], "*")], 401).await;
    pull_over(&[token(CONSUMER, &[Produce], "order.*")], 403).await;
    pull_over(&[token(CONSUMER, &[Consume], "review")], 403).await;
    pull_over(&[token(CONSUMER, &[Consume], "order.*")], 200).await;
    pull_over(&[token(CONSUMER, &[Consume, Produce], "*")], 200).await;
}

/// Opens a live stream with these tokens, and replaces them by others. Returns whether a snapshot
/// is still sent.
async fn is_sent_on(before: &[TokenParams], after: &[TokenParams]) -> bool {
    let (mut api, _draining, _folder) = edge_with_store();
    let (snapshots, sampled) = Sampled::sent_by_test();
    api.sampled = sampled;
    let api = Arc::new(api);
    if !before.is_empty() {
        replace(&api, before);
    }
    let response = send(&api, request(VIEWER, "/delay/live", "{}")).await;
    assert_eq!(response.status(), 200);
    let mut events = response.into_body().into_data_stream();
    let mut next = async || timeout(AT_ALL, events.next()).await.expect("an event, or the end");
    assert!(next().await.is_some());
    replace(&api, after);
    snapshots.send_replace(Arc::default());
    next().await.is_some()
}

/// A stream once went on for as long as its reader liked.
#[tokio::test]
async fn a_live_stream_ends_with_its_token() {
    let before = token(VIEWER, &[View], "*");
    let check = async |after: &[TokenParams], goes_on: bool| {
        let sent = is_sent_on(std::slice::from_ref(&before), after).await;
        assert_eq!(sent, goes_on, "{after:?}");
    };
    check(&[], false).await;
    check(&[token("dly_other", &[View], "*")], false).await;
    check(&[token(VIEWER, &[Consume], "*")], false).await;
    check(&[token(VIEWER, &[View], "order.*")], false).await;
    check(&[token(VIEWER, &[View], "*")], true).await;
    check(&[token(VIEWER, &[Admin], "*")], true).await;
    // Without tokens, everyone may call until there is one.
    assert!(!is_sent_on(&[], &[]).await);
}

/// The status of an add whose body arrives after these tokens have replaced all others.
async fn late_body(tokens: &[TokenParams]) -> u16 {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    replace(&api, &[token(PRODUCER, &[Produce], "order.*")]);
    let (body, arriving) = oneshot::channel::<Bytes>();
    let body_stream = Body::from_stream(stream::once(arriving));
    let adding = edge(api.clone()).answer(request(PRODUCER, "/delay/task/add", body_stream));
    let mut adding = Box::pin(adding);
    assert!(futures_util::poll!(&mut adding).is_pending());
    replace(&api, tokens);
    body.send(r#"{"topic":"order.a","delay":"1h","content":{}}"#.into()).unwrap();
    timeout(AT_ALL, adding).await.expect("an answer").status().as_u16()
}

/// An add was once stored by a token that a reload removed while its body arrived.
#[tokio::test]
async fn a_late_body_is_checked_against_the_present_tokens() {
    assert_eq!(late_body(&[]).await, 401);
    assert_eq!(late_body(&[token(PRODUCER, &[Consume], "order.*")]).await, 403);
    assert_eq!(late_body(&[token(PRODUCER, &[Produce], "review")]).await, 403);
    assert_eq!(late_body(&[token(PRODUCER, &[Produce], "*")]).await, 200);
}

/// All places are held, a call waits for one, and these tokens replace all others. Returns the
/// status.
async fn status_of_a_wait(places: fn(&Api) -> &Places, call: Request, then: &[TokenParams]) -> u16 {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    replace(&api, &[token(VIEWER, &[View, Admin], "*")]);
    add(&api).await;
    let held = places(&api).take_all();
    let asking = tokio::spawn(edge(api.clone()).answer(call));
    let waits = async {
        while !places(&api).is_asked_by(VIEWER) {
            tokio::task::yield_now().await;
        }
    };
    timeout(AT_ALL, waits).await.expect("it waits for a place");
    replace(&api, then);
    drop(held);
    timeout(AT_ALL, asking).await.expect("an answer").unwrap().status().as_u16()
}

#[tokio::test]
async fn a_call_that_waited_for_a_place_is_checked_again() {
    let list = || {
        let filtered = r#"{"topic":"order.a","state":"scheduled","sn":"a"}"#;
        request(VIEWER, "/delay/task/list", filtered)
    };
    let all = [token(VIEWER, &[View, Admin], "*")];
    assert_eq!(status_of_a_wait(|api| &api.scans, list(), &all).await, 200);
    assert_eq!(status_of_a_wait(|api| &api.scans, list(), &[]).await, 401);
    let other = [token(VIEWER, &[Produce], "*")];
    assert_eq!(status_of_a_wait(|api| &api.scans, list(), &other).await, 403);
    let narrow = [token(VIEWER, &[View, Admin], "shop")];
    assert_eq!(status_of_a_wait(|api| &api.scans, list(), &narrow).await, 503);
}

/// Each answer may hold a content of megabytes.
#[tokio::test]
async fn reads_of_one_task_need_a_place() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    replace(&api, &[token(VIEWER, &[View, Consume], "*")]);
    add(&api).await;
    let held = api.gets.take_all();
    let asked = async |path: &str, named: &str| {
        let body = format!(r#"{{"topic":"order.a",{named}}}"#);
        edge(api.clone()).answer(request(VIEWER, path, body)).await.status().as_u16()
    };
    let calls = [
        ("/delay/task/get", r#""task_id":1"#),
        ("/delay/task/pull", r#""task_id":1"#),
        ("/delay/schedule/get", r#""schedule":"s""#),
    ];
    for (path, named) in calls {
        assert_eq!(asked(path, named).await, 503, "{path}");
    }
    drop(held);
    for (path, named) in calls {
        assert_eq!(asked(path, named).await, 404, "{path}");
    }
}

/// They walk over up to 100,000 tasks.
#[tokio::test]
async fn changes_of_all_dead_tasks_wait_for_a_place() {
    for path in ["/delay/dead/replay", "/delay/dead/purge"] {
        let call = request(VIEWER, path, r#"{"topic":"order.a","all":true}"#);
        let all = [token(VIEWER, &[View, Admin], "*")];
        assert_eq!(status_of_a_wait(|api| &api.changes, call, &all).await, 200);
    }
}
