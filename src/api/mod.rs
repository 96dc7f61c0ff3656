//! ① The edge: HTTP in. From a request to a store's verb, and back to an answer.
//!
//! ```text
//! transport ─▶ middleware ─▶ routes ─▶ handlers ─▶ store
//! ```
//!
//! Folders by layer, the lowest first. Imports run from the later ones to the earlier ones:
//!
//! - `wire`: JSON in; errors and envelopes out; fields, request ids and schemas.
//! - `auth`: tokens, and what each may call.
//! - `long_poll`: pulls that wait.
//! - `params`, `state`: the settings, and what the handlers share.
//! - `middleware`: what every request passes: concurrency limit, deadline, body, budgets.
//! - `transport`: connections and their timeouts; whether an answer was written.
//! - `handlers`: one file for each family of calls.
//! - `openapi`, `docs`: the description of the calls, and a page to read it by.
//! - `routes`: the table of all routes.
//!
//! # Invariants
//!
//! - A 2xx on add means that the task is kept. Whatever is not confirmed is 503, and said to be so.
//! - Nothing internal (a store's text, a path, a panic) is in an answer; it is in the log, under
//!   the request's id.
//! - An unknown field is refused, never ignored.
//!
//! Absent on purpose: policy of retries (`outcome`), and timers per task. Only pulls with `wait`
//! wait for something to fall due.

mod auth;
#[cfg(test)]
mod bounds_tests;
mod docs;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod handlers;
mod long_poll;
#[cfg(feature = "benching")]
#[doc(hidden)]
pub mod measured;
mod middleware;
mod openapi;
mod params;
mod routes;
mod state;
#[cfg(test)]
mod testing;
mod transport;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use serde_json::Value;
use tower::Service;

use middleware::admission::Admission;
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

/// Everything that is served, as one service.
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
    let bodies = Bodies::new(&api.body_limit, &api.batch_body_limit, &budget, &slots);
    let admission = Admission {
        routes: &ROUTES,
        tokens: api.tokens.clone(),
        slots,
        timeout: api.params.timeout,
        metrics: api.metrics.clone(),
        pages: ROUTES.router(api.clone()),
    };
    let draining = api.draining.clone();
    Pipeline { api, admission, bodies, draining }.shared()
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
