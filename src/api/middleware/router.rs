//! The router, and what every request passes, from the outside in.
//!
//! ```text
//! answer head ─▶ log ─▶ panic ─▶ admission ─▶ handler
//! ```
//!
//! It is one layer of each route. axum puts each layer in a box for each request, so the first
//! three are functions and no layers of their own.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::any;
use futures_util::FutureExt;
use http::{HeaderValue, Uri, header};

use crate::api::auth::{About, Access};
use crate::api::middleware::admission::admit;
use crate::api::middleware::catch_panic::catch_panic;
use crate::api::middleware::request_log::RequestLine;
use crate::api::middleware::route::Route;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::api::wire::request_id;
use crate::model::token::Scope;

/// What stands for all paths that are no route, in metrics.
pub(crate) const OTHER: &str = "other";

/// The table.
pub(crate) struct Routes {
    all: Vec<Route>,
    /// Stand for all paths that are no route, with any method. A `POST` below `/delay/` is read and
    /// checked like a call, so callers without `admin` cannot find out which routes exist.
    unknown: Route,
    unknown_in: [Route; 4],
}

impl Routes {
    /// Numbers the rows, and answers other methods.
    pub(crate) fn of(rows: Vec<Route>) -> Self {
        let with_row = |(row, route): (usize, Route)| Route {
            row,
            handler: route.handler.fallback(wrong_method),
            ..route
        };
        let all: Vec<Route> = rows.into_iter().enumerate().map(with_row).collect();
        let unknown = |path, access| {
            let row = all.len();
            Route { row, access, ..Route::part(path, any(async || Error::no_route())) }
        };
        let admin = |about| Access::Token(&[Scope::Admin], about);
        let unknown_in = [
            unknown("/delay/", admin(About::Topic)),
            unknown("/delay/{*path}", admin(About::Topic)),
            unknown("/docs/", Access::Open),
            unknown("/docs/{*path}", Access::Open),
        ];
        let unknown = unknown("", admin(About::All));
        Self { all, unknown, unknown_in }
    }

    /// The rows, in order.
    pub(crate) fn all(&self) -> &[Route] {
        &self.all
    }

    /// The router.
    pub(crate) fn router(&'static self, api: Arc<Api>) -> Router {
        let handler = |route: &'static Route| {
            let pass = from_fn_with_state((api.clone(), route), pass);
            route.handler.clone().layer(pass).with_state(api.clone())
        };
        let routes = self.all.iter().chain(&self.unknown_in);
        routes
            .fold(Router::new(), |router, route| router.route(route.path, handler(route)))
            .fallback_service(handler(&self.unknown))
    }
}

/// Runs a request with its id, which is in the answer, and closes the connection while the instance
/// is leaving: a caller who repeats the request then opens one to another instance.
async fn pass(
    State((api, route)): State<(Arc<Api>, &'static Route)>,
    request: Request,
    next: Next,
) -> Response {
    let (id, line) = (request_id::of(request.headers()), RequestLine::of(&request));
    // An async block would hold the future twice, and each request copies it.
    let answer = catch_panic(admit(&api, route, request, next));
    let answer = answer.inspect(|answer| {
        if let Some(line) = line {
            line.log(answer);
        }
    });
    let mut answer = request_id::scope(id, answer).await;
    if api.is_leaving() {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

async fn wrong_method(uri: Uri) -> Error {
    Error::MethodNotAllowed(if uri.path().starts_with("/delay/") { "POST" } else { "GET" })
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.iter().map(|route| route.path)).finish()
    }
}
