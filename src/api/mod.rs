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
//! - `routes`, `openapi`, `docs`: the calls, their description, and a page to read it by.
//!
//! # Invariants
//!
//! - A 2xx on add means that the task is kept. Whatever is not confirmed is 503, and said to be so.
//! - Nothing internal (a store's text, a path, a panic) is in an answer; it is in the log, under the request's id.
//! - An unknown field is refused, never ignored.
//!
//! Absent on purpose: policy of retries (`outcome`), and timers per task. Only pulls with `wait` wait
//! for something to fall due.

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

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use http::Uri;

use handlers::migration::{adopt, transfer};
use handlers::task::{add, get as get_task, list, manage, pull, settle};
use handlers::topic::{manage as topic, policy};
use handlers::{dead, destination, health, metrics};
use middleware::concurrency_limit::Line;
use middleware::context::{Work, Works};
use middleware::memory_budget::Budget;
use middleware::pipeline::Entrance;
use params::Limit;
use routes::{Calls, by, reading};
use wire::error::Error;

pub use auth::{TokenParams, Tokens};
pub use middleware::pipeline::Edge;
pub use openapi::document;
pub use params::Params;
pub use state::{Api, Parts};
pub use transport::listener::{Patience, ServerParams, listen, serve};

/// Every route, and the way to them.
pub fn edge(api: Arc<Api>) -> Edge {
    let line = Line::before(api.params.concurrency);
    let (budget, timeout) = (Budget::new(api.params.bodies), api.params.timeout);
    let work = |limit: &Limit, budget: Budget, may_hold_back| Work {
        timeout,
        limit: limit.clone(),
        budget,
        line: line.clone(),
        may_hold_back,
    };
    let works = Works {
        batches: work(&api.batch_body_limit, budget.of_batches(), false),
        contents: work(&api.body_limit, budget.clone(), true),
        others: work(&Works::other_limit(&api.body_limit), budget, true),
    };
    let (tokens, draining, calls) = (api.tokens.clone(), api.draining.clone(), calls(&api));
    let router = router(api, &calls);
    Edge::behind(Entrance { line, tokens, works, calls, draining }, router)
}

/// Every call about tasks.
fn calls(api: &Arc<Api>) -> Calls {
    Calls::default()
        .with("/delay/task/add", by(api, add::add))
        .with("/delay/task/add_batch", by(api, add::add_batch))
        .with("/delay/task/adopt", by(api, adopt::adopt))
        .with("/delay/task/pull", by(api, pull::pull))
        .with("/delay/task/ack", by(api, settle::ack))
        .with("/delay/task/nack", by(api, settle::nack))
        .with("/delay/task/extend", by(api, settle::extend))
        .with("/delay/task/cancel", by(api, manage::cancel))
        .with("/delay/task/update", by(api, manage::update))
        .with("/delay/task/get", reading(by(api, get_task::get)))
        .with("/delay/task/list", reading(by(api, list::list)))
        .with("/delay/task/records", by(api, transfer::records))
        .with("/delay/task/moved", by(api, transfer::moved))
        .with("/delay/dead/causes", reading(by(api, dead::causes)))
        .with("/delay/dead/replay", by(api, dead::replay))
        .with("/delay/dead/purge", by(api, dead::purge))
        .with("/delay/topic/list", reading(by(api, topic::list)))
        .with("/delay/topic/get", reading(by(api, topic::get)))
        .with("/delay/topic/set", by(api, policy::set))
        .with("/delay/topic/pause", by(api, topic::pause))
        .with("/delay/topic/resume", by(api, topic::resume))
        .with("/delay/topic/purge", by(api, topic::purge))
        .with("/delay/topic/forecast", reading(by(api, topic::forecast)))
        .with("/delay/topic/delete", by(api, topic::delete))
        .with("/delay/destination/list", reading(by(api, destination::list)))
        .with("/delay/destination/hold", by(api, destination::hold))
        .with("/delay/destination/release", by(api, destination::release))
}

/// Every other route.
fn router(api: Arc<Api>, calls: &Calls) -> Router {
    let health = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    let pages = Router::new()
        .route("/metrics", get(metrics::serve))
        .route("/openapi.json", get(openapi::serve))
        .route("/", get(docs::home))
        .route("/docs", get(docs::page))
        .route("/docs/explorer.js", get(docs::script))
        .route("/docs/explorer.css", get(docs::style))
        .route("/docs/icon.svg", get(docs::icon));
    // For those who ask for a call by another method.
    let others = calls.paths().fold(Router::new(), |router, path| router.route(path, post(no_way_here)));
    let routes = others.merge(health).merge(pages);
    routes.fallback(no_such_route).method_not_allowed_fallback(wrong_method).with_state(api)
}

/// A call that comes by the router has passed nobody who asked who calls: our fault, and the way stays closed.
async fn no_way_here() -> Error {
    Error::Internal
}

async fn no_such_route() -> Error {
    Error::no_route()
}

async fn wrong_method(uri: Uri) -> Error {
    Error::MethodNotAllowed(if uri.path().starts_with("/delay/") { "POST" } else { "GET" })
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
