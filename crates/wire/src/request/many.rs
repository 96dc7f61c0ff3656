//! The requests that change many tasks of a topic.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::{PageCursor, TaskIdGiven};
use crate::{AtMost, Destination, Number, TaskId, TaskState, Topic};

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelManyRequest {
    /// The topic.
    pub topic: Topic,
    /// The state of the tasks: `scheduled` or `dead`.
    pub state: TaskState,
    /// These tasks, in place of a filter: 1 to 1,000 ids.
    #[schema(value_type = Option<Vec<TaskIdGiven>>)]
    pub task_ids: Option<AtMost<TaskId, 1000>>,
    /// All tasks of the state; otherwise a filter or ids are required.
    pub all: Option<bool>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    pub sn: Option<Destination>,
    /// Only tasks whose last outcome is exactly this text.
    pub outcome: Option<String>,
    /// Only tasks that are due at or after this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub due_from: Option<Number>,
    /// Only tasks that are due at or before this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub due_to: Option<Number>,
    /// Only counts, and shows some of the tasks.
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that the filter excludes (default 10,000).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    pub limit: Option<Number>,
    /// The cursor of the previous call.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateManyRequest {
    /// The topic.
    pub topic: Topic,
    /// The new due time, in Unix seconds. Give this or `at`.
    #[schema(value_type = Option<f64>)]
    pub timing_moment: Option<Number>,
    /// The new due time as text: RFC 3339, RFC 9557, or a local time whose zone is in `zone`.
    #[schema(max_length = 128, example = "2026-11-23T20:00:00+08:00")]
    pub at: Option<String>,
    /// The time zone of `at`: a name such as `Asia/Shanghai`, or an offset such as `+08:00`.
    #[schema(max_length = 64, example = "Asia/Shanghai")]
    pub zone: Option<String>,
    /// These tasks, in place of a filter: 1 to 1,000 ids.
    #[schema(value_type = Option<Vec<TaskIdGiven>>)]
    pub task_ids: Option<AtMost<TaskId, 1000>>,
    /// All tasks of the state; otherwise a filter or ids are required.
    pub all: Option<bool>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    pub sn: Option<Destination>,
    /// Only tasks whose last outcome is exactly this text.
    pub outcome: Option<String>,
    /// Only tasks that are due at or after this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub due_from: Option<Number>,
    /// Only tasks that are due at or before this time, in Unix seconds.
    #[schema(value_type = Option<f64>)]
    pub due_to: Option<Number>,
    /// Only counts, and shows some of the tasks.
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that the filter excludes (default 10,000).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    pub limit: Option<Number>,
    /// The cursor of the previous call.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
}
