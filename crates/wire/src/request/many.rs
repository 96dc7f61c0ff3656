//! The requests that change many tasks of a topic.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::PageCursor;
#[cfg(feature = "schema")]
use crate::{ServiceName, TaskState, TopicName};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct CancelManyRequest<Topic, State, Service, Number, Cursor> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The state of the tasks: `scheduled` or `dead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskState, required = true))]
    pub state: Option<State>,
    /// All tasks of the state; otherwise a filter is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ServiceName>))]
    pub sn: Option<Service>,
    /// Only tasks whose last outcome is exactly this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Only tasks that are due at or after this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub due_from: Option<Number>,
    /// Only tasks that are due at or before this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub due_to: Option<Number>,
    /// Only counts, and shows some of the tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that the filter excludes (default 10,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 10_000))]
    pub limit: Option<Number>,
    /// The cursor of the previous call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct UpdateManyRequest<Topic, Service, Number, Cursor> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The new due time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, required = true))]
    pub timing_moment: Option<Number>,
    /// All tasks of the state; otherwise a filter is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Only tasks for this service or host; `@pull`: only pulled tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<ServiceName>))]
    pub sn: Option<Service>,
    /// Only tasks whose last outcome is exactly this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Only tasks that are due at or after this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub due_from: Option<Number>,
    /// Only tasks that are due at or before this time, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub due_to: Option<Number>,
    /// Only counts, and shows some of the tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// The most tasks to look at, including those that the filter excludes (default 10,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 10_000))]
    pub limit: Option<Number>,
    /// The cursor of the previous call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
}
