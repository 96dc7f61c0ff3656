//! Whole tasks, for a move to another store: the answers of `records`, `moved` and `adopt`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{ErrorCode, Mode, Note, SuccessAnswer, TaskId, TaskState, Topic, UnixMillis, Way};

/// Whole tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Records {
    /// The receipt of the mover's lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    pub records: Vec<Record>,
    /// Tasks that did not fit into this answer: ask for them again.
    pub rest: Vec<TaskId>,
}

/// A whole task, in the form that `adopt` takes.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    pub topic: Topic,
    pub task_id: TaskId,
    /// `leased`: another holder has the task. A task that is leased to the mover is `scheduled`.
    pub state: TaskState,
    /// How the task is delivered.
    #[schema(value_type = Way)]
    pub mode: Mode,
    pub created_ms: UnixMillis,
    /// The due time that an add or an update set.
    pub due_ms: UnixMillis,
    /// The time that the task waits for, if it is not `due_ms`: the next attempt.
    pub waits_ms: Option<UnixMillis>,
    pub finished_ms: Option<UnixMillis>,
    #[serde(default)]
    #[schema(required = true)]
    pub attempts: u32,
    pub last_outcome: Option<String>,
    /// A cancel is pending: the task is cancelled when its lease ends, unless it succeeds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelling: bool,
    pub key: Option<String>,
    /// When an add last set the task by its `key`. Absent if the task has no key, or if the key now
    /// belongs to another task.
    pub key_set_ms: Option<UnixMillis>,
    /// The task is leased to the mover, and continues here if the other service refuses it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lent: bool,
    /// The options as `get` shows them. In addition: `origin`, the store id in the task's
    /// `webhook-id`; in `on_dead` the `task_id` of the dead-letter callback; `removed`, a digest of
    /// the content if that was removed.
    #[serde(default)]
    #[schema(value_type = Object, required = true)]
    pub options: Map<String, Value>,
    /// Empty if it was removed.
    pub content: String,
    /// Where the task was delivered, if its content was removed: a service, or a host.
    pub destination: Option<String>,
    /// The attempts in the task's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Note>,
    // Of a later version. They are passed on.
    #[serde(flatten)]
    #[schema(ignore)]
    pub others: Map<String, Value>,
}

/// The result for tasks that were leased to the mover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ended {
    /// The number of tasks that were removed here, or returned with `back`.
    pub count: u64,
    /// Tasks that are not under this lease any more; the call did not change them.
    pub stale: Vec<StaleTask>,
}

/// A task that the call did not change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StaleTask {
    pub task_id: TaskId,
    /// The task's current state. `leased`: another holder has it, or a cancel is pending; `records`
    /// with `lend` tells which.
    pub state: TaskState,
}

/// The result of an adopt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdoptAnswer {
    /// How many records were refused.
    pub failed: usize,
    /// The result for each record, in order.
    pub results: Vec<AdoptItem>,
}

/// The derive takes no generic arguments in a `value_type`.
type AdoptedAnswer = SuccessAnswer<AdoptedTask>;

item_of_batch! {
    pub enum AdoptItem { Kept(AdoptedAnswer) }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdoptedTask {
    pub task_id: TaskId,
    /// An earlier call had adopted it.
    pub known: bool,
    /// Absent if the task is kept as the record says, or as it has changed here since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<AdoptionBecame>,
}

/// Why an adopted record left no waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdoptionBecame {
    /// A task with the same `key` was set later here, so this one is not kept.
    Superseded,
    /// The same task waited here, and ended as the record says.
    Ended,
    /// The same task is leased here: it is cancelled when its lease ends, unless it succeeds.
    Cancelling,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mover returns a refused task to its old store. If it took a success for a failure, the
    /// task would be in two stores.
    #[test]
    fn a_success_that_cannot_be_understood_is_no_failure() {
        let read = |item: &str| serde_json::from_str::<AdoptItem>(item).ok();
        let kept = r#"{"dm_error":0,"error_msg":"x","task_id":7,"known":true,"became":"ended"}"#;
        assert!(matches!(read(kept), Some(AdoptItem::Kept(_))));
        assert!(matches!(
            read(r#"{"dm_error":1009,"error_msg":"x"}"#),
            Some(AdoptItem::Failed { .. })
        ));
        assert_eq!(read(&kept.replace("ended", "something new")), None);
    }
}
