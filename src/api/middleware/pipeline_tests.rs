use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::api::middleware::audit::Auditor;
use crate::api::middleware::concurrency_limit::{ConcurrencyLimit, QUEUE_TIMEOUT};
use crate::api::middleware::memory_budget::Budget;
use crate::api::middleware::route::{Route, Routes};
use crate::api::params::Limit;
use crate::api::testing::{Ask, edge_without_store, json_of};
use crate::metrics::Metrics;

/// A pipeline with this many slots, a handler that never ends, one that panics, and a health check.
async fn edge(
    slots: usize,
) -> (
    impl Service<Request, Response = Response, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static,
    watch::Sender<bool>,
) {
    let (api, draining) = edge_without_store().await;
    let api = Arc::new(api);
    let routes: &'static Routes = Box::leak(Box::new(Routes::of(vec![
        Route::call("/delay/task/add", "", async |_, _| std::future::pending::<Response>().await),
        Route::part("/docs/panic", || get(panicking)),
        Route::part("/healthz", || get(async || "alive")),
    ])));
    let slots = ConcurrencyLimit::of(slots);
    let (limit, budget) = (Limit::of(1 << 20), Budget::new(1 << 20));
    let bodies = Bodies::new(&limit, &limit, &budget, &slots, &api);
    let (timeout, pages) = (Duration::from_secs(10), routes.router(api.clone()));
    let admission = Admission {
        routes,
        tokens: Arc::default(),
        slots,
        timeout,
        auditor: Auditor(api.audit.clone()),
        metrics: Metrics::new([]),
        pages,
    };
    (Pipeline { api, admission, bodies }.shared(), draining)
}

async fn panicking() -> &'static str {
    panic!("secret")
}

fn add() -> Request {
    Request::post("/delay/task/add").header("x-request-id", "mine").body(Body::from("{}")).unwrap()
}

fn get_of(path: &str) -> Request {
    Request::get(path).header("x-request-id", "mine").body(Body::empty()).unwrap()
}

/// The future is copied whole to the connection that polls it. One more argument passed by value
/// once made it 10 kB.
#[tokio::test]
async fn the_future_of_a_request_stays_small() {
    let (mut edge, _draining) = edge(1).await;
    let size = std::mem::size_of_val(&edge.call(add()));
    assert!(size <= 4_096, "{size}");
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_slot_in_time_is_turned_away_under_his_name_and_health_is_not() {
    let (edge, draining) = edge(0).await;
    let began = Instant::now();
    let response = edge.clone().answer(add()).await;
    assert_eq!(began.elapsed().as_millis() / 10, QUEUE_TIMEOUT.as_millis() / 10);
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["x-request-id"], "mine");
    assert!(!response.headers().contains_key("connection"));
    assert_eq!(json_of(response).await["dm_error"], 2003);
    assert_eq!(edge.clone().answer(get_of("/healthz")).await.status(), StatusCode::OK);
    draining.send_replace(true);
    assert_eq!(
        edge.answer(add()).await.headers()["connection"],
        "close",
        "a caller that asks again goes elsewhere"
    );
}

#[tokio::test(start_paused = true)]
async fn who_stands_in_line_takes_the_slot_that_becomes_free() {
    let (edge, _draining) = edge(1).await;
    let first = tokio::spawn(edge.clone().answer(add()));
    tokio::task::yield_now().await;
    let second = tokio::spawn(edge.clone().answer(add()));
    tokio::time::sleep(QUEUE_TIMEOUT / 2).await;
    first.abort();
    tokio::time::sleep(2 * QUEUE_TIMEOUT).await;
    assert!(!second.is_finished(), "turned away, though a slot became free in time");
}

#[tokio::test]
async fn a_panic_is_our_fault_with_a_request_id_and_without_its_text() {
    let (edge, _draining) = edge(1).await;
    let response = edge.answer(get_of("/docs/panic")).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-request-id"]),
        (500, &"mine".parse().unwrap())
    );
    let body = json_of(response).await;
    assert_eq!((&body["dm_error"], &body["request_id"]), (&2000.into(), &"mine".into()));
    assert!(!body.to_string().contains("secret"), "{body}");
}
