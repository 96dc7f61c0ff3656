//! Where a task stands on its road.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A task's state. A lease that has run out counts as [`State::Scheduled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = TaskState)]
pub enum State {
    /// Waits for its due moment, for a retry, or for a free slot.
    Scheduled,
    /// Someone holds it until a deadline.
    Leased,
    /// Acknowledged.
    Delivered,
    /// Attempts spent, or a final answer. Kept until replayed or purged.
    Dead,
    /// Cancelled by the business.
    Cancelled,
    /// Not worth delivering any more.
    Expired,
}

impl State {
    /// Every state, in the order of the road.
    pub const ALL: [Self; 6] =
        [Self::Scheduled, Self::Leased, Self::Delivered, Self::Dead, Self::Cancelled, Self::Expired];

    /// The name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Leased => "leased",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether the task's road has ended there (a dead task can be replayed all the same).
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Leased)
    }
}
