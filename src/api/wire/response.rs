//! Successes and errors as HTTP responses.

use axum::Json;
use axum::body::Body as HttpBody;
use axum::response::{IntoResponse, Response};
use delayd_wire::{ErrorCode, Failure, SuccessAnswer, WasStored};
use http::{HeaderName, HeaderValue, header};
use serde::Serialize;

use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::request_id;
use crate::model::task::State;

impl<T: Serialize> IntoResponse for Success<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&SuccessAnswer::of(self.fields)) {
            Ok(text) => json(text),
            Err(error) => {
                tracing::error!(%error, "An answer cannot be written as JSON: {error}");
                Error::Internal.into_response()
            }
        }
    }
}

/// An answer with this JSON.
pub(crate) fn json(text: Vec<u8>) -> Response {
    let mut response = Response::new(HttpBody::from(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        self.log();
        self.with_body(self.body())
    }
}

impl Error {
    /// The JSON of the answer.
    pub(crate) fn body(&self) -> Failure {
        let dm_error = self.code();
        Failure {
            dm_error,
            error_msg: self.message(),
            state: match self {
                Self::Stale(state) | Self::Conflict(_, state) => Some(*state),
                Self::CancelPending(_) => Some(State::Leased),
                _ => None,
            },
            stored: self.was_stored(),
            cancel_pending: matches!(self, Self::CancelPending(_)).then_some(true),
            request_id: if dm_error == ErrorCode::Internal { request_id::current() } else { None },
            failed: None,
            results: None,
        }
    }

    /// The answer with this JSON.
    pub(crate) fn with_body(&self, body: Failure) -> Response {
        let stored = body.stored;
        let mut response = (self.status(), Json(body)).into_response();
        response.extensions_mut().insert(self.code());
        if let Some(stored) = stored {
            response.headers_mut().insert(
                HeaderName::from_static(WasStored::HEADER),
                HeaderValue::from_static(stored.as_str()),
            );
        }
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code() == ErrorCode::Unauthenticated {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::testing::json_of;
    use crate::{store, topic};

    #[tokio::test]
    async fn every_row_of_the_error_table_has_its_status() {
        let check = async |error: Error, status: u16, dm_error: u16, retry_after: Option<&str>| {
            let said = format!("{error:?}");
            let response = error.into_response();
            let after = response
                .headers()
                .get("retry-after")
                .map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(
                (response.status().as_u16(), after.as_deref()),
                (status, retry_after),
                "{said}"
            );
            let body = json_of(response).await;
            assert_eq!(body["dm_error"], dm_error, "{said}");
            assert!(!body["error_msg"].as_str().unwrap().contains("secret"), "{said}: {body}");
        };
        check(Error::invalid("x"), 400, 1000, None).await;
        check(Error::Unauthenticated("x"), 401, 1001, None).await;
        check(Error::Forbidden("x".into()), 403, 1003, None).await;
        let too_fast = |millis| Error::TooFast {
            rate: "1/s".parse().unwrap(),
            wait: Duration::from_millis(millis),
        };
        check(too_fast(5), 429, 1029, Some("1")).await;
        check(too_fast(2001), 429, 1029, Some("3")).await;
        check(Error::no_task(), 404, 1004, None).await;
        check(Error::MethodNotAllowed("POST"), 405, 1005, None).await;
        check(Error::Stale(State::Dead), 409, 1009, None).await;
        check(Error::Conflict("key", State::Delivered), 409, 1009, None).await;
        check(Error::CancelPending("task_id"), 409, 1009, None).await;
        check(Error::TakenId, 409, 1009, None).await;
        check(Error::OwnTask, 409, 1010, None).await;
        check(Error::TooLarge("x".into()), 413, 1013, None).await;
        check(Error::MediaType, 415, 1015, None).await;
        check(Error::ContentEncoding, 415, 1015, None).await;
        check(topic::Error::TooMany(7).into(), 429, 1029, Some("60")).await;
        check(store::Error::KeyReused.into(), 422, 1022, None).await;
        check(store::Error::OverQuota.into(), 429, 1029, Some("60")).await;
        check(Error::Internal, 500, 2000, None).await;
        check(store::Error::Corrupt("secret".into()).into(), 500, 2000, None).await;
        check(store::Error::Unavailable("secret".into()).into(), 503, 2003, Some("1")).await;
        check(store::Error::Full("secret".into()).into(), 503, 2003, Some("1")).await;
        check(store::Error::StaleEntry.into(), 503, 2003, Some("1")).await;
        check(store::Error::Misconfigured("secret".into()).into(), 503, 2003, Some("1")).await;
        check(Error::Unavailable("draining"), 503, 2003, Some("1")).await;
    }

    /// A load balancer passed calls on that may have been stored.
    #[tokio::test]
    async fn a_503_says_whether_the_call_was_stored() {
        let check = async |error: Error, expected: Option<&str>| {
            let said = format!("{error:?}");
            let response = error.into_response();
            let header = response.headers().get(WasStored::HEADER).cloned();
            assert_eq!(header.as_ref().map(|value| value.to_str().unwrap()), expected, "{said}");
            assert_eq!(json_of(response).await["stored"].as_str(), expected, "{said}");
        };
        let away = || Error::from(store::Error::Unavailable("x".into()));
        check(Error::Unavailable("draining"), Some("no")).await;
        check(store::Error::Full("x".into()).into(), Some("no")).await;
        check(store::Error::StaleEntry.into(), Some("no")).await;
        check(Error::Unconfirmed("too slow"), Some("unknown")).await;
        check(away(), Some("unknown")).await;
        check(store::Error::Moving("x".into()).into(), Some("unknown")).await;
        crate::api::wire::error::reading(check(away(), Some("no"))).await;
        check(Error::Internal, None).await;
        check(store::Error::OverQuota.into(), None).await;
    }

    #[tokio::test]
    async fn a_conflict_carries_the_tasks_state_and_our_fault_the_request_id() {
        assert_eq!(
            json_of(Error::Stale(State::Delivered).into_response()).await["state"],
            "delivered"
        );
        let pending = json_of(Error::CancelPending("task_id").into_response()).await;
        assert_eq!(
            (&pending["state"], &pending["cancel_pending"]),
            (&"leased".into(), &true.into())
        );
        let id = HeaderValue::from_static("req-1");
        let response = request_id::scope(id, async { Error::Internal.into_response() }).await;
        assert_eq!(json_of(response).await["request_id"], "req-1");
    }
}
