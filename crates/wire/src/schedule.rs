//! Recurring schedules.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{Destination, Rfc3339, TaskId, TaskState, Topic, UnixMillis};

words! {

/// What becomes of moments that were missed.
#[derive(Default)]
pub enum ScheduleMisfire "lowercase" {
    /// One occurrence stands for all of them.
    #[default]
    Once,
    /// Each has an occurrence, the oldest first; at most the newest 1,000.
    All,
}

/// What becomes of an occurrence that falls due while an earlier one runs.
#[derive(Default)]
pub enum ScheduleOverlap "lowercase" {
    /// It is handed out.
    #[default]
    Allow,
    /// It expires.
    Skip,
}

/// What a set did.
pub enum ScheduleChange "lowercase" {
    /// There was no schedule of this name.
    Created,
    /// It had another definition.
    Changed,
    /// It had this definition. Nothing changed.
    Unchanged,
}

}

/// A recurring schedule.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleShown {
    /// Only in the answer to a set: what the set did.
    pub result: Option<ScheduleChange>,
    /// The topic.
    pub topic: Topic,
    /// The name.
    pub schedule: String,
    /// The cron expression.
    pub cron: Option<String>,
    /// The distance in milliseconds.
    pub every_ms: Option<u64>,
    /// The time zone.
    pub zone: String,
    /// No moment lies before it.
    pub start_ms: Option<UnixMillis>,
    /// No moment lies after it.
    pub end_ms: Option<UnixMillis>,
    /// What becomes of moments that were missed.
    pub misfire: ScheduleMisfire,
    /// What becomes of an occurrence that falls due while an earlier one runs.
    pub overlap: ScheduleOverlap,
    /// The service or host that is called. Absent: consumers pull the occurrences.
    pub sn: Option<Destination>,
    /// This instance cannot read the rule, because a later version set it, or its zone is unknown
    /// here. The fields of the rule are then empty or have their defaults.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// Since when it is paused.
    pub paused_since_ms: Option<UnixMillis>,
    /// When its definition was last set.
    pub set_ms: UnixMillis,
    /// The next moments, the earliest first. None if it is paused or has ended.
    pub next: Vec<ScheduleMoment>,
    /// The last occurrences, the newest first. The newest may still wait.
    pub recent: Vec<ScheduleOccurrence>,
    /// Only in the answer to a get: the options of the occurrences, in the form that a set takes.
    /// Without the scope `admin` the values of `headers` are null. With only the scope `view` there
    /// is no `headers`, and the `url` of `on_dead` is null.
    #[schema(value_type = Option<Object>)]
    pub options: Option<serde_json::Value>,
    /// Only in the answer to a get: the content of the occurrences. Absent for a token with only
    /// the scope `view`.
    pub content: Option<String>,
}

/// Which occurrence of a recurring schedule a task is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskSchedule {
    /// The name of the schedule.
    pub name: String,
    /// The nominal moment; for a run, the moment of that call.
    pub moment_ms: UnixMillis,
    /// `moment_ms` as text.
    pub moment: Rfc3339,
    /// How many missed moments the task stands for, beside its own.
    pub missed: u64,
}

/// An occurrence of a recurring schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleOccurrence {
    /// Its task.
    pub task_id: TaskId,
    /// Its nominal moment.
    pub moment_ms: UnixMillis,
    /// `moment_ms` as local time with its offset (RFC 3339).
    pub moment: String,
    /// The state of the task. Absent if its history has been purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// The attempts begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The last outcome; null for a token with only the scope `view`.
    pub last_outcome: Option<String>,
}

/// Schedules of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<ScheduleShown>,
    /// For the next page. Absent after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The answer to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRan {
    /// The task.
    pub task_id: TaskId,
    /// When it is due.
    pub due_ms: UnixMillis,
    /// `due_ms` as text.
    pub due: Rfc3339,
    /// An earlier run with the same idempotency key had stored the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// The next moments of a recurring schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SchedulePreview {
    /// The time zone.
    pub zone: String,
    /// The moments, the earliest first. Fewer than `count` if the schedule ends.
    pub moments: Vec<ScheduleMoment>,
}

/// A moment at which a recurring schedule fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleMoment {
    /// The moment.
    pub moment_ms: UnixMillis,
    /// `moment_ms` as local time with its offset (RFC 3339).
    pub moment: String,
}
