//! The calls about instances and their figures.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Span, UnixMillis};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceListRequest {}

/// The instances that are alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Instances {
    pub instances: Vec<InstanceShown>,
}

/// One instance, as its last heartbeat describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceShown {
    /// Drawn at its start.
    pub id: String,
    /// The name of its host.
    pub name: String,
    pub version: String,
    pub started_ms: UnixMillis,
    /// Where it listens.
    pub address: String,
    /// Processor time per time: 1 is a whole core.
    pub cpu: f64,
    pub memory_bytes: u64,
    /// Callbacks in flight.
    pub in_flight: u64,
    /// Whether it makes callbacks.
    pub workers: bool,
    /// The destinations whose circuit breaker is open on it.
    #[serde(default)]
    #[schema(required = true)]
    pub failing: usize,
    /// When the store heard of it last.
    pub seen_ms: UnixMillis,
    /// Whether it is the instance that answers.
    pub answers: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceGetRequest {}

/// How the instance that answers works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceDetail {
    pub id: String,
    /// `embedded` or `redis`.
    pub store: String,
    /// The store's clock minus the clock of the instance; 0 if the difference cannot be measured.
    pub clock_offset_ms: i64,
    /// How often the clock of the instance has jumped.
    pub clock_jumps: u64,
    /// Results of callbacks that the store has not confirmed yet.
    pub settles_pending: u64,
    /// The kinds of calls of the store that were made in the last minute, or have failed.
    pub operations: Vec<StoreOperation>,
    /// The Redis servers. Empty with the embedded store.
    pub servers: Vec<StoreServer>,
    /// The disk of the embedded store. Null with Redis.
    pub disk: Option<DiskSpace>,
    pub reloads: ConfigReloads,
    pub log: LogLines,
}

/// Calls of the store of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoreOperation {
    /// Such as `add`, `claim` or `settle`.
    pub op: String,
    /// The last calls within a minute, at most 128.
    pub calls: usize,
    /// The median of their durations. Null without calls.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of their durations. Null without calls.
    pub p99_ms: Option<f64>,
    /// The calls that failed since the start of the instance.
    pub errors: Vec<StoreErrors>,
}

/// Failed calls of one kind of error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreErrors {
    /// Such as `unavailable` or `full`.
    pub kind: String,
    pub count: u64,
}

/// A Redis server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreServer {
    pub name: String,
    /// Whether the instance sends it nothing, because it does not answer.
    pub away: bool,
}

/// The file system of the embedded store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskSpace {
    pub free_bytes: u64,
    /// With less than this free, adds are refused.
    pub reserve_bytes: u64,
    /// The last fsyncs within a minute, at most 128.
    pub fsyncs: usize,
    /// The median of their durations. Null without fsyncs.
    pub fsync_p50_ms: Option<f64>,
    /// The 99th percentile of their durations. Null without fsyncs.
    pub fsync_p99_ms: Option<f64>,
}

/// Reloads of the configuration since the start of the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigReloads {
    pub taken: u64,
    pub refused: u64,
    /// When the last one was. Null before the first.
    pub last_ms: Option<UnixMillis>,
    /// Whether the last configuration that was read is in force.
    pub in_force: bool,
    /// Why the last one was refused. Null for a token with only the scope `view`.
    pub error: Option<String>,
}

/// The log of the instance since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLines {
    pub errors: u64,
    pub warnings: u64,
    /// The last errors and warnings, at most 20, the newest first. Null for a token with only the
    /// scope `view`.
    pub last: Option<Vec<LogLine>>,
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    pub at_ms: UnixMillis,
    /// `error` or `warn`.
    pub level: String,
    /// Shortened to 500 bytes.
    pub message: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesRequest {
    /// How far back, up to 24 h (default 5m). Steps of 1 s reach back 5 min, of 10 s an hour, of a
    /// minute 24 h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
}

/// The figures of the instance that answers, step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// The length of a step.
    pub step_ms: u64,
    /// The names of the figures.
    pub figures: Vec<String>,
    /// The steps, the oldest first: the end of each in Unix ms, then the figures by their names.
    pub points: Vec<Vec<u64>>,
}
