//! What a caller is told when a call fails: the only [`IntoResponse`] for errors, and the whole error table.
//!
//! The parts below know no HTTP. Here their errors become an HTTP status (the class), a `dm_error` (the case) and
//! one English sentence for the caller. What is internal goes into the log, once, with the request's id; it never
//! goes into the answer.

use std::borrow::Cow;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use super::request_id;
use crate::task::State;
use crate::{store, topic};

/// Seconds after which an unconfirmed call may be repeated.
const REPEAT_AFTER: u16 = 1;
/// Seconds after which a full registry may be asked again: room is made by an operator, not by time.
const QUOTA_AFTER: u16 = 60;

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Error {
    /// The body cannot be taken; the sentence names the field and what would be right.
    #[error("{0}")]
    Invalid(String),
    /// No such task, topic or route.
    #[error("{0}")]
    NotFound(Cow<'static, str>),
    /// The route takes another method.
    #[error("this route takes {0} only")]
    MethodNotAllowed(&'static str),
    /// The task stands elsewhere.
    #[error("receipt: it no longer holds the task, which is {} now", .0.as_str())]
    Stale(State),
    /// A body or a content over its limit.
    #[error("{0}")]
    TooLarge(String),
    /// A content-type that is not JSON.
    #[error("content-type: must be application/json, or absent")]
    MediaType,
    /// No topic can be had, or the store fails.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// One topic too many.
    #[error("topic: it is new, and there are {0} topics already, as many as limits.topics allows")]
    TooManyTopics(usize),
    /// Not now: draining, overloaded, or too slow.
    #[error("{0}")]
    Unavailable(&'static str),
    /// A bug.
    #[error("something went wrong on our side; the log has more under this request_id")]
    Internal,
}

/// The JSON of a failed call.
#[derive(Serialize)]
struct Body {
    dm_error: u16,
    error_msg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl Error {
    /// A refused body, in a sentence.
    pub(super) fn invalid(sentence: impl Into<String>) -> Self {
        Self::Invalid(sentence.into())
    }

    /// No task of that id.
    pub(super) fn no_task() -> Self {
        Self::NotFound("task_id: there is no such task in this topic".into())
    }

    /// The case, as the wire names it.
    pub(super) fn dm_error(&self) -> u16 {
        match self {
            Self::Invalid(_) => 1000,
            Self::NotFound(_) => 1004,
            Self::MethodNotAllowed(_) => 1005,
            Self::Stale(_) => 1009,
            Self::TooLarge(_) => 1013,
            Self::MediaType => 1015,
            Self::TooManyTopics(_) => 1029,
            Self::Store(store::Error::KeyReused) => 1022,
            Self::Store(store::Error::OverQuota) => 1029,
            Self::Store(store::Error::Corrupt(_)) | Self::Internal => 2000,
            Self::Store(_) | Self::Unavailable(_) => 2003,
        }
    }

    /// The class.
    fn status(&self) -> StatusCode {
        match self.dm_error() {
            1000 => StatusCode::BAD_REQUEST,
            1004 => StatusCode::NOT_FOUND,
            1005 => StatusCode::METHOD_NOT_ALLOWED,
            1009 => StatusCode::CONFLICT,
            1013 => StatusCode::PAYLOAD_TOO_LARGE,
            1015 => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            1022 => StatusCode::UNPROCESSABLE_ENTITY,
            1029 => StatusCode::TOO_MANY_REQUESTS,
            2003 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The sentence for the caller. A store's own text may name hosts and paths, so it is replaced.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Store(store::Error::Unavailable(_) | store::Error::Moving(_) | store::Error::Misconfigured(_)) => {
                "the store is out of reach, so this is not confirmed: repeat it".into()
            }
            Self::Store(store::Error::Full(_)) => "the store is full, so this is not confirmed: repeat it later".into(),
            Self::Store(store::Error::KeyReused) => {
                "idempotency_key: was used with another body; repeat the first one, or take a new key".into()
            }
            Self::Store(store::Error::OverQuota) => {
                "topic: its quota of pending tasks is used up; repeat it when some have been delivered".into()
            }
            Self::Store(store::Error::Corrupt(_)) => Self::Internal.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether a store, or we ourselves, cannot for the moment.
    pub(super) fn is_unavailable(&self) -> bool {
        self.dm_error() == 2003
    }

    /// Seconds for `Retry-After`.
    fn retry_after(&self) -> Option<u16> {
        match self.dm_error() {
            2003 => Some(REPEAT_AFTER),
            1029 => Some(QUOTA_AFTER),
            _ => None,
        }
    }

    /// Writes down what the caller is not told.
    pub(super) fn log(&self) {
        let Self::Store(error) = self else { return };
        let request_id = request_id::current();
        let request_id = request_id.as_deref();
        if matches!(error, store::Error::Corrupt(_)) {
            tracing::error!(request_id, %error, "A request failed: {error}");
        } else {
            // The store's own trouble is logged where it begins and ends, not once for each caller.
            tracing::debug!(request_id, %error, "A request was not confirmed: {error}");
        }
    }
}

impl From<topic::Error> for Error {
    fn from(error: topic::Error) -> Self {
        match error {
            topic::Error::TooMany(count) => Self::TooManyTopics(count),
            topic::Error::Store(error) => Self::Store(error),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        self.log();
        let dm_error = self.dm_error();
        let body = Body {
            dm_error,
            error_msg: self.message(),
            state: if let Self::Stale(state) = self { Some(state) } else { None },
            request_id: if dm_error == 2000 { request_id::current() } else { None },
        };
        let mut response = (self.status(), Json(body)).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::json_of;

    #[tokio::test]
    async fn every_row_of_the_error_table_has_its_status() {
        let check = async |error: Error, status: u16, dm_error: u16, retry_after: Option<&str>| {
            let said = format!("{error:?}");
            let response = error.into_response();
            let after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!((response.status().as_u16(), after.as_deref()), (status, retry_after), "{said}");
            let body = json_of(response).await;
            assert_eq!(body["dm_error"], dm_error, "{said}");
            assert!(!body["error_msg"].as_str().unwrap().contains("secret"), "{said}: {body}");
        };
        check(Error::invalid("x"), 400, 1000, None).await;
        check(Error::no_task(), 404, 1004, None).await;
        check(Error::MethodNotAllowed("POST"), 405, 1005, None).await;
        check(Error::Stale(State::Dead), 409, 1009, None).await;
        check(Error::TooLarge("x".into()), 413, 1013, None).await;
        check(Error::MediaType, 415, 1015, None).await;
        check(topic::Error::TooMany(7).into(), 429, 1029, Some("60")).await;
        check(store::Error::KeyReused.into(), 422, 1022, None).await;
        check(store::Error::OverQuota.into(), 429, 1029, Some("60")).await;
        check(Error::Internal, 500, 2000, None).await;
        check(store::Error::Corrupt("secret".into()).into(), 500, 2000, None).await;
        check(store::Error::Unavailable("secret".into()).into(), 503, 2003, Some("1")).await;
        check(store::Error::Full("secret".into()).into(), 503, 2003, Some("1")).await;
        check(store::Error::Misconfigured("secret".into()).into(), 503, 2003, Some("1")).await;
        check(Error::Unavailable("draining"), 503, 2003, Some("1")).await;
    }

    #[tokio::test]
    async fn a_conflict_carries_the_tasks_state_and_our_fault_the_request_id() {
        assert_eq!(json_of(Error::Stale(State::Delivered).into_response()).await["state"], "delivered");
        let body = request_id::scope("req-1".into(), async { json_of(Error::Internal.into_response()).await }).await;
        assert_eq!(body["request_id"], "req-1");
    }
}
