//! The requests that carry a task's content.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{ContentText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{Backoff, Mode, ServiceName, TopicName};

requests! {

pub struct AddRequest<Topic, Number, Span, Content, ModeWord, Wait, Headers, OnDead> {
    ..topic,
    /// The due time, in Unix seconds; give this, `delay` or `at`. A time in the past means
    /// now. Milliseconds are refused.
    #[schema(value_type = Option<f64>)]
    pub timing_moment: Option<Number>,
    /// The time until the task is due, from the store's current time; give this, `timing_moment` or
    /// `at`.
    #[schema(value_type = Option<SpanText>)]
    pub delay: Option<Span>,
    /// The due time as text, instead of `timing_moment` or `delay`: RFC 3339, RFC 9557, or a local
    /// time whose zone is in `zone`.
    ..written_time,
    /// The body of the callback, or the content that the consumer gets. In it `sn` names the
    /// service to call, and `url` the path on it.
    #[schema(value_type = ContentText, required = true)]
    pub content: Option<Content>,
    ..options(
        "The attempts before the task is dead.",
        "The task expires if it is not delivered within this time after it was due.",
        "A callback that is made once, if the task becomes dead."
    ),
    /// Makes the add safe to repeat: an add with the same key answers with the first task.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// At most one task per topic and key is pending: another add reschedules it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
}

pub struct BatchRequest<Tasks> {
    // Each task is parsed on its own, so that an invalid one does not affect the others.
    /// Each task as in a single add. An invalid task does not affect the others.
    #[schema(value_type = Vec<AnyAdd>, min_items = 1, required = true)]
    pub tasks: Option<Tasks>,
}

/// The callback for a dead task.
#[cfg_attr(feature = "schema", schema(as = OnDead))]
pub struct OnDeadCall<Service> {
    /// The service.
    #[schema(value_type = ServiceName, required = true)]
    pub sn: Option<Service>,
    /// The path on it.
    #[schema(value_type = String, required = true)]
    pub url: Option<String>,
}

pub struct UpdateRequest<Topic, TaskId, Number, Span, Content> {
    ..topic,
    /// The task's key: changes the newest task that was added with it.
    ..task_name,
    /// The new due time, in Unix seconds; give this, `delay` or `at`.
    #[schema(value_type = Option<f64>)]
    pub timing_moment: Option<Number>,
    /// The time until the task is due, from now; give this, `timing_moment` or `at`.
    #[schema(value_type = Option<SpanText>)]
    pub delay: Option<Span>,
    /// The new due time as text, instead of `timing_moment` or `delay`: RFC 3339, RFC 9557, or a
    /// local time whose zone is in `zone`.
    ..written_time,
    /// The new content.
    #[schema(value_type = Option<ContentText>)]
    pub content: Option<Content>,
}

}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyAdd = AddRequest<(), (), (), (), (), (), (), ()>;
/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyOnDead = OnDeadCall<()>;
