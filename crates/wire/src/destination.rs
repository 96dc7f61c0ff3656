//! The answers of the calls about destinations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BreakerState, UnixMillis};

/// All destinations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destinations {
    pub destinations: Vec<DestinationShown>,
    #[serde(default)]
    #[schema(required = true)]
    pub unharmed: Unharmed,
    /// With `sampled`: when the oldest part of `waiting` and `overdue` was counted; 0 until all
    /// lanes were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of_ms: Option<UnixMillis>,
}

/// How late the instance that answers began the first callbacks of the last minute, to the services
/// whose breaker is closed and that are not held. What operators delayed does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unharmed {
    /// The last callbacks that were counted, at most 128 of a service.
    pub calls: usize,
    /// The 99th percentile of their lateness. Null without calls.
    pub lateness_p99_ms: Option<u64>,
}

/// One destination. `breaker`, `retry_after_ms`, `no_access_token` and the last error are those of
/// the instance where they are worst. `in_flight` and `concurrency` are sums over the instances
/// that call it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DestinationShown {
    pub sn: String,
    /// False for a destination that the configuration does not name or allow, though tasks wait for
    /// it.
    pub configured: bool,
    pub held: bool,
    pub waiting: u64,
    /// With `sampled`: the waiting tasks whose due time had passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overdue: Option<u64>,
    pub breaker: BreakerState,
    pub in_flight: usize,
    /// The current limit of concurrent calls.
    pub concurrency: usize,
    pub rate: Option<String>,
    /// The remaining time of its own `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Why there is no OAuth access token for it, so that its tasks wait; only while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_access_token: Option<String>,
    /// Null before the first failure, and for a token with only the scope `view`.
    pub last_error: Option<String>,
    pub last_error_ms: Option<UnixMillis>,
    #[serde(default)]
    #[schema(required = true)]
    pub recent: RecentCalls,
    /// Its state on each instance that has called it lately. Empty while only one instance lives.
    #[serde(default)]
    #[schema(required = true)]
    pub instances: Vec<DestinationOnInstance>,
}

/// The state of a destination on one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DestinationOnInstance {
    /// The id of the instance.
    pub instance: String,
    /// The name of its host.
    pub name: String,
    /// Whether it is the instance that answers.
    pub answers: bool,
    /// When the store heard of it last. The state is that of then.
    pub seen_ms: UnixMillis,
    pub breaker: BreakerState,
    /// How much longer an open breaker stays open.
    pub probes_in_ms: Option<u64>,
    pub in_flight: usize,
    /// The current limit of concurrent calls.
    pub concurrency: usize,
    /// Its rate in the configuration of the instance.
    pub rate: Option<String>,
    /// The remaining time of its own `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Why there is no OAuth access token for it, so that its tasks wait; only while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_access_token: Option<String>,
    /// Null before the first failure, and for a token with only the scope `view`.
    pub last_error: Option<String>,
    pub last_error_ms: Option<UnixMillis>,
    pub recent: RecentCalls,
    /// When the instance heard of the last `probe`. Null if it did not within the last minute.
    pub probed_ms: Option<UnixMillis>,
}

/// All that is known about a destination. What differs between instances is as in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DestinationDetail {
    pub sn: String,
    /// False for a destination that the configuration does not name or allow, though tasks wait for
    /// it.
    pub configured: bool,
    pub held: bool,
    /// The waiting tasks of all topics, due or not, when they were sampled.
    pub waiting: u64,
    /// The waiting tasks whose due time had passed.
    pub overdue: u64,
    /// When the oldest part of `waiting` and `overdue` was counted; 0 until all lanes were.
    pub as_of_ms: UnixMillis,
    /// Whether all lanes were counted. If not, `waiting` and `overdue` are lower bounds.
    pub complete: bool,
    /// Whether the store stopped counting, so that `waiting` and `overdue` are lower bounds.
    pub cut: bool,
    pub breaker: BreakerState,
    /// How much longer an open breaker stays open: where it does so longest.
    pub probes_in_ms: Option<u64>,
    pub in_flight: usize,
    /// The current limit of concurrent calls, which is lower during a slow start.
    pub concurrency: usize,
    /// The limit of concurrent calls of each instance, in the configuration.
    pub slots: usize,
    pub rate: Option<String>,
    /// What counts as success, as the configuration writes it. Null for a destination that it does
    /// not name or allow.
    pub success: Option<String>,
    /// The remaining time of its own `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Why there is no OAuth access token for it, so that its tasks wait; only while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_access_token: Option<String>,
    /// Null before the first failure, and for a token with only the scope `view`.
    pub last_error: Option<String>,
    pub last_error_ms: Option<UnixMillis>,
    pub recent: RecentCalls,
    /// Of the other services.
    #[serde(default)]
    #[schema(required = true)]
    pub unharmed: Unharmed,
    /// The last changes of the breaker of the instance that answers, at most 16, the oldest first.
    pub transitions: Vec<BreakerChange>,
    /// Its state on each instance that has called it lately. Empty while only one instance lives.
    #[serde(default)]
    #[schema(required = true)]
    pub instances: Vec<DestinationOnInstance>,
}

/// The last calls, at most 128 of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecentCalls {
    pub calls: usize,
    /// How many of them failed, as the breaker counts failures.
    pub failures: usize,
    /// The median of their durations, on the slowest instance. Null without calls.
    pub p50_ms: Option<u64>,
    /// The 99th percentile of their durations, on the slowest instance. Null without calls.
    pub p99_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BreakerChange {
    pub at_ms: UnixMillis,
    pub to: BreakerState,
}

/// The answer of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Probed {
    pub sn: String,
    /// The breaker of the instance that answers: `half_open`, if it was open.
    pub breaker: BreakerState,
    /// The state on each instance that has called it lately. The others hear of the probe within
    /// two seconds. Empty while only one instance lives.
    #[serde(default)]
    #[schema(required = true)]
    pub instances: Vec<DestinationOnInstance>,
}

/// The answer of hold and release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Held {
    pub sn: String,
    pub held: bool,
}
