//! For those who route to us: whether the process lives, and whether it should be given work.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;

use super::Api;
use crate::store::Store;

/// How long the store may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Health {
    status: &'static str,
    /// What is not as it should be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_ready: Vec<&'static str>,
}

/// `GET /healthz`: it answers, so it lives. Asks nobody else, or a store's outage would get every instance restarted.
pub(super) async fn alive() -> Response {
    Json(Health { status: "alive", not_ready: Vec::new() }).into_response()
}

/// `GET /readyz`
pub(super) async fn ready(State(api): State<Arc<Api>>) -> Response {
    let mut not_ready = Vec::new();
    if !matches!(tokio::time::timeout(PATIENCE, api.store.ping()).await, Ok(Ok(_))) {
        not_ready.push("store");
    }
    if api.is_draining() {
        not_ready.push("draining");
    }
    match not_ready.is_empty() {
        true => Json(Health { status: "ready", not_ready }).into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "not ready", not_ready })).into_response(),
    }
}
