//! The allocated ids, and the run of the server that they were drawn from.

use std::sync::Arc;

use super::pool::IdPool;
use crate::model::task::TaskId;
use crate::store::redis::transport::node::Node;

/// How far the counter skips ahead in a new run: two seconds' worth of ids, twice what `everysec`
/// may have lost.
const SKIP: u64 = 2 * TaskId::PER_SECOND;

/// The allocated ids.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) pool: IdPool,
    /// The run of the last draw.
    pub(crate) run: Option<Run>,
}

/// The run of a server that ids were drawn from. They are valid while it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) node: Arc<Node>,
    pub(crate) run_id: Arc<str>,
}

impl Run {
    /// Whether no restart or failover has been noticed since.
    pub(crate) fn lasts(&self) -> bool {
        self.node.is_in_run(&self.run_id)
    }

    fn is(&self, other: &Self) -> bool {
        self.node.number == other.node.number && self.run_id == other.run_id
    }
}

impl Blocks {
    /// Whether the ids are of this run.
    pub(crate) fn is_of(&self, run: &Run) -> bool {
        self.run.as_ref().is_some_and(|last| last.is(run))
    }

    /// How far the counter has to skip ahead before ids are drawn in this run.
    pub(crate) fn skip(&self, run: &Run) -> u64 {
        if self.run.is_none() || self.is_of(run) { 0 } else { SKIP }
    }
}
