//! The requests about tasks and dead letters.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::{DeadCursor, PageCursor, SpanText, TaskIdGiven};
use crate::{
    AtMost, Destination, Lease, ListOrder, Number, Rate, Receipt, Span, TaskId, TaskState, Topic,
};

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// The topic.
    pub topic: Topic,
    /// The task's id; give this, `key` or `idempotency_key`.
    #[schema(value_type = Option<TaskIdGiven>)]
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub task_id: Option<TaskId>,
    /// The task's key: shows the newest task that was added with it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindRequest {
    /// The task's id; give this, `key` or `idempotency_key`.
    #[schema(value_type = Option<TaskIdGiven>)]
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub task_id: Option<TaskId>,
    /// The task's key: finds the newest task of each topic that was added with it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// The cursor of the previous call.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The topic.
    pub topic: Topic,
    /// The task's id; give this, `key` or `idempotency_key`.
    #[schema(value_type = Option<TaskIdGiven>)]
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub task_id: Option<TaskId>,
    /// The task's key: cancels the newest task that was added with it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    /// The topic.
    pub topic: Topic,
    /// The task.
    #[schema(value_type = TaskIdGiven)]
    #[serde(deserialize_with = "TaskId::given")]
    pub task_id: TaskId,
    /// The receipt of the lease.
    pub receipt: Receipt,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NackRequest {
    /// The topic.
    pub topic: Topic,
    /// The task.
    #[schema(value_type = TaskIdGiven)]
    #[serde(deserialize_with = "TaskId::given")]
    pub task_id: TaskId,
    /// The receipt of the lease.
    pub receipt: Receipt,
    /// The time until the next attempt. Without it and `at`, the backoff decides.
    pub delay: Option<Span>,
    /// When the next attempt is due, instead of `delay`: RFC 3339, RFC 9557, or a local time whose
    /// zone is in `zone`.
    #[schema(max_length = 128, example = "2026-11-23T20:00:00+08:00")]
    pub at: Option<String>,
    /// The time zone of `at`: a name such as `Asia/Shanghai`, or an offset such as `+08:00`.
    #[schema(max_length = 64, example = "Asia/Shanghai")]
    pub zone: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    /// The topic.
    pub topic: Topic,
    /// The task.
    #[schema(value_type = TaskIdGiven)]
    #[serde(deserialize_with = "TaskId::given")]
    pub task_id: TaskId,
    /// The receipt of the lease, which stays the same.
    pub receipt: Receipt,
    /// The new length of the lease, from now: 1 s to 12 h.
    #[schema(value_type = SpanText)]
    pub lease: Lease,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullRequest {
    /// The topic.
    pub topic: Topic,
    /// Only reads this task's content, in any state. Nothing is consumed.
    #[schema(value_type = Option<TaskIdGiven>)]
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub task_id: Option<TaskId>,
    /// The task's key: only reads the newest task that was added with it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one: only
    /// reads this task.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// Leases the tasks for this time (1 s to 12 h). A task that is not acknowledged by then is
    /// delivered again. Absent: the pull consumes the tasks.
    #[schema(value_type = Option<SpanText>)]
    pub lease: Option<Lease>,
    /// The most tasks to return, in `tasks`.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 256)]
    pub count: Option<Number>,
    /// If nothing is due, waits for a task for this time, at most 30 s.
    pub wait: Option<Span>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    /// The topic.
    pub topic: Topic,
    /// The state of the tasks to list.
    pub state: TaskState,
    /// Tasks per page.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
    /// Only tasks at or after this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub from: Option<Number>,
    /// Only tasks at or before this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub to: Option<Number>,
    /// The order (default `oldest`).
    pub order: Option<ListOrder>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    pub sn: Option<Destination>,
    /// Only tasks whose last outcome is exactly this text. Needs a token with another scope than
    /// `view`.
    pub outcome: Option<String>,
    /// Only tasks that are due at or after this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub due_from: Option<Number>,
    /// Only tasks that are due at or before this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub due_to: Option<Number>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// The topic.
    pub topic: Topic,
    /// The state of the tasks to search.
    pub state: TaskState,
    /// The text that the content contains, byte for byte.
    #[schema(min_length = 1, max_length = 256)]
    pub text: String,
    /// Tasks per page.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
    /// The order (default `newest`).
    pub order: Option<ListOrder>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CausesRequest {
    /// The topic. Absent: all topics.
    pub topic: Option<Topic>,
    /// The cursor of the previous call over all topics.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadReplayRequest {
    /// The topic.
    pub topic: Topic,
    /// Spreads the due times at this rate.
    pub rate: Option<Rate>,
    /// The tasks' ids; give this or `all`.
    #[schema(value_type = Option<Vec<TaskIdGiven>>)]
    pub task_ids: Option<AtMost<TaskId, 10_000>>,
    /// All dead tasks of the topic.
    pub all: Option<bool>,
    /// Only tasks whose last outcome is exactly this text.
    pub reason: Option<String>,
    /// Only counts.
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that `reason` excludes (default 100,000).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    pub limit: Option<Number>,
    /// The cursor of the previous call: continues after the tasks that it looked at.
    #[schema(value_type = Option<DeadCursor>)]
    pub cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadPurgeRequest {
    /// The topic.
    pub topic: Topic,
    /// The tasks' ids; give this or `all`.
    #[schema(value_type = Option<Vec<TaskIdGiven>>)]
    pub task_ids: Option<AtMost<TaskId, 10_000>>,
    /// All dead tasks of the topic.
    pub all: Option<bool>,
    /// Only tasks whose last outcome is exactly this text.
    pub reason: Option<String>,
    /// Only counts.
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that `reason` excludes (default 100,000).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    pub limit: Option<Number>,
    /// The cursor of the previous call: continues after the tasks that it looked at.
    #[schema(value_type = Option<DeadCursor>)]
    pub cursor: Option<String>,
}
