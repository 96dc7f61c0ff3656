//! The registry of topics: entries, policies and pauses; and what the lanes of a topic hold.

use std::future::Future;
use std::sync::Arc;

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId, Topic, TopicPolicy};
use crate::store::Result;

/// Knows the topics, and counts and lists what their lanes hold.
pub trait Topics: Send + Sync + 'static {
    /// Registers a topic unless it is there, and answers the entry that won.
    fn register(&self, entry: TopicEntry) -> impl Future<Output = Result<TopicEntry>> + Send;

    /// One topic, if it is registered: costs the same however many others there are.
    fn topic(&self, topic: &Topic) -> impl Future<Output = Result<Option<Registered>>> + Send;

    /// All registered topics.
    fn topics(&self) -> impl Future<Output = Result<Vec<Registered>>> + Send;

    /// Sets a topic's policy. Answers whether there is such a topic.
    fn set_policy(
        &self,
        topic: &Topic,
        policy: &TopicPolicy,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Pauses a topic from the store's now on, or leaves it paused. Answers since when; `None`: no
    /// such topic. Those who claim see it in the registry: the store itself hands its tasks out as
    /// before.
    fn pause(&self, topic: &Topic) -> impl Future<Output = Result<Option<UnixMillis>>> + Send;

    /// Ends a topic's pause at the store's now, and remembers it as a [`Misfire`] if what fell due
    /// in it is not to be delivered late. Answers whether it was paused; `None`: no such topic.
    fn resume(
        &self,
        topic: &Topic,
        becomes: Option<Misfired>,
    ) -> impl Future<Output = Result<Option<bool>>> + Send;

    /// Takes a topic out of the registry, with its policy, its pauses and its lanes' idempotency
    /// keys, if none of its lanes holds any task. Answers whether there is no such topic now. What
    /// is added at the same moment registers it again.
    fn unregister(&self, entry: &TopicEntry) -> impl Future<Output = Result<bool>> + Send;

    /// Exact counts of one lane.
    fn stats(&self, lane: &Lane) -> impl Future<Output = Result<Counts>> + Send;

    /// Ids of one state in time order: due moment for scheduled, deadline for leased, end for the
    /// others.
    fn list(&self, query: ListQuery) -> impl Future<Output = Result<Vec<Listed>>> + Send;
}

/// A topic in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicEntry {
    /// Its name.
    pub topic: Topic,
    /// Its number of lanes, from 1, fixed at creation.
    pub shards: u16,
}

impl TopicEntry {
    /// The most lanes of a topic.
    pub const MAX_SHARDS: u16 = 256;

    /// The lane of one of the topic's tasks.
    pub fn lane_of(&self, id: TaskId) -> Lane {
        Lane::of(self.topic.clone(), id, self.shards)
    }

    /// All lanes.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        (0..self.shards).map(|shard| Lane { topic: self.topic.clone(), shard })
    }
}

/// A topic as the registry holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// Its name and lanes.
    pub entry: TopicEntry,
    /// What it asks for instead of the configuration.
    pub policy: Arc<TopicPolicy>,
    /// Since when it is paused: nobody claims of it.
    pub paused: Option<UnixMillis>,
    /// Its pauses that are over and whose tasks are not simply fired late, the newest last, at most
    /// [`MAX_MISFIRES`](crate::store::MAX_MISFIRES).
    pub misfires: Vec<Misfire>,
}

impl Registered {
    /// A topic of which nothing special is asked.
    pub fn plain(entry: TopicEntry) -> Self {
        Self { entry, policy: Arc::default(), paused: None, misfires: Vec::new() }
    }
}

/// A pause that is over. Claims end the tasks that fell due in it, a claim's worth at a time,
/// instead of handing them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfire {
    /// The first due moment that it covers.
    pub from: UnixMillis,
    /// The last one.
    pub to: UnixMillis,
    /// What becomes of them.
    pub becomes: Misfired,
}

/// Where a task goes that fell due in a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfired {
    /// It becomes expired, with [`MISFIRED`](crate::store::MISFIRED) as its outcome.
    Expired,
    /// It becomes dead, with the same outcome, and can be replayed. Its `on_dead` is called.
    Dead,
}

/// Names a state of the registry: another number, another state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision(pub u64);

/// A page of a lane's tasks in one state.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The lane.
    pub lane: Lane,
    /// The state.
    pub state: State,
    /// Not before this moment.
    pub from: UnixMillis,
    /// Not after this moment.
    pub to: UnixMillis,
    /// Only what comes after this entry in (moment, id) order: the last of the page before.
    pub after: Option<Listed>,
    /// The most entries.
    pub limit: usize,
}

/// An entry of a page. The derived order is the page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its moment in the state's time order.
    pub moment: UnixMillis,
    /// The task.
    pub id: TaskId,
}

/// Exact counts of one lane by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting.
    pub scheduled: u64,
    /// Held (an expired lease counts here until a claim sweeps it).
    pub leased: u64,
    /// Acknowledged and still remembered.
    pub delivered: u64,
    /// Dead.
    pub dead: u64,
    /// Cancelled and still remembered.
    pub cancelled: u64,
    /// Expired and still remembered.
    pub expired: u64,
    /// The earliest due moment of what waits, pulled or called: if it has passed, that of the
    /// oldest overdue task.
    pub earliest: Option<UnixMillis>,
}
