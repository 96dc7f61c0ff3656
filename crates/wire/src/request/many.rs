//! The requests that change many tasks of a topic.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{PageCursor, TaskIdGiven};
#[cfg(feature = "schema")]
use crate::{ServiceName, TaskState, TopicName};

requests! {

pub struct CancelManyRequest<Topic, State, Ids, Service, Number, Cursor> {
    ..topic,
    /// The state of the tasks: `scheduled` or `dead`.
    #[schema(value_type = TaskState, required = true)]
    pub state: Option<State>,
    ..selection,
}

pub struct UpdateManyRequest<Topic, Ids, Service, Number, Cursor> {
    ..topic,
    /// The new due time, in Unix seconds. Give this or `at`.
    #[schema(value_type = Option<f64>)]
    pub timing_moment: Option<Number>,
    /// The new due time as text: RFC 3339, RFC 9557, or a local time whose zone is in `zone`.
    ..written_time,
    ..selection,
}

}
