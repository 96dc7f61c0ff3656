//! The answers of the calls about tasks.

use serde::{Deserialize, Serialize};

use crate::{
    Answer, Durability, ErrorCode, Holder, Rfc3339, ServiceName, TaskId, TaskState, UnixMillis, Way,
};

/// The answer to a stored task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stored {
    /// The task, by which all other calls name it.
    pub task_id: TaskId,
    /// When it is due.
    pub due_ms: UnixMillis,
    /// The same.
    pub due: Rfc3339,
    /// How it leaves.
    pub mode: Way,
    /// What the stored task survives.
    pub durability: Durability,
    /// The task was added before, under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// Of a duplicate: where the first task stands now. Left out: it is forgotten here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// The pending task of the same `key` was moved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Batch {
    /// How many were not stored.
    pub failed: usize,
    /// Each task's answer, in order.
    pub results: Vec<BatchItem>,
}

/// The derive takes no generic arguments in a `value_type`.
type StoredAnswer = Answer<Stored>;

/// One task of a batch, answered in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum BatchItem {
    Stored(StoredAnswer),
    Failed {
        #[serde(deserialize_with = "ErrorCode::of_failure")]
        #[cfg_attr(feature = "schema", schema(value_type = u16, minimum = 1000))]
        dm_error: ErrorCode,
        error_msg: String,
    },
}

/// A task as its consumer sees it; with nothing due, `content` and `task_id` are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pulled {
    /// Null with nothing due.
    pub content: Option<String>,
    /// The task.
    pub task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
}

/// The answer of a pull with `count`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PulledMany {
    pub tasks: Vec<Pulled>,
}

/// The answer of a cancel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Gone {
    pub task_id: TaskId,
}

/// The answer of an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Moved {
    pub task_id: TaskId,
    pub due_ms: UnixMillis,
    /// The same.
    pub due: Rfc3339,
}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyTask = Task<()>;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct Found<Options> {
    #[cfg_attr(feature = "schema", schema(value_type = AnyTask))]
    pub task: Task<Options>,
}

// The service has a type for options; its clients show them, whichever there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct Task<Options> {
    pub task_id: TaskId,
    /// What its callbacks carry as `webhook-id`.
    pub webhook_id: String,
    pub state: TaskState,
    /// How it leaves.
    pub mode: Way,
    pub sn: Option<ServiceName>,
    pub key: Option<String>,
    pub due_ms: UnixMillis,
    /// The same.
    pub due: Rfc3339,
    pub attempts: u32,
    pub created_ms: UnixMillis,
    pub finished_ms: Option<UnixMillis>,
    /// Who holds it, while it is leased.
    pub lease: Option<Holder>,
    pub last_outcome: Option<String>,
    /// What the task asks for instead of its topic's policy, as an add would say it. Without the
    /// scope `admin` the values of `headers` are null.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub options: Options,
    pub content: String,
    /// The attempts that were noted, the newest last. May be incomplete: notes are written beside
    /// the road.
    pub log: Vec<Note>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Note {
    pub attempt: u32,
    pub started_ms: UnixMillis,
    pub duration_ms: u64,
    pub outcome: String,
    pub answer: String,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Page {
    pub tasks: Vec<Entry>,
    /// For the next page; absent on the last.
    pub cursor: Option<String>,
}

/// A task without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Entry {
    pub task_id: TaskId,
    pub state: TaskState,
    /// How it leaves.
    pub mode: Way,
    pub sn: Option<ServiceName>,
    pub due_ms: UnixMillis,
    /// The same.
    pub due: Rfc3339,
    pub attempts: u32,
    pub created_ms: UnixMillis,
    pub finished_ms: Option<UnixMillis>,
    /// Who holds it, while it is leased.
    pub lease: Option<Holder>,
    pub last_outcome: Option<String>,
    pub key: Option<String>,
}
