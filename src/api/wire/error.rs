//! The errors of calls; `response` writes them as answers.
//!
//! The modules below know no HTTP. Here their errors get an HTTP status, a `dm_error`, and a
//! sentence for the caller. Internal details are logged once, with the request's id, and are never
//! in the answer.

use std::borrow::Cow;
use std::time::Duration;

use delayd_wire::{ErrorCode, Rate, WasStored};
use http::StatusCode;

use crate::api::wire::request_id;
use crate::model::task::State;
use crate::{store, topic};

/// `Retry-After` of an unconfirmed call, in seconds.
const REPEAT_AFTER: u16 = 1;
/// `Retry-After` of an exceeded quota, in seconds: only an operator or deliveries can make room.
const QUOTA_AFTER: u16 = 60;

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request is invalid. The text names the field, what was expected, and what it had.
    #[error("{0}")]
    Invalid(String),
    /// The service is not known. First the field that names it; `hint` says which are.
    #[error("{field}: \"{sn}\" is not a service that is known here; {hint}")]
    UnknownService { field: String, sn: String, hint: String },
    /// The token is missing or unknown.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The token's scopes or topics do not allow the call, or the `Origin` is another site's page.
    #[error("{0}")]
    Forbidden(String),
    /// The token's rate limit is exceeded.
    #[error("Authorization: the token's rate limit, {rate}, is exceeded")]
    TooFast {
        /// The limit.
        rate: Rate,
        /// When the next call is allowed.
        wait: Duration,
    },
    /// The task, topic or route does not exist.
    #[error("{0}")]
    NotFound(Cow<'static, str>),
    /// The route takes another HTTP method.
    #[error("method: this route takes only {0}")]
    MethodNotAllowed(&'static str),
    /// The receipt's lease has ended.
    #[error("receipt: it no longer holds the task, which is now {}", .0.as_str())]
    Stale(State),
    /// The task's state does not allow the call. First the field that names the task.
    #[error("{0}: the task is {state}, which does not allow this call", state = .1.as_str())]
    Conflict(&'static str, State),
    /// The task is leased. It will be cancelled unless its current attempt succeeds. With the field
    /// that names the task.
    #[error("{0}: the task is leased; it will be cancelled unless this attempt succeeds")]
    CancelPending(&'static str),
    /// Another task has the id of an adopted record.
    #[error("task_id: another task already has this id here")]
    TakenId,
    /// Another schedule has the name of an adopted one.
    #[error(
        "schedule: another schedule already has this name here; delete one of the two, and move \
         again"
    )]
    TakenSchedule,
    /// This store itself has the schedule of the record.
    #[error("schedule: this very store has it, and a mover has paused it there")]
    OwnSchedule,
    /// This store itself has leased the task of the record to the mover.
    #[error("task_id: this store itself has leased the task for a move to another store")]
    OwnTask,
    /// The topic to be deleted has tasks or recurring schedules.
    #[error(
        "topic: it still holds tasks, their history, or recurring schedules; delete its schedules \
         and purge it first"
    )]
    TopicNotEmpty,
    /// A body or a content is too long.
    #[error("{0}")]
    TooLarge(String),
    /// The content type is not JSON.
    #[error("content-type: must be application/json, or absent")]
    MediaType,
    /// The body is compressed.
    #[error("content-encoding: expected identity or no such header; send the body uncompressed")]
    ContentEncoding,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The limit of topics is reached.
    #[error(
        "topic: does not exist yet, and there are already {0} topics, the limit of limits.topics"
    )]
    TooManyTopics(usize),
    /// The token's share of the limit of topics is used up.
    #[error(
        "topic: does not exist yet, and the token has created {0} topics, its share of \
         limits.topics; use one of them, or let a token with the scope admin create this one"
    )]
    TooManyOfToken(usize),
    /// The lane of a new schedule has as many as it takes.
    #[error(
        "schedule: does not exist yet, and this lane of the topic has {0} schedules, the limit; \
         delete some, or use another topic"
    )]
    TooManySchedules(usize),
    /// Draining or overloaded: nothing was done.
    #[error("{0}")]
    Unavailable(&'static str),
    /// Too slow, or no room for the answer: it may have been done, in whole or in part.
    #[error("{0}")]
    Unconfirmed(&'static str),
    /// A bug.
    #[error("internal error; search the log for this request_id")]
    Internal,
}

tokio::task_local! {
    /// Set while a call is handled that changes nothing.
    static READS: ();
}

/// Runs a call that changes nothing: its errors do not speak of confirmation.
pub(crate) async fn reading<T>(call: impl Future<Output = T>) -> T {
    READS.scope((), call).await
}

fn is_read() -> bool {
    READS.try_with(|()| ()).is_ok()
}

impl Error {
    /// [`Error::Invalid`] with this text.
    pub(crate) fn invalid(sentence: impl Into<String>) -> Self {
        Self::Invalid(sentence.into())
    }

    /// The error of a field that lies below another one.
    pub(crate) fn below(self, field: &str) -> Self {
        match self {
            Self::Invalid(sentence) => Self::Invalid(format!("{field}.{sentence}")),
            Self::UnknownService { field: inner, sn, hint } => {
                Self::UnknownService { field: format!("{field}.{inner}"), sn, hint }
            }
            other => other,
        }
    }

    /// The topic does not exist.
    pub(crate) fn no_topic() -> Self {
        Self::NotFound("topic: there is no such topic".into())
    }

    /// The route does not exist.
    pub(crate) fn no_route() -> Self {
        Self::NotFound("path: there is no such route".into())
    }

    /// The task does not exist.
    pub(crate) fn no_task() -> Self {
        Self::NotFound("task_id: there is no such task in this topic".into())
    }

    /// The `dm_error`.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) | Self::UnknownService { .. } => ErrorCode::Invalid,
            Self::Unauthenticated(_) => ErrorCode::Unauthenticated,
            Self::Forbidden(_) => ErrorCode::Forbidden,
            Self::NotFound(_) => ErrorCode::NotFound,
            Self::MethodNotAllowed(_) => ErrorCode::MethodNotAllowed,
            Self::Stale(_) | Self::Conflict(..) | Self::CancelPending(_) => ErrorCode::Conflict,
            Self::TopicNotEmpty | Self::TakenId | Self::TakenSchedule => ErrorCode::Conflict,
            Self::OwnTask | Self::OwnSchedule => ErrorCode::OwnTask,
            Self::TooLarge(_) => ErrorCode::TooLarge,
            Self::MediaType | Self::ContentEncoding => ErrorCode::MediaType,
            Self::TooManyTopics(_) | Self::TooManyOfToken(_) => ErrorCode::UsedUp,
            Self::TooManySchedules(_) | Self::TooFast { .. } => ErrorCode::UsedUp,
            Self::Store(store::Error::KeyReused) => ErrorCode::KeyReused,
            Self::Store(store::Error::OverQuota) => ErrorCode::UsedUp,
            Self::Store(store::Error::Corrupt(_)) | Self::Internal => ErrorCode::Internal,
            Self::Store(_) | Self::Unavailable(_) | Self::Unconfirmed(_) => ErrorCode::Unavailable,
        }
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The sentence for the caller. A store's own text is replaced, because it may contain hosts
    /// and paths.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Store(error) => match error {
                store::Error::Unavailable(_)
                | store::Error::Moving(_)
                | store::Error::Misconfigured(_) => match is_read() {
                    true => "the store is unavailable: try again",
                    false => "the store is unavailable, so this is not confirmed: repeat it",
                },
                store::Error::Full(_) => {
                    "the store is full, so this is not confirmed: repeat it later"
                }
                store::Error::KeyReused => {
                    "idempotency_key: was used with another request; repeat that one unchanged, or \
                     use a new key"
                }
                store::Error::StaleEntry => {
                    "topic: its number of shards is changing, so this is not confirmed: repeat it"
                }
                store::Error::OverQuota => {
                    "topic: its quota of pending tasks, or the share of the task's lane, is used \
                     up; repeat it when some have been delivered"
                }
                // The registry of topics makes another error of the former.
                store::Error::CreatorLimit | store::Error::Corrupt(_) => {
                    return Self::Internal.to_string();
                }
            }
            .into(),
            other => other.to_string(),
        }
    }

    /// Whether the topic's entry was outdated: nothing was stored, and a retry with a new entry may
    /// succeed.
    pub(crate) fn is_stale_entry(&self) -> bool {
        matches!(self, Self::Store(store::Error::StaleEntry))
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.code() == ErrorCode::Unavailable
    }

    /// Of a 503: whether the call has taken effect.
    pub(crate) fn was_stored(&self) -> Option<WasStored> {
        self.is_unavailable().then(|| match self {
            Self::Unavailable(_)
            | Self::Store(store::Error::Full(_) | store::Error::StaleEntry) => WasStored::No,
            _ if is_read() => WasStored::No,
            _ => WasStored::Unknown,
        })
    }

    /// `Retry-After`, in seconds.
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

    /// Logs the details that the caller does not get.
    pub(crate) fn log(&self) {
        let Self::Store(error) = self else { return };
        let request_id = request_id::current();
        let request_id = request_id.as_deref();
        if matches!(error, store::Error::Corrupt(_)) {
            tracing::error!(request_id, %error, "A request failed: {error}");
        } else {
            // A store logs when an outage begins and ends, so it is not logged for each request.
            tracing::debug!(request_id, %error, "A request was not confirmed: {error}");
        }
    }
}

impl From<topic::Error> for Error {
    fn from(error: topic::Error) -> Self {
        match error {
            topic::Error::TooMany(count) => Self::TooManyTopics(count),
            topic::Error::TooManyOfToken(count) => Self::TooManyOfToken(count),
            topic::Error::Store(error) => Self::Store(error),
        }
    }
}
