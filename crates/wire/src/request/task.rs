//! The requests about tasks.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{DeadCursor, PageCursor, RateText, ReceiptText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{TaskState, TopicName};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct GetRequest<Topic, TaskId> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct CancelRequest<Topic, TaskId> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct AckRequest<Topic, TaskId, Receipt> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
    /// The receipt of its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ReceiptText, required = true))]
    pub receipt: Option<Receipt>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct NackRequest<Topic, TaskId, Receipt, Span> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
    /// The receipt of its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ReceiptText, required = true))]
    pub receipt: Option<Receipt>,
    /// Due again after so long; without it, after its backoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub delay: Option<Span>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest<Topic, TaskId, Receipt, Lease> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
    /// The receipt of its lease, which stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ReceiptText, required = true))]
    pub receipt: Option<Receipt>,
    /// So long from now: 1 s to 12 h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = SpanText, required = true))]
    pub lease: Option<Lease>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct PullRequest<Topic, TaskId, Lease, Number, Span> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// Read this task's content instead, whatever its state; nothing is consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TaskIdGiven>))]
    pub task_id: Option<TaskId>,
    /// The tasks are leased for so long (1 s to 12 h), and come back unless they are acked. Without
    /// it the pull consumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub lease: Option<Lease>,
    /// That many at the most, answered in `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 256))]
    pub count: Option<Number>,
    /// With nothing due, wait so long for it, up to 30 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub wait: Option<Span>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct ListRequest<Topic, State, Number, Cursor> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// Which tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskState, required = true))]
    pub state: Option<State>,
    /// Tasks of a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<Number>,
    /// That of the page before, for the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
    /// Unix seconds: none before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub from: Option<Number>,
    /// Unix seconds: none after.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub to: Option<Number>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct CausesRequest<Topic> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct DeadReplayRequest<Topic, TaskIds, Rate, Number, Cursor> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// These tasks; this or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<TaskIdGiven>>))]
    pub task_ids: Option<TaskIds>,
    /// All of the topic's dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Only those whose last outcome is exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Spreads their due moments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<RateText>))]
    pub rate: Option<Rate>,
    /// Only count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Go over so many at the most, those that `reason` passes over included (100,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 100_000))]
    pub limit: Option<Number>,
    /// That of the call before, to go on behind what it went over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<DeadCursor>))]
    pub cursor: Option<Cursor>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct DeadPurgeRequest<Topic, TaskIds, Number, Cursor> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// These tasks; this or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<TaskIdGiven>>))]
    pub task_ids: Option<TaskIds>,
    /// All of the topic's dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Only those whose last outcome is exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Go over so many at the most, those that `reason` passes over included (100,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 100_000))]
    pub limit: Option<Number>,
    /// That of the call before, to go on behind what it went over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<DeadCursor>))]
    pub cursor: Option<Cursor>,
}
