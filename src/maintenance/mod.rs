//! Keeping a store in order, on every instance and beside the workers.
//!
//! - `janitor` forgets old history and looks after the registry.
//! - `misfires` says when a pause that is over can be forgotten.
//!
//! Nothing depends on it for correctness: claims sweep leases, and the next add writes a lost
//! registry entry again.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::store::{AnyStore, Maintenance, Topics};
use crate::topic::Registry;

mod janitor;
mod misfires;

/// The settings of the janitor.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// How long ended tasks are remembered (`history.keep`).
    pub keep: Duration,
    /// How many ended tasks of a topic are remembered (`history.max_per_topic`).
    pub keep_most: u64,
}

/// What the janitor works on.
#[derive(Debug)]
struct Parts<S = AnyStore> {
    store: Arc<S>,
    topics: Arc<Registry<S>>,
    params: Params,
}

/// The running janitor of this instance. It ends when this is dropped: every step may be repeated.
#[derive(Debug)]
pub struct Janitor(AbortHandle);

impl Janitor {
    /// Starts it. The first round comes at once.
    pub fn start<S: Topics + Maintenance>(
        store: Arc<S>,
        topics: Arc<Registry<S>>,
        params: Params,
    ) -> Self {
        let parts = Parts { store, topics, params };
        Self(tokio::spawn(async move { janitor::run(&parts).await }).abort_handle())
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.0.abort();
    }
}
