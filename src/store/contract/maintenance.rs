//! What keeps a store in order, in the background.

use std::future::Future;

use super::topics::{Misfire, TopicEntry};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId, Topic};
use crate::store::Result;

/// Removes old history, and finds what the registry has lost.
pub trait Maintenance: Send + Sync + 'static {
    /// The store's now, and what a purge would find in each lane. Fails only if nothing is known of
    /// any lane.
    fn histories(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<Histories>> + Send;

    /// Removes up to `limit` tasks that ended in `state` before `before`, the earliest first, with
    /// content, keys and notes. Also removes as many idempotency keys whose window has ended.
    /// Returns the number of tasks.
    fn purge(
        &self,
        lane: &Lane,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send {
        self.purge_beyond(lane, 0, state, before, limit)
    }

    /// As [`Self::purge`], but at least `most` of the lane's delivered, cancelled and expired tasks
    /// stay. The store counts them in the same step, so several janitors that cap one history
    /// remove its excess once.
    fn purge_beyond(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Removes the contents of those of the tasks that were delivered, cancelled or expired. Other
    /// tasks keep theirs. [`Options::removed`] keeps a digest of each.
    ///
    /// [`Options::removed`]: crate::model::task::Options::removed
    fn remove_contents(
        &self,
        lane: &Lane,
        ids: &[TaskId],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Forgets a past pause of the topic; its other pauses stay. Does nothing if there is no such
    /// pause.
    fn forget_misfire(
        &self,
        topic: &Topic,
        misfire: Misfire,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Finds lanes that hold tasks of unregistered topics (a failover may lose the entry),
    /// registers these topics, and returns them. Also marks topics whose lanes have recurring
    /// schedules, as [`Self::mark_schedules`]. Slow; runs in the background.
    fn recover_topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;

    /// Marks that the topic may have recurring schedules: planners look only at such topics. The
    /// first set of a schedule does it, too; a failover may lose the mark while the schedules
    /// survive. Returns whether it was not marked.
    fn mark_schedules(&self, topic: &Topic) -> impl Future<Output = Result<bool>> + Send;
}

/// The answer of `histories`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// The store's now.
    pub now: UnixMillis,
    /// One answer per lane of the request, in order. `None` if the lane's server is unreachable.
    pub lanes: Vec<Option<History>>,
}

/// What a purge would find in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How many tasks were delivered, cancelled or expired.
    pub ended: u64,
    /// When the first of them ended.
    pub oldest: Option<UnixMillis>,
    /// Whether there is more to remove or store: idempotency keys whose window has ended, or
    /// dead-letter calls that a full disk delayed.
    pub has_leftovers: bool,
    /// Whether the lane has recurring schedules.
    pub has_schedules: bool,
}
