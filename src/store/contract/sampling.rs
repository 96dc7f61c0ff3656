//! The counts of lanes that the sampler reads once a second, and the heartbeats of instances.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::topics::Counts;
use crate::model::breaker::State;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane};
use crate::store::Result;

contract! {
    /// Counts lanes at a bounded cost, and removes heartbeats.
    /// [`Delivery::look`](super::Delivery::look) sends and reads them.
    pub trait Sampling {
        /// Counts lanes, with one pipeline to each server. The caller bounds the number of lanes.
        /// Fails only if it can count no lane.
        async fn sample(&self, query: SampleQuery) -> Result<SampleAnswer> => Sample;

        /// Removes the heartbeat of an instance that stops.
        async fn forget_instance(&self, id: &str) -> Result<()> => Change;
    }
}

/// An instance, as its last heartbeat describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// Its id: random, and new with each start.
    pub id: String,
    /// The name of its host.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When it started, by its own clock.
    pub started: UnixMillis,
    /// The address that it listens on.
    pub address: String,
    /// The cores in use since the heartbeat before: 1 is a whole core.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub memory: u64,
    /// Callbacks in flight.
    pub calls: u64,
    /// Whether it makes callbacks.
    pub has_workers: bool,
    /// Whether it shares the lanes with others: it may claim. Earlier versions do not say so,
    /// because they look at all lanes.
    pub divides: bool,
    /// The newest format of a store that it knows. Earlier versions do not say it, and know 1.
    pub format: u32,
    /// Whether the server of some lanes has not answered its polls for a while.
    pub lacks_lanes: bool,
    /// The destinations that it has called lately, the worst if there are many. Earlier versions
    /// do not say it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub destinations: BTreeMap<Destination, DestinationState>,
    /// The destinations that operators had probed lately, and when, by the store's clock.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<Destination, UnixMillis>,
    /// When the store received the heartbeat. The sender leaves 0.
    #[serde(skip)]
    pub seen: UnixMillis,
}

impl Instance {
    /// The number of destinations whose breaker is open on it.
    pub fn failing(&self) -> usize {
        self.destinations.values().filter(|state| state.breaker == State::Open).count()
    }
}

/// The state of a destination on one instance. Times that are left count from the heartbeat on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DestinationState {
    /// The state of its breaker.
    pub breaker: State,
    /// How much longer its open breaker stays open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes_in_ms: Option<u64>,
    /// Its calls in flight.
    pub in_flight: usize,
    /// The present limit of its calls in flight.
    pub concurrency: usize,
    /// Its rate in the instance's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// How much longer its `Retry-After` stops calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Why there is no OAuth access token for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_access_token: Option<String>,
    /// The outcome of its last failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When that was, by the instance's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<UnixMillis>,
    /// The last calls, at most 128.
    pub calls: usize,
    /// How many of them failed.
    pub failures: usize,
    /// The median of their durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The 99th percentile of their durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
}

impl DestinationState {
    /// Whether the instance keeps calls waiting.
    pub fn is_stopped(&self) -> bool {
        let waits = self.retry_after_ms.is_some() || self.no_access_token.is_some();
        waits || self.breaker != State::Closed
    }
}

/// Which lanes to count, and up to which due times.
#[derive(Clone, Debug, Default)]
pub struct SampleQuery {
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// For each lane, how long tasks may be overdue before they count as late.
    pub late_after: Vec<Duration>,
    /// Spans of time, in rising order. For each, the store counts the tasks that are due by its now
    /// plus the span. Zero counts the overdue tasks.
    pub within: Vec<Duration>,
    /// Whether to count up to 1,000,000 tasks, at most 500,000 of a destination in a lane, instead
    /// of 50,000 and 5,000. Redis counts any number of tasks at the same cost.
    pub is_thorough: bool,
}

/// The answer to a [`SampleQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleAnswer {
    /// The store's now.
    pub now: UnixMillis,
    /// One answer per lane of the request, in order. `None` if the lane's server is unreachable.
    pub lanes: Vec<Option<LaneSample>>,
}

/// The counts of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneSample {
    /// Exact counts by state, as [`Topics::stats`](super::Topics::stats) gives them.
    pub counts: Counts,
    /// First the pulled tasks, if any wait. Then the called destinations that tasks wait for, the
    /// earliest first, at most [`MAX_SAMPLED`](crate::store::MAX_SAMPLED).
    pub schedules: Vec<ScheduleSample>,
}

impl LaneSample {
    /// The earliest due time after the store's now, of the destinations that the sample names.
    pub fn next_due(&self) -> Option<UnixMillis> {
        self.schedules.iter().filter_map(|schedule| schedule.next).min()
    }
}

/// The counts of the tasks that wait in a lane for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSample {
    /// The destination.
    pub destination: Destination,
    /// The earliest due time.
    pub earliest: UnixMillis,
    /// The earliest due time after the store's now.
    pub next: Option<UnixMillis>,
    /// The waiting tasks, due or not.
    pub waiting: u64,
    /// The tasks that are due within each span of the request.
    pub due: Vec<u64>,
    /// The tasks that are overdue for longer than the request allows.
    pub late: u64,
    /// Whether the store stopped counting: `waiting`, `due` and `late` may be too low.
    pub is_cut: bool,
}
