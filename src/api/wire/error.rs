//! What a caller is told when a call fails. `response` writes the answer.
//!
//! The parts below know no HTTP. Here their errors become an HTTP status (the class), a `dm_error`
//! (the case) and one English sentence for the caller. What is internal goes into the log, once,
//! with the request's id; it never goes into the answer.

use std::borrow::Cow;
use std::time::Duration;

use delayd_wire::ErrorCode;
use http::StatusCode;

use crate::api::wire::request_id;
use crate::model::task::State;
use crate::{store, topic};
use delayd_wire::Rate;

/// Seconds after which an unconfirmed call may be repeated.
const REPEAT_AFTER: u16 = 1;
/// Seconds after which a full registry may be asked again: room is made by an operator, not by
/// time.
const QUOTA_AFTER: u16 = 60;

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Error {
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
    #[error(
        "task_id: the task is leased just now; it will be cancelled unless this attempt succeeds"
    )]
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
pub(crate) async fn reading<T>(call: impl Future<Output = T>) -> T {
    READS.scope((), call).await
}

fn is_read() -> bool {
    READS.try_with(|()| ()).is_ok()
}

impl Error {
    /// A refused body, in a sentence.
    pub(crate) fn invalid(sentence: impl Into<String>) -> Self {
        Self::Invalid(sentence.into())
    }

    /// No topic of that name.
    pub(crate) fn no_topic() -> Self {
        Self::NotFound("topic: there is no such topic".into())
    }

    /// No route of that path.
    pub(crate) fn no_route() -> Self {
        Self::NotFound("path: there is no such route".into())
    }

    /// No task of that id.
    pub(crate) fn no_task() -> Self {
        Self::NotFound("task_id: there is no such task in this topic".into())
    }

    /// The case, as the wire names it.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::Invalid,
            Self::Unauthenticated(_) => ErrorCode::Unauthenticated,
            Self::Forbidden(_) => ErrorCode::Forbidden,
            Self::NotFound(_) => ErrorCode::NotFound,
            Self::MethodNotAllowed(_) => ErrorCode::MethodNotAllowed,
            Self::Stale(_) | Self::Conflict(_) | Self::CancelPending => ErrorCode::Conflict,
            Self::TopicNotEmpty | Self::TakenId => ErrorCode::Conflict,
            Self::OwnTask => ErrorCode::OwnTask,
            Self::TooLarge(_) => ErrorCode::TooLarge,
            Self::MediaType => ErrorCode::MediaType,
            Self::TooManyTopics(_) | Self::TooFast { .. } => ErrorCode::UsedUp,
            Self::Store(store::Error::KeyReused) => ErrorCode::KeyReused,
            Self::Store(store::Error::OverQuota) => ErrorCode::UsedUp,
            Self::Store(store::Error::Corrupt(_)) | Self::Internal => ErrorCode::Internal,
            Self::Store(_) | Self::Unavailable(_) => ErrorCode::Unavailable,
        }
    }

    /// The class.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The sentence for the caller. A store's own text may name hosts and paths, so it is replaced.
    pub(crate) fn message(&self) -> String {
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

    /// Whether the topic's entry was an old one: nothing was stored, and the same may be asked by a
    /// new entry.
    pub(crate) fn is_stale_entry(&self) -> bool {
        matches!(self, Self::Store(store::Error::StaleEntry))
    }

    /// Whether a store, or we ourselves, cannot for the moment.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.code() == ErrorCode::Unavailable
    }

    /// Seconds for `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<u16> {
        if let Self::TooFast { wait, .. } = self {
            return Some(u16::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u16::MAX));
        }
        match self.code() {
            ErrorCode::Unavailable => Some(REPEAT_AFTER),
            ErrorCode::UsedUp => Some(QUOTA_AFTER),
            _ => None,
        }
    }

    /// Writes down what the caller is not told.
    pub(crate) fn log(&self) {
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
