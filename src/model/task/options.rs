//! The options of a task, which take precedence over the policy of its topic.

use serde::{Deserialize, Serialize};

use super::{ContentDigest, Destination, Headers, Occurrence, StoreId, TaskId, Topic};
use crate::model::trace::TraceContext;
use delayd_wire::Backoff;
use delayd_wire::Span;

/// The dead-letter callback: called once if the task becomes dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDead {
    /// The service.
    pub sn: Destination,
    /// The path on it.
    pub url: String,
    /// The id of the callback's own task. The store allocates it with the id of the task, in the
    /// same lane, so a second death (after a replay) makes no second call. Absent until the task is
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
}

/// The options of a task. Absent ones follow the policy. Stored with the task as compact JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The store that accepted the task first, if it was moved from there. Callers cannot set it.
    /// It stays the first field: scripts of the Redis store look for it at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<StoreId>,
    /// Attempts before the task is dead, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Headers of the callback.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The debounce key: at most one waiting task per topic and key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long after its due time the task is still delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    /// The dead-letter callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_dead: Option<OnDead>,
    /// The context of the add, if its caller sent one: that of the add's span if delayd exports
    /// traces, otherwise the caller's. Callers cannot set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
    /// The occurrence of a recurring schedule that this task is. Callers cannot set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Box<Occurrence>>,
    /// The digest of the content, if it was removed after the end of the task. Callers cannot set
    /// it. It stays the last field: scripts of the Redis store look for it at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<ContentDigest>,
}

impl Options {
    /// The `webhook-id` of a task with these options: that of the occurrence, if the task is one;
    /// otherwise [`StoreId::webhook_id`]. `store` is this store, and counts unless the task has an
    /// origin.
    pub fn webhook_id(&self, store: StoreId, topic: &Topic, id: TaskId) -> String {
        let store = self.origin.unwrap_or(store);
        match &self.schedule {
            Some(occurrence) if !occurrence.cursor.is_empty() => {
                occurrence.webhook_id(store, topic)
            }
            _ => store.webhook_id(id),
        }
    }

    /// The options as the stores keep them; `None` if no option is set.
    pub fn json(&self) -> Option<String> {
        let json = || serde_json::to_string(self).expect("options are plain data");
        (!self.is_default()).then(json)
    }

    /// Whether no option is set.
    pub fn is_default(&self) -> bool {
        // This is called for nearly every task. Comparing with a default costs ten times as much.
        let Self {
            origin,
            max_attempts,
            timeout,
            backoff,
            headers,
            key,
            expires_after,
            on_dead,
            traceparent,
            schedule,
            removed,
        } = self;
        let has_times = max_attempts.is_some()
            || timeout.is_some()
            || backoff.is_some()
            || expires_after.is_some();
        let has_names =
            origin.is_some() || key.is_some() || traceparent.is_some() || removed.is_some();
        let is_of_task = headers.is_empty() && on_dead.is_none() && schedule.is_none();
        is_of_task && !has_names && !has_times
    }
}
