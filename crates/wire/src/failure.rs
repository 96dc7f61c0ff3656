//! The answer of a call that failed.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{BatchItem, ErrorCode, TaskState};

/// Whether a call that got 503 has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WasStored {
    /// Nothing was stored or changed. Any instance may get the call again.
    No,
    /// It may have been stored or changed, in whole or in part.
    Unknown,
}

impl WasStored {
    /// The header that has it, too.
    pub const HEADER: &str = "delay-stored";

    /// The value of the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

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
    /// Of a 503: whether anything was stored or changed. The header `delay-stored` has it, too.
    pub stored: Option<WasStored>,
    /// Identifies the request in the log.
    pub request_id: Option<String>,
    /// For a batch in which every task failed: the number of tasks.
    pub failed: Option<usize>,
    /// For a batch in which every task failed: the result for each task, in order.
    pub results: Option<Vec<BatchItem>>,
}
