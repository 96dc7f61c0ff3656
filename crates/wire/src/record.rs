//! Whole tasks, on their way to another store: what `records`, `moved` and `adopt` answer.

use serde::{Deserialize, Serialize};

use crate::{Answer, ErrorCode, Note, TaskId, TaskState, TopicName, UnixMillis, Way};

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyRecord = self::Record<()>;

/// Whole tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct Records<Record> {
    /// What holds those that are lent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    #[cfg_attr(feature = "schema", schema(value_type = Vec<AnyRecord>))]
    pub records: Vec<Record>,
    /// There was no room for these: ask for them again.
    pub rest: Vec<TaskId>,
}

/// A whole task, as it is adopted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct Record<Options, Mode = Way> {
    pub topic: TopicName,
    pub task_id: TaskId,
    /// `leased`: somebody else has it just now. What is lent is `scheduled`.
    pub state: TaskState,
    /// How it leaves.
    #[cfg_attr(feature = "schema", schema(value_type = Way))]
    pub mode: Mode,
    pub created_ms: UnixMillis,
    /// The due moment that it was stored with, or was moved to by hand.
    pub due_ms: UnixMillis,
    /// What it waits for, if that is another moment: a retry's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_ms: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<UnixMillis>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<String>,
    /// A cancel waits for the end of its lease: it is not to be delivered any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelling: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When an add last set the task by its `key`. Left out: it has none, or the `key` has gone to
    /// another task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_set_ms: Option<UnixMillis>,
    /// It is lent to the caller, and goes on here if another service refuses it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lent: bool,
    /// As `get` shows them; `origin`, the store that its `webhook-id` begins with; and `task_id` in
    /// `on_dead`: the id that the call for the dead will have.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object, required = true))]
    pub options: Options,
    pub content: String,
    /// The attempts that were noted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Note>,
}

/// What became of lent tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ended {
    /// Gone from here, or back.
    pub count: u64,
    /// Not ended, for each has become something else meanwhile; nothing changed.
    pub stale: Vec<StaleTask>,
}

/// A task that was not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StaleTask {
    pub task_id: TaskId,
    /// What it is now. `leased`: somebody else holds it, or a cancel is pending; `records` with
    /// `lend` says which.
    pub state: TaskState,
}

/// What became of an adoption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AdoptAnswer {
    /// How many were not adopted.
    pub failed: usize,
    /// Each record's answer, in order.
    pub results: Vec<AdoptItem>,
}

/// The derive takes no generic arguments in a `value_type`.
type AdoptedAnswer = Answer<AdoptedTask>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum AdoptItem {
    Kept(AdoptedAnswer),
    Failed {
        #[serde(deserialize_with = "ErrorCode::of_failure")]
        #[cfg_attr(feature = "schema", schema(value_type = u16, minimum = 1000))]
        dm_error: ErrorCode,
        error_msg: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AdoptedTask {
    pub task_id: TaskId,
    /// It had been adopted before.
    pub known: bool,
    /// Left out: it is kept as the record says, or as it has fared here since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<AdoptionBecame>,
}

/// What an adoption came to that keeps no waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AdoptionBecame {
    /// A task of the same key was set later here: this one is not kept.
    Superseded,
    /// The same task waited here, and has ended now as it did elsewhere.
    Ended,
    /// The same task is in someone's hands here: it is cancelled when its lease ends, unless it
    /// succeeds.
    Cancelling,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mover gives back what is refused: taken for refused, an adopted task would be in two
    /// stores.
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
