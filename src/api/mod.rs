//! ① The HTTP API: from a request to a call of the store, and back to an answer.
//!
//! ```text
//! transport ─▶ middleware ─▶ routes ─▶ handlers ─▶ store
//! ```
//!
//! One folder or file per layer, the lowest first. A layer imports only layers above it in this
//! list:
//!
//! - `wire`: JSON requests; errors, envelopes and answers; fields, request ids and schemas.
//! - `auth`: tokens and what each may call.
//! - `params`: the settings.
//! - `long_poll`: pulls that wait for a task.
//! - `places`: how many scans and streams one token may have; `live`: the open live streams.
//! - `state`: what the handlers share.
//! - `middleware`: what every request passes: concurrency limit, deadline, body, memory budgets.
//! - `transport`: connections and their timeouts; whether an answer was written.
//! - `handlers`: one file for each family of calls.
//! - `docs`, `openapi`: the OpenAPI document, and a page that shows it.
//! - `routes`: the table of all routes.
//!
//! # Invariants
//!
//! - A 2xx on add means that the task is stored. If that is not confirmed, the answer is 503 and
//!   says so.
//! - An answer contains nothing internal: no text of the store, no path, no panic. The log has it,
//!   with the request's id.
//! - An unknown field is refused, never ignored.
//!
//! Absent on purpose: retry decisions (see `outcome`) and timers per task.

#[cfg(test)]
mod audit_tests;
mod auth;
#[cfg(test)]
mod bounds_tests;
mod dashboard;
mod docs;
mod forecasts;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod handlers;
mod live;
mod long_poll;
#[cfg(feature = "benching")]
#[doc(hidden)]
pub mod measured;
mod middleware;
mod openapi;
mod params;
mod places;
#[cfg(test)]
mod reload_tests;
mod routes;
mod state;
mod static_file;
#[cfg(test)]
mod testing;
mod transport;
#[cfg(test)]
mod view_tests;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use serde_json::Value;
use tower::Service;

use middleware::admission::Admission;
use middleware::audit::Auditor;
use middleware::body::Bodies;
use middleware::concurrency_limit::ConcurrencyLimit;
use middleware::memory_budget::Budget;
use middleware::pipeline::Pipeline;
use middleware::route::OTHER;
use routes::ROUTES;

use crate::metrics::Rejection;

pub use auth::{TokenParams, Tokens};
pub use params::Params;
pub use state::{Api, Parts};
pub use transport::listener::{IoTimeouts, ServerParams, listen, serve};

/// The whole API as one tower service.
pub fn edge(
    api: Arc<Api>,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static {
    let slots = ConcurrencyLimit::of(api.params.concurrency);
    let budget =
        Budget::new(api.params.bodies).counting(api.metrics.api.rejections(Rejection::Memory));
    let bodies = Bodies::new(&api.body_limit, &api.batch_body_limit, &budget, &slots, &api);
    let admission = Admission {
        routes: &ROUTES,
        tokens: api.tokens.clone(),
        slots,
        timeout: api.params.timeout,
        auditor: Auditor(api.audit.clone()),
        metrics: api.metrics.clone(),
        pages: ROUTES.router(api.clone()),
    };
    Pipeline { api, admission, bodies }.shared()
}

/// The paths of all routes, and what stands for all others in metrics.
pub fn routes() -> impl Iterator<Item = &'static str> {
    ROUTES.all().iter().map(|route| route.path).chain([OTHER])
}

/// The OpenAPI document.
pub fn document() -> Value {
    openapi::document(&ROUTES)
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
