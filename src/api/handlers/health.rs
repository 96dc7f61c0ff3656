//! `GET /healthz` and `GET /readyz`, for load balancers and orchestrators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::state::Api;
use crate::model::breaker;
use crate::model::version::{COMMIT, VERSION};
use crate::store::Store;

#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `alive`, `ready` or `not ready`.
    #[schema(value_type = String)]
    status: &'static str,
    /// The state of the store's circuit breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_breaker: Option<breaker::State>,
    /// What the instance is not ready for: `store`, `draining`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    not_ready: Vec<&'static str>,
    /// The version of the program. Only in `/healthz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    version: Option<&'static str>,
    /// The commit that it was built from, or `unknown`. Only in `/healthz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    commit: Option<&'static str>,
}

impl Health {
    fn new(status: &'static str) -> Self {
        Self { status, store_breaker: None, not_ready: Vec::new(), version: None, commit: None }
    }
}

/// `GET /healthz`: the process answers. It does not check the store, because an outage of the store
/// would restart every instance.
pub(crate) async fn alive() -> Response {
    let (version, commit) = (Some(VERSION), Some(COMMIT));
    Json(Health { version, commit, ..Health::new("alive") }).into_response()
}

/// `GET /readyz`: the store answers, and the instance neither drains nor soon will.
pub(crate) async fn ready(State(api): State<Arc<Api>>) -> Response {
    let mut not_ready = Vec::new();
    if api.store.ping().await.is_err() {
        not_ready.push("store");
    }
    if api.is_leaving() {
        not_ready.push("draining");
    }
    let (code, status) = match not_ready.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let store_breaker = Some(api.store.breaker());
    (code, Json(Health { store_breaker, not_ready, ..Health::new(status) })).into_response()
}
