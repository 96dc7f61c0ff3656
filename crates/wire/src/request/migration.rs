//! The requests that move tasks and recurring schedules from one store to another.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{ReceiptText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{TaskState, TopicName, Way};

requests! {

pub struct RecordsRequest<Topic, TaskIds, Lease, Receipt> {
    ..moved_tasks,
    /// Leases the waiting tasks to the caller, who is about to move them, for 1 s to 12 h. The
    /// answer then holds only tasks that are leased by this call or have ended.
    #[schema(value_type = Option<SpanText>)]
    pub lend: Option<Lease>,
    /// Leases the tasks under this receipt, and extends the lease of tasks that have it already.
    /// Absent: a new receipt.
    #[schema(value_type = Option<ReceiptText>)]
    pub receipt: Option<Receipt>,
}

pub struct MovedRequest<Topic, TaskIds, Receipt> {
    ..moved_tasks,
    /// The receipt from the answer of `records`.
    #[schema(value_type = ReceiptText, required = true)]
    pub receipt: Option<Receipt>,
    /// The tasks were not moved: each waits again as before.
    pub back: Option<bool>,
}

pub struct AdoptRequest<Records> {
    /// Records as `records` answers them.
    #[schema(value_type = Vec<AnyRecord>, min_items = 1, required = true)]
    pub records: Option<Records>,
}

// A client sends a `Record` as the other service answered it. This is how the service reads it:
// `null` is absent, so every field is optional, and numbers may have any notation.
pub struct AdoptedRecord<Topic, TaskId, State, Mode, Number, Options, Log> {
    #[schema(value_type = TopicName, required = true)]
    pub topic: Option<Topic>,
    /// The task's id, which it keeps.
    #[schema(value_type = TaskIdGiven, required = true)]
    pub task_id: Option<TaskId>,
    /// `scheduled` (default), or the state in which it ended.
    #[schema(value_type = Option<TaskState>)]
    pub state: Option<State>,
    #[schema(value_type = Way, required = true)]
    pub mode: Option<Mode>,
    #[schema(value_type = f64, required = true)]
    pub created_ms: Option<Number>,
    #[schema(value_type = f64, required = true)]
    pub due_ms: Option<Number>,
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
    pub options: Option<Options>,
    #[schema(value_type = String, required = true)]
    pub content: Option<String>,
    /// Only without a content: the service or the host that the task was delivered to.
    pub destination: Option<String>,
    #[schema(value_type = Option<Vec<AdoptedNote>>)]
    pub log: Option<Log>,
}

/// Shows the schedules of a topic as another store adopts them.
pub struct ScheduleRecordsRequest<Topic, Names, Number, Cursor> {
    ..topic,
    /// Pauses these schedules for the caller, who is about to move them, and shows only them.
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 100)]
    pub hold: Option<Names>,
    /// Schedules per page (default and maximum 100).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100)]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[schema(value_type = Option<String>)]
    pub cursor: Option<Cursor>,
}

/// Stores schedules of another store, which continue here.
pub struct ScheduleAdoptRequest<Topic, Records> {
    ..topic,
    /// Records as `records` answers them, all of this topic.
    #[schema(value_type = Vec<AnyScheduleRecord>, min_items = 1, max_items = 100, required = true)]
    pub records: Option<Records>,
}

// How the service reads a `ScheduleRecord`: `null` is absent, so every field is optional.
pub struct AdoptedSchedule<Topic, Name, Number, TaskId, Json> {
    #[schema(value_type = TopicName, required = true)]
    pub topic: Option<Topic>,
    #[schema(value_type = String, required = true)]
    pub schedule: Option<Name>,
    pub revision: Option<String>,
    #[schema(value_type = f64, required = true)]
    pub set_ms: Option<Number>,
    #[schema(value_type = f64, required = true)]
    pub since_ms: Option<Number>,
    pub cursor: Option<String>,
    pub paused: Option<bool>,
    pub held: Option<bool>,
    #[schema(value_type = Option<TaskIdGiven>)]
    pub waiting: Option<TaskId>,
    #[schema(value_type = String, required = true)]
    pub origin: Option<String>,
    #[schema(value_type = Object, required = true)]
    pub definition: Option<Json>,
}

/// Deletes schedules that another store has.
pub struct ScheduleMovedRequest<Topic, Moved> {
    ..topic,
    /// The schedules.
    #[schema(value_type = Vec<AnyMoved>, min_items = 1, max_items = 100, required = true)]
    pub schedules: Option<Moved>,
    /// The schedules were not moved: each goes on, and no moment is lost.
    pub back: Option<bool>,
}

/// A schedule, and the revision that was moved.
pub struct MovedSchedule<Name> {
    #[schema(value_type = String, required = true)]
    pub schedule: Option<Name>,
    #[schema(value_type = String, required = true)]
    pub revision: Option<String>,
}

}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyRecord = AdoptedRecord<(), (), (), (), (), (), ()>;
/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyScheduleRecord = AdoptedSchedule<(), (), (), (), ()>;
/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyMoved = MovedSchedule<()>;

#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AdoptedNote {
    pub attempt: u32,
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    pub started_ms: i64,
    pub duration_ms: u64,
    pub outcome: String,
    pub answer: String,
}

/// The options of a record.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptedOptions<Number, Span, Json> {
    pub origin: Option<String>,
    pub max_attempts: Option<Number>,
    pub timeout: Option<Span>,
    pub backoff: Option<Json>,
    pub headers: Option<Json>,
    pub expires_after: Option<Span>,
    pub on_dead: Option<Json>,
    /// The trace context of its add.
    pub traceparent: Option<String>,
    /// The occurrence of a recurring schedule that the task is.
    pub schedule: Option<Json>,
    /// The digest of a content that was removed, 16 hexadecimal digits.
    pub removed: Option<String>,
}

/// `on_dead` in the options of a record.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptedOnDead<Service, TaskId> {
    pub sn: Option<Service>,
    pub url: Option<String>,
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
        assert_eq!(fields(AnyRecord::schema()), fields(Record::<()>::schema()));
        assert_eq!(fields(AnyScheduleRecord::schema()), fields(ScheduleRecord::<()>::schema()));
        assert_eq!(fields(AdoptedNote::schema()), fields(Note::schema()));
    }
}
