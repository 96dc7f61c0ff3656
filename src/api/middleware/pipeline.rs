//! The one way in: what stands around every route, from the outside in.
//!
//! ```text
//! request id ─▶ trace ─▶ panic ─▶ door ─▶ who calls ─▶ work ─▶ call, or router
//! ```
//!
//! Plain functions that call each other, and no layers of the router: each of those costs every request several allocations, and
//! what is turned away at the door has to cost next to nothing. ([`crate::api::middleware::context`] is for the routes that work on tasks.)

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::api::auth::{Caller, Tokens};
use crate::api::middleware::body;
use crate::api::middleware::concurrency_limit::{Line, Slot};
use crate::api::middleware::context::{Work, Works};
use crate::api::routes::Calls;
use crate::api::wire::error::Error;
use crate::api::wire::request_id;

/// The router behind its door.
#[derive(Clone, Debug)]
pub struct Edge {
    router: Router,
    entrance: Option<Arc<Entrance>>,
}

/// What a request has to pass.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// Where work waits for a slot.
    pub(crate) line: Line,
    /// Who may call.
    pub(crate) tokens: Arc<Tokens>,
    /// How the routes that work on tasks do so.
    pub(crate) works: Works,
    pub(crate) calls: Calls,
    /// True from the moment on at which callers are to go elsewhere.
    pub(crate) draining: watch::Receiver<bool>,
}

/// Routes that anyone may enter at any time.
impl From<Router> for Edge {
    fn from(router: Router) -> Self {
        Self { router, entrance: None }
    }
}

impl Edge {
    pub(crate) fn behind(entrance: Entrance, router: Router) -> Self {
        Self { router, entrance: Some(Arc::new(entrance)) }
    }

    /// Answers one request.
    ///
    /// A future that is handed to another function by value is copied, whole; here each is pinned where it is made.
    pub(crate) async fn answer(self, request: Request) -> Response {
        let Some(entrance) = &self.entrance else { return route(self.router, request).await };
        let (id, version) = (request_id::of(request.headers()), request.version());
        let answering = pin!(entrance.trace(&self.router, request));
        let mut response = request_id::scope(id, answering).await;
        entrance.say_if_last(&mut response, version);
        response
    }
}

impl Entrance {
    /// One line per request. Never a body, a query or a header: they may hold secrets.
    async fn trace(&self, router: &Router, request: Request) -> Response {
        let is_told = tracing::enabled!(tracing::Level::DEBUG);
        let told = is_told.then(|| (Instant::now(), request.method().clone(), request.uri().path().to_owned()));
        let entering = pin!(self.enter(router, request));
        // A handler that panics is our fault, and no reason to drop the connection. (The panic hook logs where.)
        let answered = AssertUnwindSafe(entering).catch_unwind().await;
        let response = answered.unwrap_or_else(|panic| panicked(&*panic));
        if let Some((started, method, path)) = told {
            let (status, latency) = (response.status().as_u16(), started.elapsed());
            let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            let request_id = request_id::current();
            tracing::debug!(%method, path, status, latency_us, request_id, "{method} {path} answered {status} in {latency:?}");
        }
        response
    }

    async fn enter(&self, router: &Router, request: Request) -> Response {
        match self.admit(request.method(), request.uri(), request.headers()).await {
            Ok(Some((work, caller, slot))) => {
                work.answer(self.calls.of(request.uri().path()), request, caller, slot).await
            }
            Ok(None) => route(router.clone(), request).await,
            Err(error) => {
                let (head, body) = request.into_parts();
                let path = head.uri.path();
                tracing::debug!(path, %error, "Not admitted to {path}: {error}");
                body::refuse(&head.headers, body);
                error.into_response()
            }
        }
    }

