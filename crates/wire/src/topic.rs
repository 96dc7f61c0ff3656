//! The answers of the calls about topics.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{Topic, TopicPolicy, UnixMillis};

/// All topics, or a page of them. Only a page has the other fields.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Topics {
    pub topics: Vec<TopicListed>,
    /// How many topics match, on all pages.
    pub total: Option<u64>,
    /// Of a page in another order than by name: when the oldest of the figures was counted that
    /// determine the order; 0 until the instance has counted all topics once.
    pub sorted_as_of_ms: Option<UnixMillis>,
    /// With `trend`: the time between two points.
    pub trend_step_ms: Option<u64>,
    /// For the next page; absent on the last page.
    pub cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopicListed {
    pub topic: Topic,
    pub shards: u16,
    pub paused: bool,
    /// Whether a task is overdue for more than 5 seconds. The list of all topics has it as the
    /// instance that answers sampled it last.
    #[serde(default)]
    #[schema(required = true)]
    pub overdue: bool,
    /// Exact counts. Absent if the server that has the tasks does not answer.
    pub counts: Option<Count>,
    /// The earliest due time in the future. Absent if there is none.
    pub next_due_ms: Option<UnixMillis>,
    /// The due time of the task that is overdue for longest. Absent if no task is overdue.
    pub oldest_overdue_ms: Option<UnixMillis>,
    /// With `trend`: the scheduled and leased tasks of the last half hour, as the instance that
    /// answers counted them, the oldest first; at most 30 points.
    pub trend: Option<Vec<u32>>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopicShown {
    pub topic: Topic,
    pub shards: u16,
    /// The name of the token that created the topic. Absent if no token did, or if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// The topic's settings, in the form that `set` takes.
    #[schema(value_type = TopicPolicy)]
    pub policy: Map<String, Value>,
    pub paused: bool,
    pub paused_since_ms: Option<UnixMillis>,
    /// Whether a task is overdue for more than 5 seconds.
    #[serde(default)]
    #[schema(required = true)]
    pub overdue: bool,
    pub counts: Count,
    /// The earliest due time in the future.
    pub next_due_ms: Option<UnixMillis>,
    /// The due time of the task that is overdue for longest.
    pub oldest_overdue_ms: Option<UnixMillis>,
    /// When the oldest task of the history ended (delivered, cancelled or expired).
    pub history_since_ms: Option<UnixMillis>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    pub scheduled: u64,
    pub leased: u64,
    pub delivered: u64,
    pub dead: u64,
    pub cancelled: u64,
    pub expired: u64,
}

/// A topic that was paused or resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Paused {
    pub topic: Topic,
    pub paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_since_ms: Option<UnixMillis>,
}

/// What a purge removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Purged {
    pub count: u64,
    /// Leased tasks stay: they end with their leases.
    pub leased: u64,
    /// The call reached its time limit: call again for the rest.
    pub more: bool,
}

/// How many tasks are due in each step of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    pub now_ms: UnixMillis,
    pub overdue: u64,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    pub until_ms: UnixMillis,
    pub count: u64,
}
