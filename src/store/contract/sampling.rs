//! What the sampler reads once a second: counts of lanes, at a bounded cost. And what instances say
//! of themselves.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::topics::Counts;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane};
use crate::store::Result;

/// Counts lanes without walking their tasks, and knows the instances.
pub trait Sampling: Send + Sync + 'static {
    /// Counts lanes, all by one request to each server. The caller bounds the number of lanes.
    /// Fails only if nothing is known of any lane.
    fn sample(&self, query: SampleQuery) -> impl Future<Output = Result<Sampled>> + Send;

    /// Removes the heartbeat of an instance that stops.
    fn forget_instance(&self, id: &str) -> impl Future<Output = Result<()>> + Send;
}

/// An instance, as its last heartbeat describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// Its id, drawn at its start.
    pub id: String,
    /// The name of its host.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When it started, by its own clock.
    pub started: UnixMillis,
    /// The address that it listens on.
    pub address: String,
    /// The processor time per time: 1 is a whole core.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub memory: u64,
    /// Callbacks in flight.
    pub calls: u64,
    /// Whether it makes callbacks.
    pub has_workers: bool,
    /// When the store heard of it last. The sender leaves 0.
    #[serde(skip)]
    pub seen: UnixMillis,
}

/// Which lanes to count, and by which moments.
#[derive(Clone, Debug, Default)]
pub struct SampleQuery {
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// Tasks are counted that are due by the store's now plus each of these, in rising order. Zero
    /// counts the overdue ones.
    pub within: Vec<Duration>,
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
    /// The tasks that are pulled, if any wait; then the called destinations that tasks wait for,
    /// the earliest first, at most [`MAX_SAMPLED`](crate::store::MAX_SAMPLED).
    pub schedules: Vec<ScheduleSample>,
}

/// The counts of the tasks that wait in a lane for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSample {
    /// The destination.
    pub destination: Destination,
    /// The earliest due moment.
    pub earliest: UnixMillis,
    /// The waiting tasks, due or not.
    pub waiting: u64,
    /// The tasks that are due by each moment of the request.
    pub due: Vec<u64>,
    /// Whether the store stopped counting: `waiting` and `due` may be too low.
    pub is_cut: bool,
}
