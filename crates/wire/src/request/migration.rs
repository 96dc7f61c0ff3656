//! The requests that move whole tasks from one store to another.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{ReceiptText, SpanText, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{TaskState, TopicName, Way};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct RecordsRequest<Topic, TaskIds, Lease, Receipt> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The tasks' ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Vec<TaskIdGiven>, min_items = 1, max_items = 1000, required = true)
    )]
    pub task_ids: Option<TaskIds>,
    /// Leases the waiting tasks to the caller, who is about to move them, for 1 s to 12 h. The
    /// answer then holds only tasks that are leased by this call or have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub lend: Option<Lease>,
    /// Leases the tasks under this receipt, and extends the lease of tasks that have it already.
    /// Absent: a new receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ReceiptText>))]
    pub receipt: Option<Receipt>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct MovedRequest<Topic, TaskIds, Receipt> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The tasks' ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Vec<TaskIdGiven>, min_items = 1, max_items = 1000, required = true)
    )]
    pub task_ids: Option<TaskIds>,
    /// The receipt from the answer of `records`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ReceiptText, required = true))]
    pub receipt: Option<Receipt>,
    /// The tasks were not moved: each waits again as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<bool>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest<Records> {
    /// Records as `records` answers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Vec<AnyRecord>, min_items = 1, required = true)
    )]
    pub records: Option<Records>,
}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyRecord = AdoptedRecord<(), (), (), (), (), (), ()>;

// A client sends a `Record` as the other service answered it. This is how the service reads it:
// `null` is absent, so every field is optional, and numbers may have any notation.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct AdoptedRecord<Topic, TaskId, State, Mode, Number, Options, Log> {
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The task's id, which it keeps.
    #[cfg_attr(feature = "schema", schema(value_type = TaskIdGiven, required = true))]
    pub task_id: Option<TaskId>,
    /// `scheduled` (default), or the state in which it ended.
    #[cfg_attr(feature = "schema", schema(value_type = Option<TaskState>))]
    pub state: Option<State>,
    #[cfg_attr(feature = "schema", schema(value_type = Way, required = true))]
    pub mode: Option<Mode>,
    #[cfg_attr(feature = "schema", schema(value_type = f64, required = true))]
    pub created_ms: Option<Number>,
    #[cfg_attr(feature = "schema", schema(value_type = f64, required = true))]
    pub due_ms: Option<Number>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub waits_ms: Option<Number>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub finished_ms: Option<Number>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub attempts: Option<Number>,
    pub last_outcome: Option<String>,
    /// A cancel is pending in the other store: the task is cancelled here.
    pub cancelling: Option<bool>,
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub key: Option<String>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub key_set_ms: Option<Number>,
    /// The other service leases the task to the mover, and keeps it if it is refused here.
    pub lent: Option<bool>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub options: Option<Options>,
    #[cfg_attr(feature = "schema", schema(value_type = String, required = true))]
    pub content: Option<String>,
    /// Only without a content: the service or the host that the task was delivered to.
    pub destination: Option<String>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<AdoptedNote>>))]
    pub log: Option<Log>,
}

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
    use crate::{Note, Record};

    /// A store refuses a record with a field that its reader does not know.
    #[test]
    fn a_record_is_read_with_the_fields_that_it_is_written_with() {
        let fields = |schema: RefOr<Schema>| -> BTreeSet<String> {
            let RefOr::T(Schema::Object(object)) = schema else { panic!("a struct is an object") };
            object.properties.into_keys().collect()
        };
        assert_eq!(fields(AnyRecord::schema()), fields(Record::<()>::schema()));
        assert_eq!(fields(AdoptedNote::schema()), fields(Note::schema()));
    }
}
