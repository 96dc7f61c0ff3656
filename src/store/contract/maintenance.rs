//! What keeps a store in order, in the background.

use super::topics::{Misfire, TopicEntry};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId, Topic};
use crate::store::Result;

contract! {
    /// Removes old history, and finds what the registry has lost.
    pub trait Maintenance {
        /// The store's now, and what a purge would find in each lane. Fails only if nothing is
        /// known of any lane.
        async fn histories(&self, lanes: Vec<Lane>) -> Result<Histories> => Maintain;

        /// Removes up to `limit` tasks that ended in `state` before `before`, the earliest first,
        /// with content, keys and notes. Also removes as many idempotency keys whose window has
        /// ended. At least `most` of the lane's delivered, cancelled and expired tasks stay; 0: any
        /// number goes. The store counts them in the same step, so several janitors that cap one
        /// history remove its excess once. Returns the number of tasks.
        async fn purge(
            &self,
            lane: &Lane,
            most: u64,
            state: State,
            before: UnixMillis,
            limit: usize,
        ) -> Result<usize> => Maintain;

        /// Removes the contents of those of the tasks that were delivered, cancelled or expired.
        /// Other tasks keep theirs. [`Options::removed`] keeps a digest of each.
        ///
        /// [`Options::removed`]: crate::model::task::Options::removed
        async fn remove_contents(&self, lane: &Lane, ids: &[TaskId]) -> Result<()> => Maintain;

        /// Forgets a past pause of the topic; its other pauses stay. Does nothing if there is no
        /// such pause.
        async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> => Maintain;

        /// Finds lanes that hold tasks of unregistered topics (a failover may lose the entry),
        /// registers these topics, and returns them. Also marks topics whose lanes have recurring
        /// schedules, as [`Self::mark_schedules`]. Slow; runs in the background.
        async fn recover_topics(&self) -> Result<Vec<TopicEntry>> => Maintain;

        /// Marks that the topic may have recurring schedules: planners look only at such topics.
        /// The first set of a schedule does it, too; a failover may lose the mark while the
        /// schedules survive. Returns whether it was not marked.
        async fn mark_schedules(&self, topic: &Topic) -> Result<bool> => Maintain;
    }
}

/// The answer of `histories`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// The store's now.
    pub now: UnixMillis,
    /// One answer per lane of the request, in order. `None` if the lane's server is unreachable.
    pub lanes: Vec<Option<LaneHistory>>,
}

/// What a purge would find in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneHistory {
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
