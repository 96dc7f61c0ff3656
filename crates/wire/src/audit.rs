//! The audit log: administrative actions, and the answer that lists them.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::{Destination, ErrorCode, TaskId, Topic, UnixMillis};

// The stores keep it as JSON of this shape. A field that a newer version added is ignored.
/// An administrative action, and its result. It never holds a content, a header or a token.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it ended, by the clock of the instance.
    pub at_ms: UnixMillis,
    pub source: AuditSource,
    /// The name of the caller's token. Absent if the caller had none, or an unknown one.
    pub token: Option<String>,
    /// The end of the call's path, such as `topic/pause`; or `config/reload`, `store/new-id`,
    /// `store/format`, `store/repair`.
    pub action: String,
    /// The topic that the request names.
    pub topic: Option<Topic>,
    /// The destination that the request names.
    pub sn: Option<Destination>,
    /// The recurring schedule that the request names.
    pub schedule: Option<String>,
    /// The task that the request names.
    pub task_id: Option<TaskId>,
    /// How many tasks the request names; of a replay or purge of dead tasks, how many it changed.
    pub tasks: Option<u64>,
    /// The cause of the dead tasks that were replayed or purged, if the request names one. Absent
    /// for a token with only the scope `view`.
    pub reason: Option<String>,
    /// The request asked what would change, and changed nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    pub result: AuditResult,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// The `dm_error` of the answer, if it is an error.
    #[schema(value_type = Option<u16>)]
    pub dm_error: Option<u16>,
    /// The `x-request-id` of the answer.
    pub request_id: Option<String>,
    /// How many refused requests of this token, or of callers without a known token, were not
    /// recorded before this one because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrecorded: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

words! {

/// Where an administrative action came from.
pub enum AuditSource "snake_case" {
    /// A call.
    Api,
    /// SIGHUP, or a changed file of the configuration.
    Configuration,
    /// A command that works on the store itself, such as `delayd store new-id`.
    CommandLine,
}

/// The result of an administrative action.
pub enum AuditResult "snake_case" {
    /// It succeeded.
    Done,
    /// It was refused, and nothing was changed.
    Refused,
    /// It failed, or is not confirmed: it may be done in part.
    Failed,
    /// The caller disconnected before the answer: it may be done.
    Unanswered,
}

}

impl AuditResult {
    /// The result that an HTTP status says.
    pub const fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Done,
            400..500 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

impl AuditEntry {
    /// An action without a target.
    pub fn new(source: AuditSource, action: &str, result: AuditResult, at_ms: UnixMillis) -> Self {
        Self {
            at_ms,
            source,
            token: None,
            action: action.into(),
            topic: None,
            sn: None,
            schedule: None,
            task_id: None,
            tasks: None,
            reason: None,
            dry_run: false,
            result,
            status: None,
            dm_error: None,
            request_id: None,
            unrecorded: 0,
        }
    }

    /// The same with the answer of a call.
    pub fn answered(self, status: u16, error: Option<ErrorCode>) -> Self {
        let dm_error = error.map(ErrorCode::number);
        Self { result: AuditResult::of_status(status), status: Some(status), dm_error, ..self }
    }
}

/// A page of the audit log, the newest entry first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// For the next page; null on the last page.
    pub cursor: Option<String>,
}
