//! The nouns of topics: the registry's entries, and pauses that are over.

use std::sync::Arc;

use super::Holds;
use crate::clock::UnixMillis;
use crate::store::{NextDue, Result};
use crate::task::{Lane, TaskId, Topic, TopicPolicy};

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
    /// Its pauses that are over and whose tasks are not simply fired late, the newest last, at most [`MAX_MISFIRES`](super::super::MAX_MISFIRES).
    pub misfires: Vec<Misfire>,
}

impl Registered {
    /// A topic of which nothing special is asked.
    pub fn plain(entry: TopicEntry) -> Self {
        Self { entry, policy: Arc::default(), paused: None, misfires: Vec::new() }
    }
}

/// A pause that is over. Claims end the tasks that fell due in it, a claim's worth at a time, instead of handing them out.
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
    /// It becomes expired, with [`MISFIRED`](super::super::MISFIRED) as its outcome.
    Expired,
    /// It becomes dead, with the same outcome, and can be replayed. Its `on_dead` is called.
    Dead,
}

/// Names a state of the registry: another number, another state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision(pub u64);

/// What an instance looks for each second.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The revision of the registry that is known already.
    pub seen: Option<Revision>,
    /// The lanes that are worked here.
    pub workers: Vec<Lane>,
    /// The lanes for whose tasks consumers wait here.
    pub consumers: Vec<Lane>,
}

/// What was found.
#[derive(Debug)]
pub struct Looked {
    /// The registry and its revision, which was read first; `None`: it is the one that was seen before.
    pub registry: Result<Option<(Revision, Vec<Registered>)>>,
    /// The destinations that are held by hand, and the releases that are remembered.
    pub holds: Result<Holds>,
    /// When workers have something to do; `None`: no lane was asked for.
    pub next: Result<Option<NextDue>>,
    /// When consumers have something to pull; `None`: no lane was asked for.
    pub pulls: Result<Option<NextDue>>,
}
