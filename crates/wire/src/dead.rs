//! The answers of the calls about dead letters.

use serde::{Deserialize, Serialize};

use crate::{TaskId, UnixMillis};

/// The dead tasks of a topic, grouped by cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Causes {
    /// The most frequent cause first.
    pub causes: Vec<Cause>,
    /// The topic has more dead tasks than this call looked at.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Cause {
    /// The outcome of the last attempt. Null for a token with only the scope `view`.
    pub reason: Option<String>,
    pub count: u64,
    pub first_ms: UnixMillis,
    pub last_ms: UnixMillis,
    /// One of these tasks, as an example.
    pub task_id: TaskId,
}

/// What a replay or purge did, or would have done with `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Done {
    pub count: u64,
    /// How many dead tasks the call looked at, including those that `reason` excluded.
    pub seen: u64,
    /// The call reached its limit: call again with `cursor`.
    pub more: bool,
    /// For the next call; null at the end.
    pub cursor: Option<String>,
    /// When the last replayed task is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<UnixMillis>,
}
