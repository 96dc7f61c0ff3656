//! The requests about tasks and dead letters.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{DeadCursor, PageCursor, RateText, ReceiptText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{ListOrder, ServiceName, TaskState, TopicName};

requests! {

pub struct GetRequest<Topic, TaskId> {
    ..topic,
    /// The task's key: shows the newest task that was added with it.
    ..task_name,
}

pub struct FindRequest<TaskId, Cursor> {
    /// The task's key: finds the newest task of each topic that was added with it.
    ..task_name,
    /// The cursor of the previous call.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<Cursor>,
}

pub struct CancelRequest<Topic, TaskId> {
    ..topic,
    /// The task's key: cancels the newest task that was added with it.
    ..task_name,
}

pub struct AckRequest<Topic, TaskId, Receipt> {
    /// The receipt of the lease.
    ..leased_task,
}

pub struct NackRequest<Topic, TaskId, Receipt, Span> {
    /// The receipt of the lease.
    ..leased_task,
    /// The time until the next attempt. Without it and `at`, the backoff decides.
    #[schema(value_type = Option<SpanText>)]
    pub delay: Option<Span>,
    /// When the next attempt is due, instead of `delay`: RFC 3339, RFC 9557, or a local time whose
    /// zone is in `zone`.
    ..written_time,
}

pub struct ExtendRequest<Topic, TaskId, Receipt, Lease> {
    /// The receipt of the lease, which stays the same.
    ..leased_task,
    /// The new length of the lease, from now: 1 s to 12 h.
    #[schema(value_type = SpanText, required = true)]
    pub lease: Option<Lease>,
}

pub struct PullRequest<Topic, TaskId, Lease, Number, Span> {
    ..topic,
    /// Only reads this task's content, in any state. Nothing is consumed.
    #[schema(value_type = Option<TaskIdGiven>)]
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
    #[schema(value_type = Option<SpanText>)]
    pub wait: Option<Span>,
}

pub struct ListRequest<Topic, State, Number, Cursor, Order, Service> {
    ..topic,
    /// The state of the tasks to list.
    #[schema(value_type = TaskState, required = true)]
    pub state: Option<State>,
    /// Tasks per page.
    ..page,
    /// Only tasks at or after this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub from: Option<Number>,
    /// Only tasks at or before this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub to: Option<Number>,
    /// The order (default `oldest`).
    #[schema(value_type = Option<ListOrder>)]
    pub order: Option<Order>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    #[schema(value_type = Option<ServiceName>)]
    pub sn: Option<Service>,
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

pub struct SearchRequest<Topic, State, Number, Cursor, Order> {
    ..topic,
    /// The state of the tasks to search.
    #[schema(value_type = TaskState, required = true)]
    pub state: Option<State>,
    /// The text that the content contains, byte for byte.
    #[schema(value_type = String, min_length = 1, max_length = 256, required = true)]
    pub text: Option<String>,
    /// Tasks per page.
    ..page,
    /// The order (default `newest`).
    #[schema(value_type = Option<ListOrder>)]
    pub order: Option<Order>,
}

pub struct CausesRequest<Topic, Cursor> {
    /// The topic. Absent: all topics.
    #[schema(value_type = Option<TopicName>)]
    pub topic: Option<Topic>,
    /// The cursor of the previous call over all topics.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<Cursor>,
}

pub struct DeadReplayRequest<Topic, TaskIds, Rate, Number, Cursor> {
    ..topic,
    /// Spreads the due times at this rate.
    #[schema(value_type = Option<RateText>)]
    pub rate: Option<Rate>,
    ..dead_tasks,
}

pub struct DeadPurgeRequest<Topic, TaskIds, Number, Cursor> {
    ..topic,
    ..dead_tasks,
}

}
