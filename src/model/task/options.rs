//! What one task asks for instead of its topic's policy.

use serde::{Deserialize, Serialize};

use super::{Destination, Headers, StoreId, TaskId};
use delayd_wire::Backoff;
use delayd_wire::Span;

/// The call that is made once if its task dies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDead {
    /// The service.
    pub sn: Destination,
    /// The path on it.
    pub url: String,
    /// The id that the call's task will have. The store draws it with the task's own, in the same
    /// lane, so that dying needs no counter and dying again (after a replay) makes no second call.
    /// Absent until the task is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
}

/// A task's own settings; what is absent follows the policy. Stored with the task as compact JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The store that accepted the task first, if it was moved here from there. Not a caller's to
    /// set. Stays first: the scripts of the Redis store look for it at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<StoreId>,
    /// Calls before the task dies, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Headers of its own, for its callback.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// At most one waiting task per topic and key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long after its due moment the task is still worth delivering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    /// Whom to tell if it dies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_dead: Option<OnDead>,
}

impl Options {
    /// Whether nothing is asked for.
    pub fn is_default(&self) -> bool {
        // Nearly all tasks are asked, and to make another one and compare costs ten times as much.
        let Self { origin, max_attempts, timeout, backoff, headers, key, expires_after, on_dead } =
            self;
        let has_times = max_attempts.is_some()
            || timeout.is_some()
            || backoff.is_some()
            || expires_after.is_some();
        origin.is_none() && !has_times && headers.is_empty() && key.is_none() && on_dead.is_none()
    }
}
