//! Admission: a call needs a free slot and an authorized caller; a page needs only the
//! authorization.
//!
//! A refusal happens before the body is read, so that it costs little. Health checks take no slot:
//! an overloaded instance is still alive.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Uri};
use tower::{ServiceExt, service_fn};

use crate::api::auth::{Caller, Refused, Tokens};
use crate::api::middleware::audit::{Auditor, CallRecord};
use crate::api::middleware::body;
use crate::api::middleware::concurrency_limit::{ConcurrencyLimit, Slot};
use crate::api::middleware::deadline::Deadline;
use crate::api::middleware::route::{Route, Routed, Routes};
use crate::api::middleware::service::Answers;
use crate::api::wire::error::Error;
use crate::metrics::{Metrics, Rejection};

/// What a request is checked against.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) routes: &'static Routes,
    /// The access tokens.
    pub(crate) tokens: Arc<Tokens>,
    /// The limit of concurrent calls.
    pub(crate) slots: ConcurrencyLimit,
    /// The longest time from a call's admission to its answer.
    pub(crate) timeout: Duration,
    pub(crate) auditor: Auditor,
    pub(crate) metrics: Arc<Metrics>,
    /// The router for all requests that are not calls.
    pub(crate) pages: Router,
}

/// Sends calls to `calls`, and all other requests to the pages.
pub(crate) fn admit<'a, S: Answers<Routed<Body>> + 'a>(
    admission: &'a Admission,
    calls: S,
) -> impl Answers<Request> + 'a {
    service_fn(move |request: Request| async move {
        let mut calls = calls;
        let path = request.uri().path();
        let route = admission.routes.call(request.method(), path);
        let row = admission.routes.row(route, path);
        let answer: Result<Response, Infallible> = match route {
            Some(route) => match admission.call(route, request.uri(), request.headers()).await {
                Ok((caller, slot)) => {
                    let deadline = Deadline::after(admission.timeout);
                    let record = admission.auditor.begin(route, &caller);
                    let target = record.as_deref().map(CallRecord::target);
                    let routed = Routed { route, request, caller, slot, deadline, target };
                    let answer = calls.call(routed).await;
                    if let (Some(record), Ok(response)) = (record, &answer) {
                        record.answered(response);
                    }
                    answer
                }
                Err(refused) => {
                    admission.auditor.refused(route, &refused);
                    Ok(admission.refused(request, refused.error))
                }
            },
            None => match admission.page(&request) {
                Ok(()) => admission.pages.clone().oneshot(request).await,
                Err(refused) => Ok(admission.refused(request, refused.error)),
            },
        };
        let Ok(response) = answer;
        admission.metrics.api.answered(row, response.status().as_u16());
        Ok(response)
    })
}

impl Admission {
    async fn call(
        &self,
        route: &Route,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(Caller, Slot), Refused> {
        let slot = self.slots.slot().await?;
        let caller = self.tokens.admit(route.access, uri, headers)?;
        // A call without an access rule is a bug and is refused.
        Ok((caller.ok_or(Error::Internal)?, slot))
    }

    fn page(&self, request: &Request) -> Result<(), Refused> {
        let access = self.routes.access(request.uri().path());
        match self.tokens.admit(access, request.uri(), request.headers())? {
            Some(caller) => Ok(caller.check_topic(access, &[])?),
            None => Ok(()),
        }
    }

    fn refused(&self, request: Request, error: Error) -> Response {
        let reason = match &error {
            Error::Unauthenticated(_) => Some(Rejection::Unauthenticated),
            Error::Forbidden(_) => Some(Rejection::Forbidden),
            Error::TooFast { .. } => Some(Rejection::TokenRate),
            Error::Unavailable(_) => Some(Rejection::Concurrency),
            _ => None,
        };
        if let Some(reason) = reason {
            self.metrics.api.rejected(reason);
        }
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        tracing::debug!(path, %error, "Not admitted to {path}: {error}");
        body::refuse(&head.headers, body);
        error.into_response()
    }
}
