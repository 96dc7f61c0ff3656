//! The answers of the calls about dead letters.

use serde::{Deserialize, Serialize};

use crate::{TaskId, UnixMillis};

/// The dead of a topic by what killed them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Causes {
    /// The commonest first.
    pub causes: Vec<Cause>,
    /// There are more dead than were looked at.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Cause {
    pub reason: String,
    pub count: u64,
    pub first_ms: UnixMillis,
    pub last_ms: UnixMillis,
    /// One of them, to look at.
    pub task_id: TaskId,
}

/// What was done, or would have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Done {
    pub count: u64,
    /// How many were gone over, those that were passed over included.
    pub seen: u64,
    /// The request went over as much as one may: ask again, with the cursor.
    pub more: bool,
    /// For the next call; null at the end.
    pub cursor: Option<String>,
    /// When the last replayed task falls due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<UnixMillis>,
}
