//! The door: whether a request is worked on at once, stands in line for a moment, or is turned away. Before everything else, for what is
//! turned away has to cost next to nothing.
//!
//! ```text
//! a head has come ─▶ a free slot? ─ yes ─▶ router
//!                        │ no                ▲
//!                        └─▶ in line ────────┘ a slot in time
//!                               └─▶ 503 after 150 ms, unread
//! ```
//!
//! There are as many slots as requests may be worked on at a time. There is a line before them because a refusal is not free: turned away
//! at once, three times too many callers come back at once, and saying no takes the processor from those in hand. The line paces them; a
//! longer one would only let every answer come too late.
//!
//! A slot is taken before the body is read, and given back where the body does not come with its head ([`super::body`]): who drips holds
//! up nobody.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use super::error::Error;
use super::layers::{Slot, say_if_last};
use super::{body, request_id};

/// How long a request may stand in line. With what it takes to read and to answer it, a refusal comes within 300 ms.
const PATIENCE: Duration = Duration::from_millis(150);

/// Where requests wait for a slot, first come, first served. Cheap to clone; clones share the slots.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Semaphore>);

impl Line {
    pub(super) fn before(slots: usize) -> Self {
        Self(Arc::new(Semaphore::new(slots)))
    }

    /// A slot, if there is one in time.
    pub(super) async fn slot(&self) -> Result<Slot, Error> {
        if let Ok(permit) = self.0.clone().try_acquire_owned() {
            return Ok(Slot::of(permit));
        }
        match tokio::time::timeout(PATIENCE, self.0.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Slot::of(permit)),
            Ok(Err(_)) | Err(_) => {
                Err(Error::Unavailable("too many requests at once, so this one was not looked at: repeat it"))
            }
        }
    }
}

/// The router behind its door.
#[derive(Clone, Debug)]
pub struct Edge {
    router: Router,
    door: Option<Door>,
}

#[derive(Clone, Debug)]
struct Door {
    line: Line,
    draining: watch::Receiver<bool>,
}

/// Routes that anyone may enter at any time.
impl From<Router> for Edge {
    fn from(router: Router) -> Self {
        Self { router, door: None }
    }
}

impl Edge {
    pub(super) fn behind(line: Line, draining: watch::Receiver<bool>, router: Router) -> Self {
        Self { router, door: Some(Door { line, draining }) }
    }

    pub(super) async fn answer(self, mut request: Request) -> Response {
        if let Some(door) = &self.door
            && is_work(&request)
        {
            match door.line.slot().await {
                Ok(slot) => drop(request.extensions_mut().insert(slot)),
                Err(refusal) => return door.turn_away(request, refusal),
            }
        }
        match self.router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// An instance that turns work away is alive, and says so.
fn is_work(request: &Request) -> bool {
    request.uri().path().starts_with("/delay/")
}

impl Door {
    fn turn_away(&self, request: Request, refusal: Error) -> Response {
        let (head, body) = request.into_parts();
        let id = request_id::of(&head.headers);
        tracing::debug!(method = %head.method, path = head.uri.path(), request_id = id, "Turned a request away");
        body::refuse(&head.headers, body);
        let mut response = refusal.into_response();
        request_id::name(&mut response, id);
        say_if_last(&mut response, head.version, &self.draining);
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::{get, post};
    use http::StatusCode;

    use super::*;
    use crate::api::testing::json_of;

    /// A door with so many slots, before a handler that never ends and a health check.
    fn edge(slots: usize) -> (Edge, watch::Sender<bool>) {
        let router = Router::new()
            .route("/delay/task/add", post(std::future::pending::<()>))
            .route("/healthz", get(async || "alive"));
        let draining = watch::Sender::new(false);
        (Edge::behind(Line::before(slots), draining.subscribe(), router), draining)
    }

    fn add() -> Request {
        Request::post("/delay/task/add").header("x-request-id", "mine").body(Body::from("{}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_slot_in_time_is_turned_away_under_his_name_and_health_is_not() {
        let (edge, draining) = edge(0);
        let began = tokio::time::Instant::now();
        let response = edge.clone().answer(add()).await;
        assert_eq!(began.elapsed().as_millis() / 10, PATIENCE.as_millis() / 10);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(response.headers()["x-request-id"], "mine");
        assert!(!response.headers().contains_key("connection"));
        assert_eq!(json_of(response).await["dm_error"], 2003);
        let healthy = edge.clone().answer(Request::get("/healthz").body(Body::empty()).unwrap()).await;
        assert_eq!(healthy.status(), StatusCode::OK);
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
        assert!(!second.is_finished(), "turned away, though there was a slot");
    }
}
