//! What a caller is told when a call fails: the only [`IntoResponse`] for errors, and the whole error table.
//!
//! The parts below know no HTTP. Here their errors become an HTTP status (the class), a `dm_error` (the case) and
//! one English sentence for the caller. What is internal goes into the log, once, with the request's id; it never
//! goes into the answer.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use super::add::Item;
use super::request_id;
use crate::rate::Rate;
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
    /// No token, or one that is not known.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The token's scope or topics do not cover this, or another site's page asks.
    #[error("{0}")]
    Forbidden(String),
    /// The token's rate is used up.
    #[error("the token's rate, {rate}, is used up")]
    TooFast {
        /// The rate.
        rate: Rate,
        /// When there is room for one more.
        wait: Duration,
    },
    /// No such task, topic or route.
    #[error("{0}")]
    NotFound(Cow<'static, str>),
    /// The route takes another method.
    #[error("this route takes {0} only")]
    MethodNotAllowed(&'static str),
    /// The task stands elsewhere.
    #[error("receipt: it no longer holds the task, which is {} now", .0.as_str())]
    Stale(State),
    /// The task stands where this cannot be done.
    #[error("task_id: the task is {}, so this cannot be done any more", .0.as_str())]
    Conflict(State),
    /// It is leased, and will be cancelled unless it succeeds.
    #[error("task_id: the task is leased just now; it will be cancelled unless this attempt succeeds")]
    CancelPending,
    /// A record to be adopted has another task's id.
    #[error("task_id: another task has this id here, and stays as it is")]
    TakenId,
    /// A record to be adopted is of this very store.
    #[error("task_id: it is this very store that the task is being moved out of")]
    OwnTask,
    /// A topic that is to be deleted holds tasks.
    #[error("topic: it still holds tasks, history included; purge it first")]
    TopicNotEmpty,
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

tokio::task_local! {
    /// Set while a call is answered that changes nothing.
    static READS: ();
}

/// A call that changes nothing: its errors do not speak of confirmation.
pub(super) async fn reading<T>(call: impl Future<Output = T>) -> T {
    READS.scope((), call).await
}

fn is_read() -> bool {
    READS.try_with(|()| ()).is_ok()
}

/// The cases, as the wire names them: each with its class, and when it is met.
pub(super) const TABLE: &[(u16, u16, &str)] = &[
    (1000, 400, "the body is no JSON; a field is missing, unknown, of the wrong type or out of range"),
    (1001, 401, "no token, or one that is not known"),
    (1003, 403, "the token's scopes or topics do not cover this; or a page of another site asks"),
    (1004, 404, "no such task, topic, service or route"),
    (1005, 405, "the route takes another method"),
    (1009, 409, "the task stands where this cannot be done: `state` says where"),
    (1013, 413, "the body or the content is over its limit"),
    (1015, 415, "the content type is not JSON"),
    (1022, 422, "the idempotency key was used for something else"),
    (1029, 429, "a quota, or the token's rate, is used up"),
    (2000, 500, "our fault; `request_id` finds it in the log"),
    (
        2003,
        503,
        "the store is out of reach or full, or this instance is shutting down or overloaded. Not confirmed: repeat it",
    ),
];

/// The class of a case.
pub(super) fn status_of(dm_error: u16) -> StatusCode {
    let row = TABLE.iter().find(|(case, ..)| *case == dm_error);
    row.and_then(|(_, status, _)| StatusCode::from_u16(*status).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The JSON of a failed call.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(super) struct Body {
    /// The case.
    #[schema(minimum = 1000)]
    pub(super) dm_error: u16,
    /// A sentence that names the field and what would be right.
    pub(super) error_msg: String,
    /// Where the task stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// It will be cancelled unless it succeeds.
    pub(super) cancel_pending: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Finds it in the log.
    pub(super) request_id: Option<String>,
    /// Of a batch, none of whose tasks was stored: how many they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<usize>,
    /// Of the same: each task's answer, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) results: Option<Vec<Item>>,
}

impl Error {
    /// A refused body, in a sentence.
    pub(super) fn invalid(sentence: impl Into<String>) -> Self {
        Self::Invalid(sentence.into())
    }

    /// No topic of that name.
    pub(super) fn no_topic() -> Self {
        Self::NotFound("topic: there is no such topic".into())
    }

    /// No route of that path.
    pub(super) fn no_route() -> Self {
        Self::NotFound("path: there is no such route".into())
    }

    /// No task of that id.
    pub(super) fn no_task() -> Self {
        Self::NotFound("task_id: there is no such task in this topic".into())
    }

    /// The case, as the wire names it.
    pub(super) fn dm_error(&self) -> u16 {
        match self {
            Self::Invalid(_) => 1000,
            Self::Unauthenticated(_) => 1001,
            Self::Forbidden(_) => 1003,
            Self::NotFound(_) => 1004,
            Self::MethodNotAllowed(_) => 1005,
            Self::Stale(_) | Self::Conflict(_) | Self::CancelPending | Self::TopicNotEmpty => 1009,
            Self::TakenId | Self::OwnTask => 1009,
            Self::TooLarge(_) => 1013,
            Self::MediaType => 1015,
            Self::TooManyTopics(_) | Self::TooFast { .. } => 1029,
            Self::Store(store::Error::KeyReused) => 1022,
            Self::Store(store::Error::OverQuota) => 1029,
            Self::Store(store::Error::Corrupt(_)) | Self::Internal => 2000,
            Self::Store(_) | Self::Unavailable(_) => 2003,
        }
    }

    /// The class.
    fn status(&self) -> StatusCode {
        status_of(self.dm_error())
    }

    /// The sentence for the caller. A store's own text may name hosts and paths, so it is replaced.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Store(store::Error::Unavailable(_) | store::Error::Moving(_) | store::Error::Misconfigured(_)) => {
                match is_read() {
                    true => "the store is out of reach: try again".into(),
                    false => "the store is out of reach, so this is not confirmed: repeat it".into(),
                }
            }
            Self::Store(store::Error::Full(_)) => "the store is full, so this is not confirmed: repeat it later".into(),
            Self::Store(store::Error::KeyReused) => {
                "idempotency_key: was used with another body; repeat the first one, or take a new key".into()
            }
            Self::Store(store::Error::StaleEntry) => {
                "topic: its number of shards is just changing, so this is not confirmed: repeat it".into()
            }
            Self::Store(store::Error::OverQuota) => {
                "topic: its quota of pending tasks is used up; repeat it when some have been delivered".into()
            }
            Self::Store(store::Error::Corrupt(_)) => Self::Internal.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether the topic's entry was an old one: nothing was stored, and the same may be asked by a new entry.
    pub(super) fn is_stale_entry(&self) -> bool {
        matches!(self, Self::Store(store::Error::StaleEntry))
    }

    /// Whether a store, or we ourselves, cannot for the moment.
    pub(super) fn is_unavailable(&self) -> bool {
        self.dm_error() == 2003
    }

    /// Seconds for `Retry-After`.
    fn retry_after(&self) -> Option<u16> {
        if let Self::TooFast { wait, .. } = self {
            return Some(u16::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u16::MAX));
        }
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
        self.with_body(self.body())
    }
}

impl Error {
    /// The JSON of the answer.
    pub(super) fn body(&self) -> Body {
        let dm_error = self.dm_error();
        Body {
            dm_error,
            error_msg: self.message(),
            state: match self {
                Self::Stale(state) | Self::Conflict(state) => Some(*state),
                Self::CancelPending => Some(State::Leased),
                _ => None,
            },
            cancel_pending: matches!(self, Self::CancelPending).then_some(true),
            request_id: if dm_error == 2000 { request_id::current() } else { None },
            failed: None,
            results: None,
        }
    }

    /// The answer, with this JSON.
    pub(super) fn with_body(&self, body: Body) -> Response {
        let mut response = (self.status(), Json(body)).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.dm_error() == 1001 {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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
        check(Error::Unauthenticated("x"), 401, 1001, None).await;
        check(Error::Forbidden("x".into()), 403, 1003, None).await;
        let too_fast = |millis| Error::TooFast { rate: "1/s".parse().unwrap(), wait: Duration::from_millis(millis) };
        check(too_fast(5), 429, 1029, Some("1")).await;
        check(too_fast(2001), 429, 1029, Some("3")).await;
        check(Error::no_task(), 404, 1004, None).await;
        check(Error::MethodNotAllowed("POST"), 405, 1005, None).await;
        check(Error::Stale(State::Dead), 409, 1009, None).await;
        check(Error::Conflict(State::Delivered), 409, 1009, None).await;
        check(Error::CancelPending, 409, 1009, None).await;
        check(Error::TakenId, 409, 1009, None).await;
        check(Error::OwnTask, 409, 1009, None).await;
        check(Error::TooLarge("x".into()), 413, 1013, None).await;
        check(Error::MediaType, 415, 1015, None).await;
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

    #[tokio::test]
    async fn a_conflict_carries_the_tasks_state_and_our_fault_the_request_id() {
        assert_eq!(json_of(Error::Stale(State::Delivered).into_response()).await["state"], "delivered");
        let pending = json_of(Error::CancelPending.into_response()).await;
        assert_eq!((&pending["state"], &pending["cancel_pending"]), (&"leased".into(), &true.into()));
        let id = HeaderValue::from_static("req-1");
        let response = request_id::scope(id, async { Error::Internal.into_response() }).await;
        assert_eq!(json_of(response).await["request_id"], "req-1");
    }
}
