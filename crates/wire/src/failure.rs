//! The answer of a call that failed.

use serde::{Deserialize, Serialize};

use crate::{BatchItem, ErrorCode, TaskState};

/// The JSON of a failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Error))]
pub struct Failure {
    /// The error code.
    #[cfg_attr(feature = "schema", schema(value_type = u16, minimum = 1000))]
    pub dm_error: ErrorCode,
    /// A sentence that names the field, what was expected, and what the request had.
    pub error_msg: String,
    /// The task's current state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// A cancel is pending: the task is cancelled unless its current attempt succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_pending: Option<bool>,
    /// Identifies the request in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// For a batch in which every task failed: the number of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<usize>,
    /// For a batch in which every task failed: the result for each task, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<BatchItem>>,
}
