//! What stands around every handler that works on tasks, from the outside in.
//!
//! ```text
//! time ─▶ body ─▶ a slot ─▶ the topic in the body ─▶ handler ─▶ room for the answer
//! ```
//!
//! Not around the health checks: an instance that sheds load is alive.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Method;
use tokio::time::Instant;

use crate::api::auth::Caller;
use crate::api::middleware::body;
use crate::api::middleware::concurrency_limit::{Line, Slot};
use crate::api::middleware::memory_budget::Budget;
use crate::api::middleware::response_budget::take_room;
use crate::api::params::Limit;
use crate::api::routes::Call;
use crate::api::wire::error::Error;
use crate::api::wire::long_body::{LONG, reading};

/// What a group of routes is worked on with.
#[derive(Debug)]
pub(crate) struct Work {
    /// The longest time from a request's head to its answer, the reading of a dripping body included.
    pub(crate) timeout: Duration,
    /// The most bytes of a body.
    pub(crate) limit: Limit,
    /// All bytes in hand.
    pub(crate) budget: Budget,
    /// Where a request waits for a slot that gave its own back.
    pub(crate) line: Line,
    /// Whether an answer for which there is no room may be held back. What a batch has stored cannot be taken back.
    pub(crate) may_hold_back: bool,
}

/// The longest body of a request that brings no content. Reading it several times over takes a few milliseconds.
const MAX_OTHER: usize = 1 << 20;

/// The three groups.
#[derive(Debug)]
pub(crate) struct Works {
    /// Those that many tasks are sent to at once: of them more bytes are read.
    pub(crate) batches: Work,
    /// Those that bring one task's content.
    pub(crate) contents: Work,
    pub(crate) others: Work,
}

impl Works {
    /// The limit of bodies that bring no content, where `limit` is that of bodies that bring one.
    pub(crate) fn other_limit(limit: &Limit) -> Limit {
        limit.at_most(MAX_OTHER)
    }

    #[cfg(test)]
    pub(crate) fn for_test(line: &Line) -> Self {
        let work = |may_hold_back| Work {
            timeout: Duration::from_secs(10),
            limit: Limit::of(1 << 20),
            budget: Budget::new(1 << 20),
            line: line.clone(),
            may_hold_back,
        };
        Self { batches: work(false), contents: work(true), others: work(true) }
    }

    /// That of a request; `None`: it does not work on tasks, and is answered whatever its body.
    pub(crate) fn of(&self, method: &Method, path: &str) -> Option<&Work> {
        match path {
            _ if method != Method::POST => None,
            "/delay/task/add_batch" | "/delay/task/adopt" => Some(&self.batches),
            "/delay/task/add" | "/delay/task/update" => Some(&self.contents),
            _ => path.starts_with("/delay/").then_some(&self.others),
        }
    }
}

/// What a handler gets to know beside its request.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) caller: Caller,
    /// What outlives the request may take it along.
    pub(crate) slot: Slot,
    pub(crate) deadline: Deadline,
}

impl Work {
    /// Answers a request that was let in, by the call of its path.
    pub(crate) async fn answer(&self, call: Option<&Call>, request: Request, caller: Caller, slot: Slot) -> Response {
        let deadline = Deadline::after(self.timeout);
        let answered = pin!(async {
            let response = match self.ready(request, caller, slot, &deadline).await {
                Ok((request, visit, body)) => {
                    // What holds the slot to the answer is here, whatever becomes of the visit.
                    let _slot = visit.slot.clone();
                    match call {
                        Some(call) => call(request, visit, body).await,
                        None => Error::no_route().into_response(),
                    }
                }
                Err(error) => error.into_response(),
            };
            if self.may_hold_back { take_room(&self.budget, response) } else { response }
        });
        deadline.bound(answered).await
    }

    /// The request, its visit, and its body. The slot is the one that it got at the door, or, if its body was long in coming, another.
    async fn ready(
        &self,
        request: Request,
        caller: Caller,
        slot: Slot,
        deadline: &Deadline,
    ) -> Result<(Request, Visit, Bytes), Error> {
        let (head, body) = request.into_parts();
        let mut slot = Some(slot);
        let body = body::read(&head.headers, body, &mut slot, &self.limit, &self.budget).await?;
        let slot = match slot {
            Some(slot) => slot,
            None => self.line.slot().await?,
        };
        match body.len() {
            ..=LONG => caller.check_topic(head.uri.path(), &body)?,
            _ => {
                let (caller, path) = (caller.clone(), head.uri.path().to_owned());
                reading(body.clone(), move |body| caller.check_topic(&path, body)).await?;
            }
        }
        let visit = Visit { caller, slot, deadline: deadline.clone() };
        Ok((Request::from_parts(head, Body::empty()), visit, body))
    }
}

/// When a request has to be answered.
#[derive(Clone, Debug)]
pub(crate) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + limit)))
    }

    /// The caller has asked to be kept waiting for as long.
    pub(crate) fn put_off(&self, wait: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += wait;
    }

    fn moment(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, if it comes by then.
    async fn bound(&self, mut answer: Pin<&mut impl Future<Output = Response>>) -> Response {
        loop {
            let moment = self.moment();
            match tokio::time::timeout_at(moment, answer.as_mut()).await {
                Ok(response) => return response,
                Err(_) if self.moment() > moment => {}
                Err(_) => {
                    let slow = Error::Unavailable("the request took too long, so a change is not confirmed: repeat it");
                    return slow.into_response();
                }
            }
        }
    }
}
