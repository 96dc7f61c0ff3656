//! What stands around every handler that works on tasks, from the outside in.
//!
//! ```text
//! time ─▶ body ─▶ a slot ─▶ the topic in the body ─▶ handler ─▶ room for the answer
//! ```
//!
//! One layer of the router, for each costs every request several allocations. Not around the health checks: an instance that sheds
//! load is alive.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::auth::Caller;
use super::body::{self, JsonBody};
use super::budget::Budget;
use super::door::{Line, Slot};
use super::error::Error;
use super::room::take_room;

/// What a group of routes is worked on with.
#[derive(Debug)]
pub(super) struct Work {
    /// The longest time from a request's head to its answer, the reading of a dripping body included.
    pub(super) timeout: Duration,
    /// The most bytes of a body.
    pub(super) limit: body::Limit,
    /// All bytes in hand.
    pub(super) budget: Budget,
    /// Where a request waits for a slot that gave its own back.
    pub(super) line: Line,
    /// Whether an answer for which there is no room may be held back. What a batch has stored cannot be taken back.
    pub(super) may_hold_back: bool,
}

/// The layer.
pub(super) async fn layer(State(work): State<Arc<Work>>, mut request: Request, next: Next) -> Response {
    let deadline = Deadline::after(work.timeout);
    request.extensions_mut().insert(deadline.clone());
    deadline.bound(work.answer(request, next)).await
}

impl Work {
    async fn answer(&self, request: Request, next: Next) -> Response {
        let response = match self.ready(request).await {
            // The request drops its extensions long before its end: what holds the slot to it is here.
            Ok((request, _slot)) => next.run(request).await,
            Err(error) => error.into_response(),
        };
        if self.may_hold_back { take_room(&self.budget, response) } else { response }
    }

    /// The request with its body, and its slot: the one that it got at the door, or, if its body was long in coming, another.
    async fn ready(&self, request: Request) -> Result<(Request, Slot), Error> {
        let (mut head, body) = request.into_parts();
        let whole = body::read(&mut head, body, &self.limit, &self.budget).await?;
        let slot = match head.extensions.remove() {
            Some(slot) => slot,
            None => self.line.slot().await?,
        };
        // A route that nobody guards is our fault, and stays closed.
        let caller: &Caller = head.extensions.get().ok_or(Error::Internal)?;
        caller.check_topic(head.uri.path(), &whole)?;
        head.extensions.insert(JsonBody(whole));
        // What outlives the request may take the slot along.
        head.extensions.insert::<Slot>(slot.clone());
        Ok((Request::from_parts(head, Body::empty()), slot))
    }
}

/// When a request has to be answered.
#[derive(Clone, Debug)]
pub(super) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + limit)))
    }

    /// The caller has asked to be kept waiting for as long.
    pub(super) fn put_off(&self, wait: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += wait;
    }

    fn moment(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, if it comes by then.
    async fn bound(&self, answer: impl Future<Output = Response>) -> Response {
        let mut answer = pin!(answer);
        loop {
            let moment = self.moment();
            match tokio::time::timeout_at(moment, &mut answer).await {
                Ok(response) => return response,
                Err(_) if self.moment() > moment => {}
                Err(_) => {
                    let slow = Error::Unavailable("the request took too long, so it is not confirmed: repeat it");
                    return slow.into_response();
                }
            }
        }
    }
}
