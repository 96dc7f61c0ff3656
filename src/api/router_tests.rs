use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::map_response;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::StreamBody;
use serde_json::Value;

use axum::routing::get;

use super::*;
use crate::api::auth::Caller;
use crate::api::concurrency_limit::ConcurrencyLimit;
use crate::api::memory_budget::MemoryBudget;
use crate::api::middleware::response_budget::take_room;
use crate::api::testing::{Ask, edge_with_store, edge_without_store, json_of};
use crate::api::transport::delivery_confirmation::{Confirmation, watched};

#[path = "unavailable_tests.rs"]
mod unavailable;

const ADD: &str = "/delay/task/add";
const ADD_BATCH: &str = "/delay/task/add_batch";
const TASK: &str = r#"{"topic":"t","delay":1,"content":{}}"#;

fn post_of(path: &str, body: impl Into<Body>) -> Request {
    Request::post(path).body(body.into()).unwrap()
}

fn get_of(path: &str) -> Request {
    Request::get(path).body(Body::empty()).unwrap()
}

async fn answer(request: Request) -> Response {
    let (api, _draining) = edge_without_store().await;
    edge(Arc::new(api)).answer(request).await
}

/// Sends a request and compares status and code; returns the answer's body.
async fn check(request: Request, status: u16, dm_error: u16) -> Value {
    let asked = format!("{} {}", request.method(), request.uri());
    let response = answer(request).await;
    let got = response.status().as_u16();
    assert!(response.headers().contains_key("x-request-id"), "{asked}");
    let body = json_of(response).await;
    assert_eq!((got, &body["dm_error"]), (status, &Value::from(dm_error)), "{asked}: {body}");
    body
}

/// A body without a length.
fn chunked(length: usize) -> Body {
    let chunks = (0..length.div_ceil(100))
        .map(|_| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(&[b' '; 100]))));
    Body::new(StreamBody::new(futures_util::stream::iter(chunks)))
}

#[tokio::test]
async fn a_wrong_route_or_method_is_told_so() {
    check(get_of("/nowhere"), 404, 1004).await;
    check(post_of("/delay/task/undo", "{}"), 404, 1004).await;
    let body = check(get_of(ADD), 405, 1005).await;
    assert_eq!(body["error_msg"], "method: this route takes only POST");
    let body = check(post_of("/healthz", ""), 405, 1005).await;
    assert_eq!(body["error_msg"], "method: this route takes only GET");
    assert_eq!(answer(get_of(ADD)).await.headers()["allow"], "POST");
}

#[tokio::test]
async fn a_request_id_is_the_callers_if_it_is_sane() {
    let with_id =
        |id: &str| Request::get("/nowhere").header("x-request-id", id).body(Body::empty()).unwrap();
    assert_eq!(answer(with_id("mine-1")).await.headers()["x-request-id"], "mine-1");
    assert_ne!(answer(with_id("not mine")).await.headers()["x-request-id"], "not mine");
}

