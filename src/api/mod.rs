//! The HTTP API: from a request to a call of the store, and back to an answer.
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
//! - `concurrency_limit`, `memory_budget`: how many calls, and bytes of them, there may be.
//! - `state`: what the handlers share.
//! - `middleware`: what every request passes: slot, token, audit, deadline, body, memory.
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
mod concurrency_limit;
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
mod memory_budget;
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

use std::sync::Arc;

use axum::Router;
use serde_json::Value;

use middleware::router::OTHER;
use routes::ROUTES;

pub use auth::{TokenParams, Tokens};
pub use params::Params;
pub use state::{Api, Parts};
pub use transport::listener::{IoTimeouts, ServerParams, listen, serve};

/// The whole API.
pub fn edge(api: Arc<Api>) -> Router {
    ROUTES.router(api)
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
