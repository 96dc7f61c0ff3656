//! The requests about tasks and dead letters.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{DeadCursor, PageCursor, RateText, ReceiptText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{ListOrder, ServiceName, TaskState, TopicName};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct GetRequest<Topic, TaskId> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task's id; give this, `key` or `idempotency_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TaskIdGiven>))]
    pub task_id: Option<TaskId>,
    /// The task's key: shows the newest task that was added with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub idempotency_key: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct FindRequest<TaskId, Cursor> {
    /// The task's id; give this, `key` or `idempotency_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TaskIdGiven>))]
    pub task_id: Option<TaskId>,
    /// The task's key: finds the newest task of each topic that was added with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub idempotency_key: Option<String>,
    /// The cursor of the previous call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
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
    /// The receipt of the lease.
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
    /// The receipt of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ReceiptText, required = true))]
    pub receipt: Option<Receipt>,
    /// The time until the next attempt. Absent: the backoff decides.
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
    /// The receipt of the lease, which stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ReceiptText, required = true))]
    pub receipt: Option<Receipt>,
    /// The new length of the lease, from now: 1 s to 12 h.
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
    /// Only reads this task's content, in any state. Nothing is consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TaskIdGiven>))]
    pub task_id: Option<TaskId>,
    /// Leases the tasks for this time (1 s to 12 h). A task that is not acknowledged by then is
    /// delivered again. Absent: the pull consumes the tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub lease: Option<Lease>,
    /// The most tasks to return, in `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 256))]
    pub count: Option<Number>,
    /// If nothing is due, waits for a task for this time, at most 30 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub wait: Option<Span>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct ListRequest<Topic, State, Number, Cursor, Order, Service> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The state of the tasks to list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskState, required = true))]
    pub state: Option<State>,
    /// Tasks per page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
    /// Only tasks at or after this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub from: Option<Number>,
    /// Only tasks at or before this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub to: Option<Number>,
    /// The order (default `oldest`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ListOrder>))]
    pub order: Option<Order>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ServiceName>))]
    pub sn: Option<Service>,
    /// Only tasks whose last outcome is exactly this text. Needs a token with another scope than
    /// `view`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Only tasks that are due at or after this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub due_from: Option<Number>,
    /// Only tasks that are due at or before this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub due_to: Option<Number>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct SearchRequest<Topic, State, Number, Cursor, Order> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The state of the tasks to search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskState, required = true))]
    pub state: Option<State>,
    /// The text that the content contains, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = String, min_length = 1, max_length = 256, required = true)
    )]
    pub text: Option<String>,
    /// Tasks per page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
    /// The order (default `newest`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ListOrder>))]
    pub order: Option<Order>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct CausesRequest<Topic, Cursor> {
    /// The topic. Absent: all topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TopicName>))]
    pub topic: Option<Topic>,
    /// The cursor of the previous call over all topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct DeadReplayRequest<Topic, TaskIds, Rate, Number, Cursor> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The tasks' ids; give this or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<TaskIdGiven>>))]
    pub task_ids: Option<TaskIds>,
    /// All dead tasks of the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Only tasks whose last outcome is exactly this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Spreads the due times at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<RateText>))]
    pub rate: Option<Rate>,
    /// Only counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that `reason` excludes (default 100,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)
    )]
    pub limit: Option<Number>,
    /// The cursor of the previous call: continues after the tasks that it looked at.
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
    /// The tasks' ids; give this or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<TaskIdGiven>>))]
    pub task_ids: Option<TaskIds>,
    /// All dead tasks of the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Only tasks whose last outcome is exactly this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that `reason` excludes (default 100,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)
    )]
    pub limit: Option<Number>,
    /// The cursor of the previous call: continues after the tasks that it looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<DeadCursor>))]
    pub cursor: Option<Cursor>,
}
