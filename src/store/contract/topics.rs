//! The registry of topics (entries, policies, pauses), and what the lanes of a topic hold.

use std::sync::Arc;
use std::time::Duration;

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId, Topic, TopicPolicy};
use crate::store::Result;

/// In normal work tasks are overdue for moments, and samples are some seconds old.
const OVERDUE: Duration = Duration::from_secs(5);

contract! {
    /// Knows the topics, and counts and lists the tasks of their lanes.
    pub trait Topics {
        /// Registers a topic unless it is registered, and returns the entry that won. The creator
        /// of a new topic is kept with it. If the creator may create no more topics, a new one is
        /// refused with [`Error::CreatorLimit`](crate::store::Error::CreatorLimit).
        async fn create(
            &self,
            entry: TopicEntry,
            creator: Option<Creator>,
        ) -> Result<TopicEntry> => Change;

        /// One topic, if it is registered. Costs the same whatever the number of topics.
        async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> => Read;

        /// All registered topics.
        async fn topics(&self) -> Result<Vec<Registered>> => Read;

        /// Sets a topic's policy. Returns whether the topic exists.
        async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> => Change;

        /// Pauses a topic from the store's now on, or leaves it paused. Returns since when; `None`
        /// if the topic does not exist. Claimers read the pause in the registry: the store itself
        /// still hands out tasks.
        async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> => Change;

        /// Ends a topic's pause at the store's now. Remembers it as a [`Misfire`] if tasks that
        /// fell due in it are not to be delivered late. Returns whether the topic was paused;
        /// `None` if it does not exist.
        async fn resume(
            &self,
            topic: &Topic,
            becomes: Option<Misfired>,
        ) -> Result<Option<bool>> => Change;

        /// Removes a topic from the registry if its lanes are empty, with its policy, its pauses
        /// and its lanes' idempotency keys. Returns whether the topic is gone now. A concurrent add
        /// registers it again.
        async fn unregister(&self, entry: &TopicEntry) -> Result<bool> => Change;

        /// Exact counts of one lane.
        async fn stats(&self, lane: &Lane) -> Result<Counts> => Read;

        /// Ids of one state in order of time: the due moment of scheduled tasks, the deadline of
        /// leased ones, the end of the others.
        async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> => Read;

        /// The same, the latest first.
        async fn list_latest(&self, query: ListQuery) -> Result<Vec<Listed>> => Read;
    }
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

    /// The lane of a task of this topic.
    pub fn lane_of(&self, id: TaskId) -> Lane {
        Lane::of(self.topic.clone(), id, self.shards)
    }

    /// All lanes.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        (0..self.shards).map(|shard| Lane { topic: self.topic.clone(), shard })
    }
}

/// The token that creates a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    /// Its name.
    pub token: Arc<str>,
    /// The most topics that it may have created; `None`: any number. Deleted topics do not count.
    pub most: Option<usize>,
}

/// A topic as the registry holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// Its name and lanes.
    pub entry: TopicEntry,
    /// The name of the token that created it, if that is known.
    pub created_by: Option<Arc<str>>,
    /// What it sets instead of the configuration.
    pub policy: Arc<TopicPolicy>,
    /// Since when it is paused, if it is. A paused topic is not claimed.
    pub paused: Option<UnixMillis>,
    /// Its past pauses whose tasks are not simply delivered late, the newest last, at most
    /// [`MAX_MISFIRES`](crate::store::MAX_MISFIRES).
    pub misfires: Vec<Misfire>,
    /// Whether its lanes may have recurring schedules. Planners look only at such topics.
    pub has_schedules: bool,
}

impl Registered {
    /// A topic without policy and pauses.
    pub fn plain(entry: TopicEntry) -> Self {
        Self {
            entry,
            created_by: None,
            policy: Arc::default(),
            paused: None,
            misfires: Vec::new(),
            has_schedules: false,
        }
    }
}

/// A past pause. Claims end the tasks that fell due in it, a bounded number at a time, instead of
/// handing them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfire {
    /// The first due moment that it covers.
    pub from: UnixMillis,
    /// The last one.
    pub to: UnixMillis,
    /// What becomes of the tasks.
    pub becomes: Misfired,
}

/// What becomes of a task that fell due in a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfired {
    /// It becomes expired, with [`MISFIRED`](crate::store::MISFIRED) as its outcome.
    Expired,
    /// It becomes dead, with the same outcome, and can be replayed. Its dead-letter call is made.
    Dead,
}

/// Identifies a state of the registry: another number, another state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision(pub u64);

/// A request for a page of a lane's tasks in one state.
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
    /// Only entries after this one in the order of the list: the last of the previous page. The
    /// order is that of (moment, id), or its reverse.
    pub after: Option<Listed>,
    /// The most entries.
    pub limit: usize,
}

/// An entry of a page. The derived order is that of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its moment in the state's time order.
    pub moment: UnixMillis,
    /// The task.
    pub id: TaskId,
}

/// Exact counts by state, of one lane or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting.
    pub scheduled: u64,
    /// Held. An expired lease counts here until a claim sweeps it.
    pub leased: u64,
    /// Delivered and still remembered.
    pub delivered: u64,
    /// Dead.
    pub dead: u64,
    /// Cancelled and still remembered.
    pub cancelled: u64,
    /// Expired and still remembered.
    pub expired: u64,
    /// The earliest due moment of a waiting task, pulled or called. If it has passed, it is that of
    /// the oldest overdue task.
    pub earliest: Option<UnixMillis>,
}

impl Counts {
    /// Adds the counts of another lane.
    pub fn add(&mut self, lane: &Self) {
        let Self { scheduled, leased, delivered, dead, cancelled, expired, earliest } = *lane;
        self.scheduled += scheduled;
        self.leased += leased;
        self.delivered += delivered;
        self.dead += dead;
        self.cancelled += cancelled;
        self.expired += expired;
        self.earliest = self.earliest.into_iter().chain(earliest).min();
    }

    /// The due moment of the oldest overdue task.
    pub fn oldest_overdue(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.earliest.filter(|due| *due <= now)
    }

    /// Whether a task is overdue, and not only for the moments of normal work.
    pub fn is_overdue(&self, now: UnixMillis) -> bool {
        self.earliest.is_some_and(|due| now.since(due) > OVERDUE)
    }
}
