//! The counts of lanes that the sampler reads once a second, and the heartbeats of instances.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::topics::Counts;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane};
use crate::store::Result;

/// Counts lanes at a bounded cost, and removes heartbeats.
/// [`Delivery::look`](super::Delivery::look) sends and reads them.
pub trait Sampling: Send + Sync + 'static {
    /// Counts lanes, with one pipeline to each server. The caller bounds the number of lanes.
    /// Fails only if it can count no lane.
    fn sample(&self, query: SampleQuery) -> impl Future<Output = Result<Sampled>> + Send;

    /// Removes the heartbeat of an instance that stops.
    fn forget_instance(&self, id: &str) -> impl Future<Output = Result<()>> + Send;
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
    /// Whether it shares the lanes with others: it may claim, and asks for help. Earlier versions
    /// do not say so, because they look at all lanes and never ask.
    pub divides: bool,
    /// The newest format of a store that it knows. Earlier versions do not say it, and know 1.
    pub format: u32,
    /// Whether the server of some lanes has not answered its polls for a while.
    pub lacks_lanes: bool,
    /// When the store received the heartbeat. The sender leaves 0.
    #[serde(skip)]
    pub seen: UnixMillis,
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
pub struct Sampled {
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
