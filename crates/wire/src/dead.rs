//! The answers of the calls about dead letters.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{Destination, TaskId, Topic, UnixMillis};

/// The dead tasks of a topic, or of all topics, grouped by cause.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Causes {
    /// The most frequent cause first.
    pub causes: Vec<Cause>,
    /// The topic, or one of those that this call looked at, has more dead tasks than were counted.
    pub more: bool,
    /// Over all topics: how many topics this call looked at.
    pub topics_seen: Option<u64>,
    /// Over all topics: for the next topics; absent if all were looked at.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// The outcome of the last attempt. Null for a token with only the scope `view`.
    pub reason: Option<String>,
    pub count: u64,
    pub first_ms: UnixMillis,
    pub last_ms: UnixMillis,
    /// One of these tasks, as an example.
    pub task_id: TaskId,
    /// The service of the example; null if it is pulled.
    pub sn: Option<Destination>,
    /// Over all topics: the topic of the example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<Topic>,
    /// Over all topics: the topics with most of these tasks, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<CauseTopic>,
    /// Over all topics: how many further topics have such tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_topics: Option<u64>,
}

/// How many of the tasks of a cause a topic has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CauseTopic {
    pub topic: Topic,
    pub count: u64,
}

/// What a replay or purge did, or would have done with `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    pub count: u64,
    /// How many dead tasks the call looked at, including those that `reason` excluded.
    pub seen: u64,
    /// The call reached its limit: call again with `cursor`.
    pub more: bool,
    /// For the next call; null at the end.
    pub cursor: Option<String>,
    /// When the last replayed task is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<UnixMillis>,
}
