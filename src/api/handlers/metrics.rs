//! `GET /metrics`, in Prometheus' text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;

use crate::api::state::Api;

/// `GET /metrics`
pub(crate) async fn serve(State(api): State<Arc<Api>>) -> Response {
    let (version, reloads) = (env!("CARGO_PKG_VERSION"), &api.reloads);
    let (taken, refused) =
        (reloads.taken.load(Ordering::Relaxed), reloads.refused.load(Ordering::Relaxed));
    let text = format!(
        "# HELP delayd_build_info The running version; always 1.\n\
         # TYPE delayd_build_info gauge\n\
         delayd_build_info{{version=\"{version}\"}} 1\n\
         # HELP delayd_config_reloads_total \
         Reloads of the configuration: taken, or refused as invalid.\n\
         # TYPE delayd_config_reloads_total counter\n\
         delayd_config_reloads_total{{result=\"taken\"}} {taken}\n\
         delayd_config_reloads_total{{result=\"refused\"}} {refused}\n"
    );
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
