//! The answers of the calls about tasks.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{
    Destination, Durability, ErrorCode, Holder, Rfc3339, SuccessAnswer, TaskId, TaskSchedule,
    TaskState, Topic, UnixMillis, Way,
};

/// The answer to an add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stored {
    /// The task's id, which all other calls take.
    pub task_id: TaskId,
    /// When the task is due.
    pub due_ms: UnixMillis,
    /// `due_ms` as text.
    pub due: Rfc3339,
    /// How the task is delivered.
    pub mode: Way,
    /// Which failures the stored task survives.
    pub durability: Durability,
    /// An earlier add with the same idempotency key had stored the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// For a duplicate: the current state of the first task. Absent if its history has been purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// The pending task of the same `key` was rescheduled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// How many tasks were not stored.
    pub failed: usize,
    /// The result for each task, in order.
    pub results: Vec<BatchItem>,
}

/// The derive takes no generic arguments in a `value_type`.
type StoredAnswer = SuccessAnswer<Stored>;

item_of_batch! {
    /// The result for one task of a batch.
    pub enum BatchItem { Stored(StoredAnswer) }
}

/// A task as its consumer sees it. If nothing is due, `content` and `task_id` are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pulled {
    /// Null if nothing is due, and if it was removed.
    pub content: Option<String>,
    /// Only with `task_id`: the content was removed after the end of the task
    /// (`history.contents = false`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content_removed: bool,
    /// Null if nothing is due.
    pub task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// Only of an occurrence of a recurring schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<TaskSchedule>,
}

/// The answer to a pull with `count`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PulledMany {
    pub tasks: Vec<Pulled>,
}

/// The answer to a cancel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gone {
    pub task_id: TaskId,
}

/// The answer to an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Moved {
    pub task_id: TaskId,
    pub due_ms: UnixMillis,
    /// `due_ms` as text.
    pub due: Rfc3339,
}

/// The answer to a nack.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Returned {
    /// Only with `at`: when the next attempt is due. Absent if the task is not tried again.
    pub due_ms: Option<UnixMillis>,
    /// `due_ms` as text.
    pub due: Option<Rfc3339>,
}

/// The answer to a get.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Found {
    pub task: Task,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    pub task_id: TaskId,
    /// The `webhook-id` of its callbacks.
    pub webhook_id: String,
    pub state: TaskState,
    /// How the task is delivered.
    pub mode: Way,
    pub sn: Option<Destination>,
    pub key: Option<String>,
    pub due_ms: UnixMillis,
    /// `due_ms` as text.
    pub due: Rfc3339,
    pub attempts: u32,
    pub created_ms: UnixMillis,
    pub finished_ms: Option<UnixMillis>,
    /// Who holds the task while it is leased.
    pub lease: Option<Holder>,
    /// Null before the first attempt, and for a token with only the scope `view`.
    pub last_outcome: Option<String>,
    /// The task's own options, which override its topic's settings, in the form that an add takes.
    /// Without the scope `admin` the values of `headers` are null. With only the scope `view`
    /// there is no `headers`, and the `url` of `on_dead` is null.
    #[schema(value_type = Object)]
    pub options: Value,
    /// Null for a token with only the scope `view`, and if it was removed.
    pub content: Option<String>,
    /// The content was removed after the end of the task (`history.contents = false`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content_removed: bool,
    /// Only of an occurrence of a recurring schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<TaskSchedule>,
    /// The attempts that were logged, the newest last. The log may be incomplete, because it is
    /// written separately from the task.
    pub log: Vec<Attempt>,
}

/// An attempt as `get` shows it. `outcome` and `answer` are null for a token with only the scope
/// `view`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    pub attempt: u32,
    pub started_ms: UnixMillis,
    pub duration_ms: u64,
    /// How long the task then waits for its next attempt. Null after a success and after the last
    /// attempt, and if an older version or another store made it.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    pub outcome: Option<String>,
    pub answer: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Note {
    pub attempt: u32,
    pub started_ms: UnixMillis,
    pub duration_ms: u64,
    pub outcome: String,
    pub answer: String,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page {
    pub tasks: Vec<Entry>,
    /// For the next page; null on the last page.
    pub cursor: Option<String>,
    /// With a filter, or of a search: how many tasks were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
}

/// A task without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    pub task_id: TaskId,
    pub state: TaskState,
    /// How the task is delivered.
    pub mode: Way,
    pub sn: Option<Destination>,
    pub due_ms: UnixMillis,
    /// `due_ms` as text.
    pub due: Rfc3339,
    pub attempts: u32,
    pub created_ms: UnixMillis,
    pub finished_ms: Option<UnixMillis>,
    /// Who holds the task while it is leased.
    pub lease: Option<Holder>,
    /// Null before the first attempt, and for a token with only the scope `view`.
    pub last_outcome: Option<String>,
    pub key: Option<String>,
}

/// The tasks that a lookup over all topics found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FoundTasks {
    /// In the order of their topics' names.
    pub tasks: Vec<FoundTask>,
    /// How many topics this call has looked at.
    pub topics_seen: u64,
    /// For the next topics; null if all were looked at.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FoundTask {
    pub topic: Topic,
    pub task: Entry,
}

/// What a change of many tasks did, or would have done with `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    pub count: u64,
    /// How many tasks the call looked at, including those that the filter excluded.
    pub seen: u64,
    /// Up to ten of the tasks, as they were before.
    pub sample: Vec<Entry>,
    /// For the next call; null at the end.
    pub cursor: Option<String>,
}