    /// For a request that works on tasks: how, for whom, and its slot. (An instance that turns work away is alive, and says so.)
    async fn admit(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<(&Work, Caller, Slot)>, Error> {
        let work = self.works.of(method, uri.path());
        let slot = match work {
            Some(_) => Some(self.line.slot().await?),
            None => None,
        };
        let caller = self.tokens.admit(uri, headers)?;
        match (work, slot) {
            // A route that nobody guards is our fault, and stays closed.
            (Some(work), Some(slot)) => Ok(Some((work, caller.ok_or(Error::Internal)?, slot))),
            _ => Ok(None),
        }
    }

    /// While draining, each answer is its connection's last: whoever asks again goes elsewhere, and finds no connection that is
    /// just being closed. (HTTP/2 has no such word; its connections are told when the listener closes.)
    fn say_if_last(&self, response: &mut Response, version: Version) {
        if version != Version::HTTP_2 && *self.draining.borrow() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Answers by the route that the request asks for.
fn route(router: Router, request: Request) -> impl Future<Output = Response> {
    router.oneshot(request).map(|Ok(response)| response)
}

fn panicked(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
    tracing::error!(request_id = request_id::current(), "A request's handler panicked: {text}");
    Error::Internal.into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use http::StatusCode;

    use super::*;
    use crate::api::middleware::concurrency_limit::PATIENCE;
    use crate::api::testing::json_of;

    /// An entrance with so many slots, before a handler that never ends, one that panics, and a health check.
    fn edge(slots: usize) -> (Edge, watch::Sender<bool>) {
        let calls = Calls::default().with("/delay/task/add", |_, _, _| Box::pin(std::future::pending()));
        let router = Router::new().route("/docs/panic", get(panicking)).route("/healthz", get(async || "alive"));
        let draining = watch::Sender::new(false);
        let (line, tokens) = (Line::before(slots), Arc::default());
        let works = Works::for_test(&line);
        (Edge::behind(Entrance { line, tokens, works, calls, draining: draining.subscribe() }, router), draining)
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

    /// It is copied whole on its way to the connection that polls it: an argument more, handed on by value, once made it 10 kB.
    #[test]
    fn the_future_of_a_request_stays_small() {
        let (edge, _draining) = edge(1);
        let size = std::mem::size_of_val(&edge.answer(add()));
        assert!(size <= 4_096, "{size}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_slot_in_time_is_turned_away_under_his_name_and_health_is_not() {
        let (edge, draining) = edge(0);
        let began = Instant::now();
        let response = edge.clone().answer(add()).await;
        assert_eq!(began.elapsed().as_millis() / 10, PATIENCE.as_millis() / 10);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(response.headers()["x-request-id"], "mine");
        assert!(!response.headers().contains_key("connection"));
        assert_eq!(json_of(response).await["dm_error"], 2003);
        assert_eq!(edge.clone().answer(get_of("/healthz")).await.status(), StatusCode::OK);
        draining.send_replace(true);
        assert_eq!(edge.answer(add()).await.headers()["connection"], "close", "whoever asks again goes elsewhere");
    }

    #[tokio::test(start_paused = true)]
    async fn who_stands_in_line_takes_the_slot_that_becomes_free() {
        let (edge, _draining) = edge(1);
        let first = tokio::spawn(edge.clone().answer(add()));
        tokio::task::yield_now().await;
        let second = tokio::spawn(edge.clone().answer(add()));
        tokio::time::sleep(PATIENCE / 2).await;
        first.abort();
        tokio::time::sleep(2 * PATIENCE).await;
        assert!(!second.is_finished(), "turned away, though a slot became free in time");
    }

    #[tokio::test]
    async fn a_panic_is_our_fault_with_a_request_id_and_without_its_text() {
        let (edge, _draining) = edge(1);
        let response = edge.answer(get_of("/docs/panic")).await;
        assert_eq!((response.status().as_u16(), &response.headers()["x-request-id"]), (500, &"mine".parse().unwrap()));
        let body = json_of(response).await;
        assert_eq!((&body["dm_error"], &body["request_id"]), (&2000.into(), &"mine".into()));
        assert!(!body.to_string().contains("secret"), "{body}");
    }
}
