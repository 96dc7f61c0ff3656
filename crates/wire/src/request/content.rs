//! The requests that carry a task's content.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{ContentText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{Backoff, Mode, ServiceName, TopicName};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct AddRequest<Topic, Number, Span, Content, ModeWord, Wait, Headers, OnDead> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The due time, in Unix seconds; give this or `delay`. A time in the past means now.
    /// Milliseconds are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub timing_moment: Option<Number>,
    /// The time until the task is due, from the store's current time; give this or `timing_moment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub delay: Option<Span>,
    /// The body of the callback, or the content that the consumer gets. In it `sn` names the
    /// service to call, and `url` the path on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ContentText, required = true))]
    pub content: Option<Content>,
    /// `push`, `pull`, or `auto`, which decides by the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Mode>))]
    pub mode: Option<ModeWord>,
    /// The attempts before the task is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub max_attempts: Option<Number>,
    /// The timeout of one callback: 100 ms to 10 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub timeout: Option<Span>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Backoff>))]
    pub backoff: Option<Wait>,
    /// Additional headers of the callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeMap<String, Option<String>>>))]
    pub headers: Option<Headers>,
    /// Makes the add safe to repeat: an add with the same key answers with the first task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub idempotency_key: Option<String>,
    /// At most one task per topic and key is pending: another add reschedules it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub key: Option<String>,
    /// The task expires if it is not delivered within this time after it was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub expires_after: Option<Span>,
    /// A callback that is made once, if the task becomes dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<AnyOnDead>))]
    pub on_dead: Option<OnDead>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct BatchRequest<Tasks> {
    // Each task is parsed on its own, so that an invalid one does not affect the others.
    /// Each task as in a single add. An invalid task does not affect the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Vec<AnyAdd>, min_items = 1, required = true)
    )]
    pub tasks: Option<Tasks>,
}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyAdd = AddRequest<(), (), (), (), (), (), (), ()>;
/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyOnDead = OnDeadCall<()>;

/// The callback for a dead task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = OnDead, bound = ""))]
#[serde(deny_unknown_fields)]
pub struct OnDeadCall<Service> {
    /// The service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ServiceName, required = true))]
    pub sn: Option<Service>,
    /// The path on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = String, required = true))]
    pub url: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest<Topic, TaskId, Number, Span, Content> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
    /// The new due time, in Unix seconds; give this or `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub timing_moment: Option<Number>,
    /// The time until the task is due, from now; give this or `timing_moment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub delay: Option<Span>,
    /// The new content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ContentText>))]
    pub content: Option<Content>,
}
