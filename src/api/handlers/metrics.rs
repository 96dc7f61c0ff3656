//! `GET /metrics`: what is counted and measured, as OpenMetrics text
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;

use crate::api::state::Api;
use crate::metrics::topics_text;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics/topics`
pub(crate) async fn topics(State(api): State<Arc<Api>>) -> Response {
    let (topics, left_out) = api.sampled.topics();
    ([(header::CONTENT_TYPE, OPEN_METRICS)], topics_text(topics, left_out)).into_response()
}

/// `GET /metrics`
pub(crate) async fn serve(State(api): State<Arc<Api>>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], api.metrics.encode()).into_response()
}
