//! What stands around every handler. [`super::router`] puts these in order; each is one small function.

use std::any::Any;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, Version, header};
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::budget::{Budget, Exhausted, held};
use super::door::Line;
use super::error::Error;
use super::request_id;

/// One line per request. Never a body, a query or a header: they may hold secrets.
pub(super) async fn trace(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let (status, latency) = (response.status().as_u16(), started.elapsed());
    let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    let request_id = request_id::current();
    tracing::debug!(%method, path, status, latency_us, request_id, "{method} {path} answered {status} in {latency:?}");
    response
}

/// A handler that panicked is our fault, and no reason to drop the connection. (The panic hook logs where.)
pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
    tracing::error!(request_id = request_id::current(), "A request's handler panicked: {text}");
    Error::Internal.into_response()
}

/// A slot, held by a request and by the work that outlives it.
#[derive(Clone, Debug)]
pub(super) struct Slot(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Slot {
    /// Lets another request have it: this one only waits from here on.
    pub(super) fn free(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Slot {
    pub(super) fn of(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }
}

/// Has each request hold a slot to its end: the one that it got at the door, or, if its body was long in coming, another.
pub(super) async fn shed(State(line): State<Line>, mut request: Request, next: Next) -> Result<Response, Error> {
    let slot = match request.extensions_mut().remove() {
        Some(slot) => slot,
        None => line.slot().await?,
    };
    // What outlives the request may take the slot along; the request itself drops its extensions long before its end.
    request.extensions_mut().insert::<Slot>(slot.clone());
    let response = next.run(request).await;
    drop(slot);
    Ok(response)
}

/// Answers longer than this have to find room; the others are bounded by the number of connections.
const SMALL_ANSWER: usize = 1024;

/// Counts what the answers hold until their callers have read them. One that finds no room is not given, which its body is told by
/// being dropped: pulled tasks go back.
pub(super) async fn room_for_answers(State(budget): State<Budget>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    if length <= SMALL_ANSWER {
        return response;
    }
    match budget.answer(length) {
        Ok(share) => response.map(|body| Body::new(Accounted { body, share: Arc::new(share) })),
        Err(Exhausted) => {
            Error::Unavailable("too many answers are waiting to be read, so nothing was taken: repeat it")
                .into_response()
        }
    }
}

/// An answer with its share, which goes with the bytes, for the server keeps those longer than the body that gave them. It tells
/// its length, or the answer would have no `content-length`.
struct Accounted {
    body: Body,
    share: Arc<OwnedSemaphorePermit>,
}

impl http_body::Body for Accounted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|data| held(data, self.share.clone())))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// While draining, each answer is its connection's last: whoever asks again goes elsewhere, and finds no connection that is
/// just being closed. (HTTP/2 has no such word; its connections are told when the listener closes.)
pub(super) async fn last_answer(
    State(draining): State<watch::Receiver<bool>>,
    request: Request,
    next: Next,
) -> Response {
    let version = request.version();
    let mut response = next.run(request).await;
    say_if_last(&mut response, version, &draining);
    response
}

pub(super) fn say_if_last(response: &mut Response, version: Version, draining: &watch::Receiver<bool>) {
    if version != Version::HTTP_2 && *draining.borrow() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// When a request has to be answered.
#[derive(Clone, Debug)]
pub(super) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    /// The caller has asked to be kept waiting for as long.
    pub(super) fn put_off(&self, wait: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += wait;
    }

    fn moment(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bounds the time from the request's head to its answer, the reading of a dripping body included.
pub(super) async fn timeout(State(limit): State<Duration>, mut request: Request, next: Next) -> Response {
    let deadline = Deadline(Arc::new(Mutex::new(Instant::now() + limit)));
    request.extensions_mut().insert(deadline.clone());
    let mut answer = pin!(next.run(request));
    loop {
        let moment = deadline.moment();
        match tokio::time::timeout_at(moment, &mut answer).await {
            Ok(response) => return response,
            Err(_) if deadline.moment() > moment => {}
            Err(_) => {
                let slow = Error::Unavailable("the request took too long, so it is not confirmed: repeat it");
                return slow.into_response();
            }
        }
    }
}
