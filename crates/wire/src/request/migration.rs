//! The requests that move tasks and recurring schedules from one store to another.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::{SpanText, TaskIdGiven};
use crate::value::object_if_given;
use crate::{
    AtMost, Backoff, Destination, GivenHeaders, Lease, Mode, Number, Receipt, Span, TaskId,
    TaskState, Topic, Way,
};

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordsRequest {
    /// The topic.
    pub topic: Topic,
    /// The tasks' ids.
    #[schema(value_type = Vec<TaskIdGiven>, min_items = 1, max_items = 1000)]
    pub task_ids: AtMost<TaskId, 1000>,
    /// Leases the waiting tasks to the caller, who is about to move them, for 1 s to 12 h. The
    /// answer then holds only tasks that are leased by this call or have ended.
    #[schema(value_type = Option<SpanText>)]
    pub lend: Option<Lease>,
    /// Leases the tasks under this receipt, and extends the lease of tasks that have it already.
    /// Absent: a new receipt.
    pub receipt: Option<Receipt>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MovedRequest {
    /// The topic.
    pub topic: Topic,
    /// The tasks' ids.
    #[schema(value_type = Vec<TaskIdGiven>, min_items = 1, max_items = 1000)]
    pub task_ids: AtMost<TaskId, 1000>,
    /// The receipt from the answer of `records`.
    pub receipt: Receipt,
    /// The tasks were not moved: each waits again as before.
    pub back: Option<bool>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest {
    /// Records as `records` answers them.
    #[schema(value_type = Vec<AdoptedRecord>, min_items = 1)]
    pub records: AtMost<Box<RawValue>, 10_000>,
}

// A client sends a `Record` as the other service answered it. This is how the service reads it:
// numbers may have any notation.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptedRecord {
    pub topic: Topic,
    /// The task's id, which it keeps.
    #[schema(value_type = TaskIdGiven)]
    #[serde(deserialize_with = "TaskId::given")]
    pub task_id: TaskId,
    /// `scheduled` (default), or the state in which it ended.
    pub state: Option<TaskState>,
    #[schema(value_type = Way)]
    pub mode: Mode,
    #[schema(value_type = f64)]
    pub created_ms: Number,
    #[schema(value_type = f64)]
    pub due_ms: Number,
    #[schema(value_type = Option<f64>)]
    pub waits_ms: Option<Number>,
    #[schema(value_type = Option<f64>)]
    pub finished_ms: Option<Number>,
    #[schema(value_type = Option<u32>)]
    pub attempts: Option<Number>,
    pub last_outcome: Option<String>,
    /// A cancel is pending in the other store: the task is cancelled here.
    pub cancelling: Option<bool>,
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
    #[schema(value_type = Option<f64>)]
    pub key_set_ms: Option<Number>,
    /// The other service leases the task to the mover, and keeps it if it is refused here.
    pub lent: Option<bool>,
    #[schema(value_type = Option<Object>)]
    #[serde(default, deserialize_with = "object_if_given")]
    pub options: Option<AdoptedOptions>,
    pub content: String,
    /// Only without a content: the service or the host that the task was delivered to.
    pub destination: Option<String>,
    #[schema(value_type = Option<Vec<AdoptedNote>>)]
    pub log: Option<AtMost<AdoptedNote, 16>>,
}

/// Shows the schedules of a topic as another store adopts them.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRecordsRequest {
    /// The topic.
    pub topic: Topic,
    /// Pauses these schedules for the caller, who is about to move them, and shows only them.
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 100)]
    pub hold: Option<AtMost<String, 100>>,
    /// Schedules per page (default and maximum 100).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100)]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
}

/// Stores schedules of another store, which continue here.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleAdoptRequest {
    /// The topic.
    pub topic: Topic,
    /// Records as `records` answers them, all of this topic.
    #[schema(value_type = Vec<AdoptedSchedule>, min_items = 1, max_items = 100)]
    pub records: AtMost<Box<RawValue>, 100>,
}

// How the service reads a `ScheduleRecord`.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptedSchedule {
    pub topic: Topic,
    pub schedule: String,
    pub revision: Option<String>,
    #[schema(value_type = f64)]
    pub set_ms: Number,
    #[schema(value_type = f64)]
    pub since_ms: Number,
    pub cursor: Option<String>,
    pub paused: Option<bool>,
    pub held: Option<bool>,
    #[schema(value_type = Option<TaskIdGiven>)]
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub waiting: Option<TaskId>,
    pub origin: String,
    #[schema(value_type = Object)]
    pub definition: Box<RawValue>,
}

/// Deletes schedules that another store has.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleMovedRequest {
    /// The topic.
    pub topic: Topic,
    /// The schedules.
    #[schema(value_type = Vec<MovedSchedule>, min_items = 1, max_items = 100)]
    pub schedules: AtMost<MovedSchedule, 100>,
    /// The schedules were not moved: each goes on, and no moment is lost.
    pub back: Option<bool>,
}

/// A schedule, and the revision that was moved.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MovedSchedule {
    pub schedule: String,
    pub revision: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptedNote {
    pub attempt: u32,
    pub started_ms: i64,
    pub duration_ms: u64,
    pub outcome: String,
    pub answer: String,
}

/// The options of a record.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptedOptions {
    pub origin: Option<String>,
    pub max_attempts: Option<Number>,
    pub timeout: Option<Span>,
    pub backoff: Option<Backoff>,
    pub headers: Option<GivenHeaders>,
    pub expires_after: Option<Span>,
    #[serde(default, deserialize_with = "object_if_given")]
    pub on_dead: Option<AdoptedOnDead>,
    /// The trace context of its add.
    pub traceparent: Option<String>,
    /// The occurrence of a recurring schedule that the task is.
    pub schedule: Option<Box<RawValue>>,
    /// The digest of a content that was removed, 16 hexadecimal digits.
    pub removed: Option<String>,
}

/// `on_dead` in the options of a record.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptedOnDead {
    pub sn: Destination,
    pub url: String,
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub task_id: Option<TaskId>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::PartialSchema;
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::Schema;

    use super::*;
    use crate::{Note, Record, ScheduleRecord};

    /// A store refuses a record with a field that its reader does not know.
    #[test]
    fn a_record_is_read_with_the_fields_that_it_is_written_with() {
        let fields = |schema: RefOr<Schema>| -> BTreeSet<String> {
            let RefOr::T(Schema::Object(object)) = schema else { panic!("a struct is an object") };
            object.properties.into_keys().collect()
        };
        assert_eq!(fields(AdoptedRecord::schema()), fields(Record::schema()));
        assert_eq!(fields(AdoptedSchedule::schema()), fields(ScheduleRecord::schema()));
        assert_eq!(fields(AdoptedNote::schema()), fields(Note::schema()));
    }
}
