//! The requests that hold a content.

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
    /// Due at this moment, in Unix seconds; this or `delay`. In the past: due now. Milliseconds are
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub timing_moment: Option<Number>,
    /// Due so long from now, by the store's clock; this or `timing_moment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub delay: Option<Span>,
    /// What the callback or the consumer gets. `sn` in it names the service to be called, `url` the
    /// path on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ContentText, required = true))]
    pub content: Option<Content>,
    /// Called back, pulled, or whichever its content suits (`auto`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Mode>))]
    pub mode: Option<ModeWord>,
    /// Calls before the task is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub max_attempts: Option<Number>,
    /// Of one call: 100 ms to 10 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub timeout: Option<Span>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Backoff>))]
    pub backoff: Option<Wait>,
    /// Headers of your own for the callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeMap<String, Option<String>>>))]
    pub headers: Option<Headers>,
    /// Makes the add safe to repeat: the same key answers the same task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub idempotency_key: Option<String>,
    /// At most one waiting task per topic and key: adding again moves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub key: Option<String>,
    /// So long after its due moment the task is not worth delivering any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub expires_after: Option<Span>,
    /// Called once if the task dies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<AnyOnDead>))]
    pub on_dead: Option<OnDead>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct BatchRequest<Tasks> {
    // Each is read on its own, so that one bad task does not spoil the others.
    /// Each as in a single add; one bad task does not spoil the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<AnyAdd>, min_items = 1, required = true))]
    pub tasks: Option<Tasks>,
}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyAdd = AddRequest<(), (), (), (), (), (), (), ()>;
/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyOnDead = OnDeadCall<()>;

/// Whom to tell if the task dies.
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
    /// Due at this moment, in Unix seconds; this or `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub timing_moment: Option<Number>,
    /// Due so long from now; this or `timing_moment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub delay: Option<Span>,
    /// Another content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ContentText>))]
    pub content: Option<Content>,
}
