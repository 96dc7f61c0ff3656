//! What keeps a store in order in the background.

use std::future::Future;

use super::topics::{Misfire, TopicEntry};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, Topic};
use crate::store::Result;

/// Forgets what is over, and finds what the registry has lost.
pub trait Maintenance: Send + Sync + 'static {
    /// The store's now, and what each lane has to be forgotten. An error only if nothing can be
    /// said of any lane.
    fn histories(&self, lanes: Vec<Lane>) -> impl Future<Output = Result<Histories>> + Send;

    /// Forgets up to `limit` tasks that ended in `state` before `before`, the earliest first,
    /// bodies, keys and notes and all; and as many idempotency keys whose window is over. Answers
    /// how many tasks.
    fn purge(
        &self,
        lane: &Lane,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Forgets a pause of the topic that is over; its other pauses stay. Nothing happens where
    /// there is none like it.
    fn forget_misfire(
        &self,
        topic: &Topic,
        misfire: Misfire,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Finds lanes that hold tasks though nobody registered them (a failover may lose the entry),
    /// registers their topics, and answers them. Slow; runs in the background.
    fn recover_topics(&self) -> impl Future<Output = Result<Vec<TopicEntry>>> + Send;
}

/// The answer of `histories`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// The store's now.
    pub now: UnixMillis,
    /// Per asked lane, in order; `None` where that cannot be said because the lane's server is
    /// away.
    pub lanes: Vec<Option<History>>,
}

/// What a lane has to be forgotten, in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How many of its tasks were delivered, cancelled or expired.
    pub ended: u64,
    /// When the first of them ended.
    pub oldest: Option<UnixMillis>,
    /// Whether a purge has something to do besides: idempotency keys whose window is over, or calls
    /// that a full disk left owed.
    pub has_leftovers: bool,
}
