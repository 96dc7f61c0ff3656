//! What names a task within its topic.

use std::borrow::Cow;

use super::intake::idempotency_name;
use super::topics::TopicEntry;
use crate::model::task::{Lane, TaskId};

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

    /// This name, unless it is an id: an id never passes to another task.
    pub fn that_may_pass_on(&self) -> Option<&Self> {
        Some(self).filter(|name| !matches!(name, Self::Id(_)))
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
