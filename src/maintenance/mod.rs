//! Background maintenance of a store, on every instance and beside the workers.
//!
//! - `janitor` removes old history and repairs the registry.
//! - `contents` removes the contents of ended tasks.
//! - `misfires` forgets past pauses.
//! - `planner` plans the occurrences of recurring schedules.
//!
//! Correctness does not depend on it: claims sweep leases, and the next add writes a lost registry
//! entry again.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::metrics::Metrics;
use crate::model::task::State;
use crate::store::{AnyStore, Maintenance, Schedules, Topics};
use crate::topic::Registry;

mod contents;
mod janitor;
mod misfires;
mod planner;

/// The time between two rounds of the janitor.
const ROUND: Duration = Duration::from_secs(60);
/// The states whose tasks are removed in time.
const HISTORY: [State; 3] = [State::Delivered, State::Cancelled, State::Expired];

/// The settings of the janitor.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// How long ended tasks are kept (`history.keep`).
    pub keep: Duration,
    /// How many ended tasks of a topic are kept (`history.max_per_topic`).
    pub keep_of_topic: u64,
    /// How many ended tasks of all topics are kept (`history.max`).
    pub keep_in_all: u64,
    /// How long after its end a task loses its content; `None` if it keeps it
    /// (`history.contents`).
    pub remove_contents: Option<Duration>,
}

/// What the janitor needs.
#[derive(Debug)]
struct Parts<S = AnyStore> {
    store: Arc<S>,
    topics: Arc<Registry<S>>,
    params: Params,
}

/// The running janitor of this instance. Dropping it stops it: every step can be repeated.
#[derive(Debug)]
pub struct Janitor(AbortHandle);

impl Janitor {
    /// Starts the janitor. The first round begins at once.
    pub fn start<S: Topics + Maintenance>(
        store: Arc<S>,
        topics: Arc<Registry<S>>,
        params: Params,
    ) -> Self {
        let parts = Parts { store, topics, params };
        Self(tokio::spawn(async move { janitor::run(&parts).await }).abort_handle())
    }
}

/// The running planner of this instance. Dropping it stops it: every step can be repeated.
#[derive(Debug)]
pub struct Planner(AbortHandle);

impl Planner {
    /// Starts the planner.
    pub fn start<S: Topics + Schedules>(
        store: Arc<S>,
        topics: Arc<Registry<S>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let parts = planner::Parts { store, topics, metrics };
        Self(tokio::spawn(async move { planner::run(&parts).await }).abort_handle())
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.0.abort();
    }
}
