//! What names a task within its topic, and what must hold for a change of it.

use std::borrow::Cow;

use super::intake::idempotency_name;
use super::topics::TopicEntry;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, State, TaskId};

/// What names a task within its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskName {
    /// Its id.
    Id(TaskId),
    /// Its `key`: the newest task that was added with it.
    Key(String),
    /// Its idempotency key, until the window of the key ends.
    Idempotency {
        /// The `key` that it was added with.
        key: Option<String>,
        /// The idempotency key.
        idempotency_key: String,
    },
}

impl TaskName {
    /// The lane of the task, if the topic has it.
    pub fn lane_in(&self, topic: &TopicEntry) -> Lane {
        let key = match self {
            Self::Id(id) => return topic.lane_of(*id),
            Self::Key(key) | Self::Idempotency { key: Some(key), .. } => key,
            Self::Idempotency { key: None, idempotency_key } => idempotency_key,
        };
        Lane { topic: topic.topic.clone(), shard: Lane::shard_of_key(key, topic.shards) }
    }

    /// The condition that a task still has this name. None for an id, because an id never passes to
    /// another task.
    pub fn condition(&self) -> Option<Condition> {
        (!matches!(self, Self::Id(_))).then(|| Condition::Named(self.clone()))
    }

    /// The text by which a lane knows the task.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Id(id) => id.to_string().into(),
            Self::Key(key) => key.into(),
            Self::Idempotency { key, idempotency_key } => {
                idempotency_name(key.as_deref(), idempotency_key)
            }
        }
    }
}

/// What must hold for a task when a call changes it. The store checks it in the same step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The task has this name. A name may pass to another task after the caller looked it up.
    Named(TaskName),
    /// The task is as the caller selected it.
    Selected(Selected),
}

/// A task as its caller selected it: all that a filter may look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Its state.
    pub state: State,
    /// Where it goes.
    pub destination: Destination,
    /// The moment as a summary of the task shows it.
    pub due: UnixMillis,
    /// The last attempt's outcome.
    pub outcome: String,
}
