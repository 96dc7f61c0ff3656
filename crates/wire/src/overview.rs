//! The calls about the whole deployment: who calls, and how it is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BreakerState, Series, UnixMillis};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhoAmIRequest {}

/// The caller, as its token describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The name of the token; null if none are configured, so that everyone may do everything.
    pub token: Option<String>,
    pub scopes: Vec<String>,
    /// The patterns of the topics that the token covers.
    pub topics: Vec<String>,
    /// Whether it covers all topics.
    pub all_topics: bool,
    /// The version of the program that answers.
    pub version: String,
    /// `embedded` or `redis`.
    pub store: String,
    /// The id of the instance that answers.
    pub instance: String,
    /// The time of the instance that answers.
    pub now_ms: UnixMillis,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewRequest {}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveRequest {}

/// The store and the instance that answers, as the last sample of each second found them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// The store's time of the last sample; 0 before the first.
    pub at_ms: UnixMillis,
    /// When the oldest figure was read. If there are many lanes, some are sampled each second.
    pub oldest_ms: UnixMillis,
    /// Whether each lane has been read at least once.
    pub complete: bool,
    /// The tasks of the whole store.
    pub tasks: TaskCounts,
    /// The tasks of the whole store that are due and wait, by what delays them.
    pub overdue: Vec<OverdueShown>,
    pub objective: Objective,
    /// Those that are not called now or not configured first, then those with most overdue tasks,
    /// then with most waiting ones; at most 20.
    pub destinations: Vec<DestinationFigures>,
    /// How many more destinations there are.
    pub more_destinations: u64,
    /// The number of topics.
    pub topics: u64,
    /// How many of them are paused.
    pub paused_topics: u64,
    /// How many instances are alive.
    pub instances: u64,
    /// How many of them make callbacks.
    pub workers: u64,
    /// The instance that answers, and its store.
    #[serde(default)]
    #[schema(required = true)]
    pub health: InstanceHealth,
    /// The last step of `/delay/series`: figures of the instance that answers.
    pub last: Series,
}

/// How the instance that answers works; `/delay/instance/get` shows more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceHealth {
    /// The 99th percentile of the last calls of the store, at most 128 of each kind within a
    /// minute. Null without calls.
    pub store_p99_ms: Option<f64>,
    /// The Redis servers that do not answer.
    pub servers_away: u64,
    /// Whether the disk of the embedded store has less free space than its reserve.
    pub disk_full: bool,
    /// The store's clock minus the clock of the instance.
    pub clock_offset_ms: i64,
    /// Whether the last configuration that was read was refused.
    pub config_refused: bool,
}

/// Tasks by state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    pub scheduled: u64,
    pub leased: u64,
    pub delivered: u64,
    pub dead: u64,
    pub cancelled: u64,
    pub expired: u64,
    /// The earliest due time of those that wait.
    pub earliest_ms: Option<UnixMillis>,
}

/// Overdue tasks that the same culprit delays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverdueShown {
    /// `delayd`, `receiver`, `operator`, `store` or `consumer`.
    pub culprit: String,
    pub count: u64,
    /// Whether the store stopped counting, so that there may be more.
    pub cut: bool,
    /// The due time of the first of them.
    pub oldest_ms: Option<UnixMillis>,
    /// The topic of the first of them.
    #[serde(default)]
    pub topic: Option<String>,
}

/// The objective of lateness, and how the tasks of the instance that answers met it since its
/// start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Objective {
    /// How late a task may be because of delayd or the store.
    pub lateness_ms: u64,
    /// The share of tasks that should meet it.
    pub target: f64,
    pub good: u64,
    pub bad: u64,
    /// Tasks of the whole store that wait, and miss it already.
    pub late: u64,
}

/// A destination. What differs between instances is as in the list of destinations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationFigures {
    pub sn: String,
    pub waiting: u64,
    pub overdue: u64,
    pub held: bool,
    /// False if the configuration neither names nor allows it.
    pub configured: bool,
    pub breaker: BreakerState,
    /// How long its `Retry-After` lasts; only while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Why there is no OAuth access token for it, so that its tasks wait; only while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_access_token: Option<String>,
    pub in_flight: u64,
    /// The current limit of concurrent calls.
    pub concurrency: u64,
    /// Null before the first failure, and for a token with only the scope `view`.
    #[serde(default)]
    pub last_error: Option<String>,
    #[serde(default)]
    pub last_error_ms: Option<UnixMillis>,
}
