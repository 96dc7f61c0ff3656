//! The answer of a call that failed.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{BatchItem, ErrorCode, TaskState};

/// The JSON of a failed call.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Error)]
pub struct Failure {
    /// The error code.
    #[schema(value_type = u16, minimum = 1000)]
    pub dm_error: ErrorCode,
    /// A sentence that names the field, what was expected, and what the request had.
    pub error_msg: String,
    /// The task's current state.
    pub state: Option<TaskState>,
    /// A cancel is pending: the task is cancelled unless its current attempt succeeds.
    pub cancel_pending: Option<bool>,
    /// Identifies the request in the log.
    pub request_id: Option<String>,
    /// For a batch in which every task failed: the number of tasks.
    pub failed: Option<usize>,
    /// For a batch in which every task failed: the result for each task, in order.
    pub results: Option<Vec<BatchItem>>,
}
