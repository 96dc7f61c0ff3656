//! What every request passes on its way to the handler, and its answer on its way back.
//!
//! ```text
//! page:  token ─▶ handler
//! call:  slot ─▶ token ─▶ audit ─▶ deadline ─▶ body ─▶ topic ─▶ memory of the answer ─▶ handler
//! ```
//!
//! A refusal happens before the body is read, so that it costs little. Health checks take no slot:
//! an overloaded instance is still alive.

use std::pin::pin;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use crate::api::auth::{Caller, RefusedCall};
use crate::api::concurrency_limit::Slot;
use crate::api::middleware::audit::CallRecord;
use crate::api::middleware::body::{self, read_body};
use crate::api::middleware::call::AdmittedCall;
use crate::api::middleware::deadline::Deadline;
use crate::api::middleware::response_budget::{keep_room, reserve, take_room};
use crate::api::middleware::route::{BodySize, Route};
use crate::api::state::Api;
use crate::api::wire::error::{self, Error};
use crate::metrics::Rejection;

/// Admits a request to its route, and runs it.
pub(crate) async fn admit(api: &Api, route: &Route, request: Request, next: Next) -> Response {
    let is_call = route.is_call() && request.method() == Method::POST;
    let answer = match check(api, route, is_call, request.uri(), request.headers()).await {
        Ok(None) => next.run(request).await,
        Ok(Some((caller, slot))) => {
            let record = CallRecord::begin(&api.audit, route, &caller);
            let deadline = Deadline::after(api.params.timeout);
            let target = record.as_deref().map(CallRecord::target).unwrap_or_default();
            let call = AdmittedCall {
                caller,
                slot,
                deadline: deadline.clone(),
                target,
                body: Bytes::new(),
            };
            let answer = pin!(handle(api, route, call, request, next));
            let answer = deadline.limit(route.only_reads, answer).await;
            let answer = answer.unwrap_or_else(IntoResponse::into_response);
            if let Some(record) = record {
                record.answered(&answer);
            }
            answer
        }
        Err(refused) => {
            if is_call {
                CallRecord::refused(&api.audit, route, &refused);
            }
            refuse(api, request, refused.error)
        }
    };
    api.metrics.api.answered(route.row, answer.status().as_u16());
    answer
}

/// Whether the route may be requested by this caller. A call gets its slot.
async fn check(
    api: &Api,
    route: &Route,
    is_call: bool,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<(Caller, Slot)>, RefusedCall> {
    let slot = match is_call {
        true => Some(api.slots.slot().await?),
        false => None,
    };
    let caller = api.tokens.admit(route.access, uri, headers)?;
    match (slot, caller) {
        (Some(slot), Some(caller)) => Ok(Some((caller, slot))),
        // A call without an access rule is a bug and is refused.
        (Some(_), None) => Err(Error::Internal.into()),
        (None, Some(caller)) => Ok(caller.check_topic(&[]).map(|()| None)?),
        (None, None) => Ok(None),
    }
}

/// Reads the body, checks that the caller may use the topic in it, and calls the handler. The call
/// holds its slot until the answer, even if the handler drops its own.
async fn handle(
    api: &Api,
    route: &Route,
    mut call: AdmittedCall,
    request: Request,
    next: Next,
) -> Result<Response, Error> {
    let (mut head, body) = request.into_parts();
    read_body(api, route, &mut call, &head.headers, body).await?;
    let (slot, caller) = (call.slot.clone(), call.caller.clone());
    let share = match route.size {
        BodySize::Batch => Some(reserve(api, &call)?),
        BodySize::Content | BodySize::Small => None,
    };
    head.extensions.insert(call);
    let answer = next.run(Request::from_parts(head, Body::empty()));
    let answer = match route.only_reads {
        true => error::reading(answer).await,
        false => answer.await,
    };
    drop(slot);
    Ok(match share {
        Some(share) => keep_room(share, answer),
        None => take_room(&api.memory, &caller, answer),
    })
}

fn refuse(api: &Api, request: Request, error: Error) -> Response {
    let reason = match &error {
        Error::Unauthenticated(_) => Some(Rejection::Unauthenticated),
        Error::Forbidden(_) => Some(Rejection::Forbidden),
        Error::TooFast { .. } => Some(Rejection::TokenRate),
        Error::Unavailable(_) => Some(Rejection::Concurrency),
        _ => None,
    };
    if let Some(reason) = reason {
        api.metrics.api.rejected(reason);
    }
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    tracing::debug!(path, %error, "Not admitted to {path}: {error}");
    body::refuse(&head.headers, body);
    error.into_response()
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
