//! The answer for a stored task, on its own or as an item of a batch.

use delayd_wire::ErrorCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::envelope::Success;
use crate::api::wire::fields::Rfc3339;
use crate::api::wire::schema::{Durability, Way};
use crate::clock::UnixMillis;
use crate::store::{self, Added, Novelty};
use crate::task::{self, TaskId};

/// The answer to a stored task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stored {
    /// The task, by which all other calls name it.
    pub(crate) task_id: TaskId,
    /// When it is due.
    pub(crate) due_ms: UnixMillis,
    /// The same.
    pub(crate) due: Rfc3339,
    /// How it leaves.
    #[schema(value_type = Way)]
    pub(crate) mode: &'static str,
    /// What the stored task survives.
    #[schema(value_type = Durability)]
    pub(crate) durability: &'static str,
    /// The task was added before, under the same idempotency key.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) duplicate: bool,
    /// Of a duplicate: where the first task stands now. Left out: it is forgotten here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<task::State>,
    /// The pending task of the same `key` was moved.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) replaced: bool,
}

impl Stored {
    pub(crate) fn of(added: Added, mode: &'static str, durability: store::Durability) -> Self {
        let (duplicate, state) = match added.novelty {
            Novelty::Duplicate { state } => (true, state),
            Novelty::New | Novelty::Replaced => (false, None),
        };
        let (replaced, durability) = (added.novelty == Novelty::Replaced, durability.as_str());
        let (due_ms, due) = (added.due, Rfc3339(added.due));
        Self { task_id: added.id, due_ms, due, mode, durability, duplicate, state, replaced }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// By this name the derive need not look into generics.
type StoredInPlace = Success<Stored>;

/// One task of a batch, answered in its place.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = BatchItem)]
pub(crate) enum Item {
    Stored(StoredInPlace),
    Failed {
        #[schema(value_type = u16, minimum = 1000)]
        dm_error: ErrorCode,
        error_msg: String,
    },
}
