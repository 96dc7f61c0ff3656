use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::api::auth::About;
use crate::api::concurrency_limit::{ConcurrencyLimit, QUEUE_TIMEOUT};
use crate::api::middleware::router::Routes;
use crate::api::testing::{Ask, edge_without_store, json_of};
use crate::model::token::Scope;

/// A router with this many slots, a handler that never ends, one that panics, and a health check.
async fn edge(slots: usize) -> (Router, watch::Sender<bool>) {
    let (mut api, draining) = edge_without_store().await;
    api.slots = ConcurrencyLimit::of(slots);
    let rule = (&[Scope::Produce][..], About::Topic);
    let routes: &'static Routes = Box::leak(Box::new(Routes::of(vec![
        Route::raw("/delay/task/add", "", rule, std::future::pending::<Response>),
        Route::part("/docs/panic", get(panicking)),
        Route::part("/healthz", get(async || "alive")),
    ])));
    (routes.router(Arc::new(api)), draining)
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