#[tokio::test]
async fn a_content_type_that_is_not_json_is_refused() {
    let typed = |kind: &str| {
        Request::post(ADD).header("content-type", kind).body(Body::from("{}")).unwrap()
    };
    check(typed("text/plain"), 415, 1015).await;
    check(typed("application/x-www-form-urlencoded"), 400, 1000).await;
    check(typed("application/json; charset=utf-8"), 400, 1000).await;
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_whether_it_says_its_length_or_not() {
    check(post_of(ADD, " ".repeat(1001)), 413, 1013).await;
    check(post_of(ADD, chunked(1100)), 413, 1013).await;
    check(post_of(ADD, chunked(1000)), 400, 1000).await;
    check(post_of(ADD_BATCH, " ".repeat(1001)), 400, 1000).await;
    check(post_of(ADD_BATCH, chunked(4100)), 413, 1013).await;
}

#[tokio::test]
async fn a_request_that_cannot_be_meant_is_refused_before_the_store_is_asked() {
    let bad = async |path: &str, body: &str, says: &str| {
        let answer = check(post_of(path, body.to_owned()), 400, 1000).await;
        let said = answer["error_msg"].as_str().unwrap();
        assert!(said.contains(says), "{path} {body}: {said}");
    };
    bad(ADD, "", "body: is empty").await;
    let (list, search) = ("/delay/task/list", "/delay/task/search");
    let order = r#"{"topic":"t","state":"dead","order":"best"}"#;
    bad(list, order, "order: must be one of \"oldest\", \"newest\"").await;
    let due = r#"{"topic":"t","state":"dead","due_from":-1}"#;
    bad(list, due, "due_from: must be Unix seconds").await;
    bad(search, r#"{"topic":"t","state":"dead"}"#, "text: is missing").await;
    bad(search, r#"{"topic":"t","state":"dead","text":""}"#, "text: must be 1 to 256 bytes").await;
    let many = "/delay/task/cancel_many";
    bad(many, r#"{"topic":"t","state":"leased","all":true}"#, "state: must be \"scheduled\"").await;
    bad(many, r#"{"topic":"t","state":"dead"}"#, "all: must be true without a filter").await;
    let both = r#"{"topic":"t","state":"dead","sn":"a","all":true}"#;
    bad(many, both, "and absent with one").await;
    let many = "/delay/task/update_many";
    bad(many, r#"{"topic":"t","all":true}"#, "timing_moment: expected either").await;
    bad(many, r#"{"topic":"t","all":true,"timing_moment":5}"#, "looks like a delay").await;
    let find = "/delay/task/find";
    bad(find, "{}", "task_id: is missing; a task may also be named by its key").await;
    bad(find, r#"{"task_id":1,"key":"k"}"#, "task_id: cannot be combined").await;
    bad(find, r#"{"key":""}"#, "key: must be 1 to 256 bytes long").await;
    bad(find, r#"{"task_id":1,"cursor":"a b"}"#, "cursor: must be the cursor of the previous")
        .await;
    let topics = "/delay/topic/list";
    bad(topics, r#"{"match":"*"}"#, "match: must be 1 to 128 characters").await;
    bad(topics, r#"{"sort":"size"}"#, "sort: must be one of \"name\", \"next_due\"").await;
    bad(topics, r#"{"limit":1001}"#, "limit: must be a whole number from 1 to 1000").await;
    bad(topics, r#"{"cursor":"x"}"#, "cursor: must be the cursor of the previous page").await;
    bad(topics, r#"{"cursor":"dead:0:t"}"#, "cursor: belongs to a list with another").await;
    bad(ADD, "[]", "body: must be a JSON object").await;
    bad(ADD, r#"{"topic":"a b","delay":1,"content":{}}"#, "topic: must be 1 to 128 characters")
        .await;
    bad(ADD_BATCH, "{}", "tasks: is missing").await;
    bad(ADD_BATCH, r#"{"tasks":[]}"#, "tasks: must hold 1 to 3 tasks, not 0").await;
    bad(ADD_BATCH, r#"{"tasks":[1,2,3,4]}"#, "tasks: must hold 1 to 3 tasks, not 4").await;
    let pull = "/delay/task/pull";
    bad(pull, "{}", "topic: is missing").await;
    bad(pull, r#"{"topic":"t","wait":"31s"}"#, "wait: must be from 0s to 30s").await;
    bad(pull, r#"{"topic":"t","task_id":1,"wait":1}"#, "lease, count and wait are not allowed")
        .await;
    bad(pull, r#"{"topic":"t","lease":"999ms"}"#, "lease: must be from 1s to 12h").await;
    bad(pull, r#"{"topic":"t","lease":"13h"}"#, "lease: must be from 1s to 12h").await;
    bad(pull, r#"{"topic":"t","count":0}"#, "count: must be a whole number from 1 to 256").await;
    bad(
        pull,
        r#"{"topic":"t","task_id":7,"count":1}"#,
        "lease, count and wait are not allowed with it",
    )
    .await;
    bad("/delay/task/get", r#"{"topic":"t","task_id":0}"#, "task_id: is missing").await;
    bad("/delay/task/get", r#"{"topic":"t","task_id":"x"}"#, "task_id: must be a whole number")
        .await;
    bad("/delay/task/cancel", r#"{"topic":"t"}"#, "task_id: is missing").await;
    bad("/delay/task/update", r#"{"topic":"t","task_id":1}"#, "give exactly one of the three")
        .await;
    bad(
        "/delay/task/update",
        r#"{"topic":"t","task_id":1,"delay":"4000d"}"#,
        "delay: must be from 0s to 3650d",
    )
    .await;
    let list = "/delay/task/list";
    bad(list, r#"{"topic":"t"}"#, "state: is missing").await;
    bad(list, r#"{"topic":"t","state":"gone"}"#, "state: must be one of \"scheduled\"").await;
    bad(list, r#"{"topic":"t","state":5}"#, "\"cancelled\", \"expired\", not integer 5").await;
    bad(list, r#"{"topic":"t","state":["dead"]}"#, "state: must be one of \"scheduled\"").await;
    bad(
        list,
        r#"{"topic":"t","state":"dead","limit":1001}"#,
        "limit: must be a whole number from 1 to 1000",
    )
    .await;
    bad(
        list,
        r#"{"topic":"t","state":"dead","cursor":"7"}"#,
        "cursor: must be the cursor of the previous call",
    )
    .await;
    bad(list, r#"{"topic":"t","state":"dead","from":-1}"#, "from: must be Unix seconds").await;
    let replay = "/delay/dead/replay";
    bad(replay, r#"{"topic":"t"}"#, "task_ids and all: give exactly one of the two").await;
    bad(replay, r#"{"topic":"t","all":true,"task_ids":[1]}"#, "give exactly one of the two").await;
    bad(replay, r#"{"topic":"t","task_ids":[]}"#, "task_ids: must hold 1 to 10000 ids").await;
    bad(
        replay,
        r#"{"topic":"t","all":true,"rate":"often"}"#,
        "rate: must be a number from 1 to 1000000",
    )
    .await;
    bad(
        replay,
        r#"{"topic":"t","all":true,"limit":0}"#,
        "limit: must be a whole number from 1 to 100000",
    )
    .await;
    bad(
        replay,
        r#"{"topic":"t","all":true,"cursor":"7"}"#,
        "cursor: must be the cursor of the previous call",
    )
    .await;
    bad("/delay/dead/purge", r#"{"topic":"t","all":true,"rate":"1/s"}"#, "unknown field \"rate\"")
        .await;
    bad("/delay/topic/purge", r#"{"topic":"t","confirm":"x"}"#, "confirm: must repeat the topic")
        .await;
    let forecast = "/delay/topic/forecast";
    bad(forecast, r#"{"topic":"t"}"#, "step: is missing").await;
    bad(
        forecast,
        r#"{"topic":"t","step":"1h","steps":1001}"#,
        "steps: must be a whole number from 1 to 1000",
    )
    .await;
    bad(
        "/delay/topic/set",
        r#"{"topic":"t","shards":257}"#,
        "shards: must be a whole number from 1 to 256",
    )
    .await;
    bad("/delay/topic/set", r#"{"topic":"t","reset":["shards"]}"#, "reset").await;
    bad("/delay/task/ack", r#"{"topic":"t","task_id":1}"#, "receipt: is missing").await;
    bad(
        "/delay/task/ack",
        r#"{"topic":"t","task_id":1,"receipt":"r","delay":1}"#,
        "unknown field \"delay\"",
    )
    .await;
    bad("/delay/task/nack", r#"{"topic":"t","task_id":1,"receipt":"?"}"#, "receipt: must be").await;
}

#[tokio::test]
async fn the_root_is_the_dashboard() {
    let response = answer(get_of("/")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn a_batch_of_bad_tasks_is_answered_without_a_store() {
    let body = check(post_of(ADD_BATCH, r#"{"tasks":[{"topic":1},null,[]]}"#), 400, 1000).await;
    assert_eq!(body["failed"], 3, "{body}");
    assert_eq!(body["results"][1]["error_msg"], "body: must be a JSON object");
}

#[tokio::test]
async fn health_lives_and_readiness_names_what_is_missing() {
    let (api, draining) = edge_without_store().await;
    let edge = edge(Arc::new(api));
    let ask = async |path: &str| {
        let response = edge.clone().answer(get_of(path)).await;
        (response.status().as_u16(), json_of(response).await)
    };
    let (status, body) = ask("/healthz").await;
    assert_eq!((status, &body["status"]), (200, &Value::from("alive")));
    let build = (env!("CARGO_PKG_VERSION"), env!("DELAYD_COMMIT"));
    assert_eq!((&body["version"], &body["commit"]), (&build.0.into(), &build.1.into()));
    let (status, body) = ask("/readyz").await;
    assert_eq!((status, body["not_ready"].to_string().as_str()), (503, r#"["store"]"#));
    draining.send_replace(true);
    assert_eq!(ask("/readyz").await.1["not_ready"].to_string(), r#"["store","draining"]"#);
}

#[tokio::test]
async fn while_draining_no_work_is_taken_in() {
    let (api, draining) = edge_without_store().await;
    draining.send_replace(true);
    let edge = edge(Arc::new(api));
    for (path, body) in
        [(ADD, TASK), (ADD_BATCH, r#"{"tasks":[{}]}"#), ("/delay/task/pull", r#"{"topic":"t"}"#)]
    {
        let response = edge.clone().answer(post_of(path, body)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(
            response.headers()["connection"],
            "close",
            "a caller that asks again goes elsewhere"
        );
        assert!(
            json_of(response).await["error_msg"].as_str().unwrap().contains("shutting down"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn one_request_too_many_is_turned_away_and_health_is_not() {
    let (mut api, _draining) = edge_without_store().await;
    api.slots = ConcurrencyLimit::of(0);
    let edge = edge(Arc::new(api));
    let response = edge.clone().answer(post_of(ADD, TASK)).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert_eq!(json_of(response).await["dm_error"], 2003);
    assert_eq!(edge.answer(get_of("/healthz")).await.status(), StatusCode::OK);
}

/// A handler may drop what it was given long before its answer, so a slot held only there limited
/// nothing.
#[tokio::test]
async fn a_request_holds_its_slot_to_its_end() {
    let (mut api, _draining, _folder) = edge_with_store();
    api.slots = ConcurrencyLimit::of(1);
    let edge = edge(Arc::new(api));
    // It waits for the store's thread, and nobody asks for its answer meanwhile. If the thread has
    // answered already, there is no wait.
    let first = loop {
        let mut first = Box::pin(edge.clone().answer(post_of(ADD, TASK)));
        if futures_util::poll!(&mut first).is_pending() {
            break first;
        }
    };
    let second = edge.clone().answer(post_of(ADD, TASK)).await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        json_of(second).await["error_msg"].as_str().unwrap().contains("too many requests at once")
    );
    assert_eq!(first.await.status(), StatusCode::OK);
    let third = edge.answer(post_of(ADD, TASK)).await;
    assert_eq!(third.status(), StatusCode::OK, "turned away, though the first is gone");
}

/// The slot was once kept while the body arrived slowly, so a thousand slow callers locked out
/// everyone else.
#[tokio::test]
async fn a_body_that_drips_gives_the_slot_from_the_door_back() {
    let (mut api, _draining) = edge_without_store().await;
    api.slots = ConcurrencyLimit::of(1);
    let edge = edge(Arc::new(api));
    let mut drips = Box::pin(edge.clone().answer(post_of(ADD, dripping())));
    assert!(futures_util::poll!(&mut drips).is_pending());
    let response = edge.answer(post_of(ADD, "{}")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

/// A body that never ends.
fn dripping() -> Body {
    Body::new(StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >()))
}

#[tokio::test]
async fn bodies_that_drip_take_no_slot_from_those_that_have_come() {
    let (mut api, _draining) = edge_without_store().await;
    api.slots = ConcurrencyLimit::of(1);
    let edge = edge(Arc::new(api));
    let mut drips: Vec<_> =
        (0..100).map(|_| Box::pin(edge.clone().answer(post_of(ADD, dripping())))).collect();
    for drip in &mut drips {
        assert!(futures_util::poll!(drip).is_pending());
    }
    let response = edge.answer(post_of(ADD, "{}")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_body_for_which_there_are_no_bytes_left_is_refused_at_once() {
    let (mut api, _draining) = edge_without_store().await;
    api.memory = MemoryBudget::new(4000);
    let edge = edge(Arc::new(api));
    let response = edge.clone().answer(post_of(ADD, chunked(900))).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let response = edge.answer(post_of(ADD_BATCH, chunked(3000))).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert!(json_of(response).await["error_msg"].as_str().unwrap().contains("too many bytes"));
}

/// A handler's state lives until its answer. Waiting pulls once kept their bodies there, and used
/// up the memory budget.
#[tokio::test]
async fn a_waiting_pull_holds_no_bytes() {
    let (mut api, _draining, _folder) = edge_with_store();
    // Enough for one such body at a time.
    api.memory = MemoryBudget::new(4000);
    let edge = edge(Arc::new(api));
    let padded = |body: &str| format!("{body:900}");
    let ask = |path, body| Box::pin(edge.clone().answer(post_of(path, padded(body))));
    let mut pulls: Vec<_> =
        (0..3).map(|_| ask("/delay/task/pull", r#"{"topic":"t","wait":"30s"}"#)).collect();
    for pull in &mut pulls {
        assert!(futures_util::poll!(pull).is_pending());
    }
    assert_eq!(ask(ADD, TASK).await.status(), StatusCode::OK);
}

/// Slow batches, each with its first bytes, once used up the share of single tasks.
#[tokio::test]
async fn batches_that_drip_leave_bytes_for_single_tasks() {
    let (mut api, _draining) = edge_without_store().await;
    // Its small part is as long as two of them.
    api.memory = MemoryBudget::new(32_000);
    let edge = edge(Arc::new(api));
    let begun = || {
        let first = futures_util::stream::iter([Ok::<_, std::io::Error>(http_body::Frame::data(
            Bytes::from_static(b"{"),
        ))]);
        Body::new(StreamBody::new(futures_util::StreamExt::chain(
            first,
            futures_util::stream::pending(),
        )))
    };
    let mut drips: Vec<_> =
        (0..100).map(|_| Box::pin(edge.clone().answer(post_of(ADD_BATCH, begun())))).collect();
    for drip in &mut drips {
        let _ = futures_util::poll!(drip);
    }
    let response = edge.answer(post_of(ADD, "{}")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_answer_for_which_there_is_no_room_is_not_given_and_its_body_is_told() {
    let budget = MemoryBudget::new(5000);
    let (tell, told) = std::sync::mpsc::channel();
    let answers = Router::new()
        .route(
            "/",
            get(move || {
                let tell = tell.clone();
                async move {
                    watched(vec![b'x'; 3000].into(), far(), move |confirmation| {
                        tell.send(confirmation).unwrap()
                    })
                }
            }),
        )
        .layer(map_response(move |response| {
            std::future::ready(take_room(&budget, &Caller::anyone(), response))
        }));
    let mut unread = answers.clone().answer(get_of("/")).await.into_body();
    // Taken from the body, but still held by the server that writes it.
    let frame = http_body_util::BodyExt::frame(&mut unread).await.unwrap().unwrap();
    drop(unread);
    assert_eq!(told.try_recv(), Ok(Confirmation::NotWritten));
    let refused = answers.clone().answer(get_of("/")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told.try_recv(), Ok(Confirmation::NotWritten));
    drop(frame);
    assert_eq!(answers.answer(get_of("/")).await.status(), StatusCode::OK);
}

fn far() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(3600)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_meets_the_timeout() {
    let (api, _draining) = edge_without_store().await;
    let response = edge(Arc::new(api)).answer(post_of(ADD, dripping())).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(json_of(response).await["dm_error"], 2003);
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_is_never_answered_does_not_hold_up_the_end() {
    let (api, _draining) = edge_without_store().await;
    api.pending.spawn(std::future::pending::<()>());
    tokio::time::timeout(Duration::from_secs(60), api.finish(far())).await.expect("it ends");
}
