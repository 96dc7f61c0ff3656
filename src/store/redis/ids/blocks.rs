//! The allocated ids, and the run of the server that they were drawn from.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pool::IdPool;
use super::reserve::{self, Reserve};
use crate::model::clock::UnixMillis;
use crate::model::task::TaskId;
use crate::store::redis::transport::node::Node;

/// How far the counter skips ahead in a new run: two seconds' worth of ids, twice what `everysec`
/// may have lost, and the largest reserve.
const SKIP: u64 = 2 * TaskId::PER_SECOND + reserve::MOST;
/// How long the counter is left alone after it did not answer, while there is a reserve.
const REST: Duration = Duration::from_secs(1);

/// The allocated ids.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) pool: IdPool,
    /// The run of the last draw.
    pub(crate) run: Option<Run>,
    /// Further ids of that run, in a cluster.
    reserve: Reserve,
    /// The last id of the last draw.
    last: u64,
    /// When the counter did not answer.
    failed: Option<Instant>,
}

/// Ids that a draw brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// For the block of the next second.
    pub(crate) block: u64,
    /// For the reserve.
    pub(crate) reserve: u64,
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

    /// How many ids to draw for a block of this size.
    pub(crate) fn size_of(&self, block: u64, has_reserve: bool, now: UnixMillis) -> Size {
        let reserve = if has_reserve { Reserve::size_for(block, self.last, now) } else { 0 };
        Size { block, reserve }
    }

    /// Adds ids that were drawn between two moments.
    pub(crate) fn put(&mut self, ids: Range<u64>, size: Size, began: Instant, drawn: Instant) {
        let (first, last) = (ids.start, ids.end);
        self.pool.put(first..first + size.block, began, drawn);
        self.reserve.replace(first + size.block..last, drawn);
        (self.last, self.failed) = (self.last.max(last), None);
    }

    /// Adds a block from the reserve. Returns whether there was one.
    pub(crate) fn put_from_reserve(&mut self, size: u64) -> bool {
        let ids = self.reserve.take(size);
        let now = Instant::now();
        ids.map(|ids| self.pool.put(ids, now, now)).is_some()
    }

    /// The run of the reserve; `None` if it has no ids that may be used.
    pub(crate) fn reserve_run(&self) -> Option<Run> {
        self.run.clone().filter(|run| run.lasts() && !self.reserve.is_empty())
    }

    /// The counter did not answer. It is left alone for a while.
    pub(crate) fn counter_failed(&mut self) {
        self.failed = Some(Instant::now());
    }

    /// Whether the counter has not answered a moment ago.
    pub(crate) fn counter_rests(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < REST)
    }

    /// Drops all ids, and those being drawn ahead.
    pub(crate) fn empty(&mut self) {
        self.pool.empty();
        self.reserve = Reserve::default();
    }

    /// Drops the ids of a block that is no longer fresh, or all ids if the next ones are drawn in
    /// another run.
    pub(crate) fn keep_fresh(&mut self, run: &Run) {
        let is_same_run = self.is_of(run);
        self.pool.keep_fresh(is_same_run);
        if !is_same_run {
            self.reserve = Reserve::default();
        }
    }

    /// How far the counter has to skip ahead before ids are drawn in this run.
    pub(crate) fn skip(&self, run: &Run) -> u64 {
        if self.run.is_none() || self.is_of(run) { 0 } else { SKIP }
    }
}
