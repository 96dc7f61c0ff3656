//! The answer of a call that failed.

use serde::{Deserialize, Serialize};

use crate::{BatchItem, ErrorCode, TaskState};

/// The JSON of a failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Error))]
pub struct Failure {
    /// The case.
    #[cfg_attr(feature = "schema", schema(value_type = u16, minimum = 1000))]
    pub dm_error: ErrorCode,
    /// A sentence that names the field and what would be right.
    pub error_msg: String,
    /// Where the task stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// It will be cancelled unless it succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_pending: Option<bool>,
    /// Finds it in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Of a batch, none of whose tasks was stored: how many they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<usize>,
    /// Of the same: each task's answer, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<BatchItem>>,
}
