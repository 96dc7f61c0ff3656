//! Recurring schedules, for a move to another store: the answers of `records`, `moved` and `adopt`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{ErrorCode, SuccessAnswer, TaskId, Topic, UnixMillis};

/// Schedules of a topic as another store adopts them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRecords {
    /// The schedules.
    pub records: Vec<ScheduleRecord>,
    /// For the next page. Absent after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A schedule as it is stored. An occurrence that was never handed out counts as not planned.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRecord {
    /// The topic.
    pub topic: Topic,
    /// The name.
    pub schedule: String,
    /// The revision: 16 hexadecimal digits.
    pub revision: String,
    /// When its definition was last set.
    pub set_ms: UnixMillis,
    /// Only moments after this one are planned.
    pub since_ms: UnixMillis,
    /// The local time of the last moment that was planned, and its fold.
    pub cursor: Option<String>,
    /// Whether an operator has paused it.
    #[serde(default)]
    pub paused: bool,
    /// Whether a mover has paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// The occurrence that was never handed out. It is not moved: the other store plans it again.
    pub waiting: Option<TaskId>,
    /// The store that its occurrences have the `webhook-id`s of.
    pub origin: String,
    /// When it fires, and the task of each moment.
    #[schema(value_type = Object)]
    pub definition: Map<String, Value>,
}

/// The result of an adopt of schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleAdoptAnswer {
    /// How many records were refused.
    pub failed: usize,
    /// The result for each record, in order.
    pub results: Vec<ScheduleAdoptItem>,
}

/// The derive takes no generic arguments in a `value_type`.
type KeptAnswer = SuccessAnswer<ScheduleKept>;

item_of_batch! {
    pub enum ScheduleAdoptItem { Kept(KeptAnswer) }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleKept {
    pub schedule: String,
    /// An earlier call had adopted it. It may have changed since.
    pub known: bool,
}

/// The answer to a `moved` of schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SchedulesEnded {
    /// How many are gone, or go on if `back`.
    pub count: u64,
    /// The schedules that were changed or resumed since: they stay.
    pub stale: Vec<String>,
}
