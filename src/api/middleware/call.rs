//! What an admitted call brings to its handler, and the extractors of it.
//!
//! A handler names what it needs in its signature: `caller: Caller`, `slot: Slot`,
//! `deadline: Deadline`, `target: KnownTarget`, and `Json(request): Json<Request>` or
//! `RawBody(body): RawBody` as the last.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::api::auth::Caller;
use crate::api::concurrency_limit::Slot;
use crate::api::middleware::audit_target::KnownTarget;
use crate::api::middleware::deadline::Deadline;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::api::wire::json;

/// An admitted call whose body has been read. It is an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedCall {
    pub(crate) caller: Caller,
    /// Work that outlives the request may hold a clone.
    pub(crate) slot: Slot,
    pub(crate) deadline: Deadline,
    /// Where the audit log learns what the call is about.
    pub(crate) target: KnownTarget,
    pub(crate) body: Bytes,
}

/// The body, for handlers that read it themselves.
#[derive(Debug)]
pub(crate) struct RawBody(pub(crate) Bytes);

/// The headers and the body, for handlers that read both.
#[derive(Debug)]
pub(crate) struct RawRequest {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The request, read from the body.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// The call; without it, the request has skipped its admission. That is a bug, so it is refused.
fn call(parts: &Parts) -> Result<&AdmittedCall, Error> {
    parts.extensions.get().ok_or(Error::Internal)
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        call(parts).map(|call| call.caller.clone())
    }
}

impl FromRequestParts<Arc<Api>> for Slot {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        call(parts).map(|call| call.slot.clone())
    }
}

impl FromRequestParts<Arc<Api>> for Deadline {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        call(parts).map(|call| call.deadline.clone())
    }
}

impl FromRequestParts<Arc<Api>> for KnownTarget {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        call(parts).map(|call| call.target.clone())
    }
}

impl FromRequestParts<Arc<Api>> for RawBody {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        call(parts).map(|call| Self(call.body.clone()))
    }
}

impl FromRequest<Arc<Api>> for RawRequest {
    type Rejection = Error;

    async fn from_request(request: Request, _: &Arc<Api>) -> Result<Self, Error> {
        let (parts, _) = request.into_parts();
        let body = call(&parts)?.body.clone();
        Ok(Self { headers: parts.headers, body })
    }
}

impl<T: DeserializeOwned> FromRequestParts<Arc<Api>> for Json<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        json::read(&call(parts)?.body).map(Self)
    }
}
