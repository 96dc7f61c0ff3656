//! Values that are one of several names.

use serde::{Deserialize, Serialize};

/// A task's state. A lease that has run out counts as `scheduled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
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

/// How a task leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Pushed if its content says to whom.
    #[default]
    Auto,
    /// Called back.
    Push,
    /// Fetched by consumers.
    Pull,
}

/// Called back, or pulled by consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Called back.
    Push,
    /// Fetched by consumers.
    Pull,
}

/// A worker that calls, a consumer that pulled, a receiver that acknowledges later, or a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// A worker, which calls the destination.
    Worker,
    /// A consumer, which pulled the task.
    Consumer,
    /// A receiver, which was called and acknowledges later.
    Receiver,
    /// A mover, which takes the task to another store.
    Mover,
}

/// What the stored task survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// On disk before the answer.
    Fsynced,
    /// Redis with `appendfsync always`.
    AofAlways,
    /// Redis with `appendfsync everysec`: a second may be lost with the machine.
    AofEverysec,
    /// Redis without AOF, or with `appendfsync no`: lost with the server.
    Volatile,
}

/// What becomes of the tasks that fell due while their topic was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MisfirePolicy {
    /// They are delivered late.
    #[default]
    Fire,
    /// They expire undelivered.
    Skip,
    /// They die, and can be replayed.
    Dead,
}

/// Where a breaker stands.
///
/// In order, from well to ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// A few calls go through, to see.
    HalfOpen,
    /// No call goes through.
    Open,
}

impl TaskState {
    /// Every state, in the order of the road.
    pub const ALL: [Self; 6] = [
        Self::Scheduled,
        Self::Leased,
        Self::Delivered,
        Self::Dead,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The name.
    pub const fn as_str(self) -> &'static str {
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
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Leased)
    }
}

impl Mode {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Push, Self::Pull];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

impl MisfirePolicy {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Fire, Self::Skip, Self::Dead];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fire => "fire",
            Self::Skip => "skip",
            Self::Dead => "dead",
        }
    }
}

impl Way {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

impl Holder {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Consumer => "consumer",
            Self::Receiver => "receiver",
            Self::Mover => "mover",
        }
    }
}

impl Durability {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fsynced => "fsynced",
            Self::AofAlways => "aof-always",
            Self::AofEverysec => "aof-everysec",
            Self::Volatile => "volatile",
        }
    }
}

impl BreakerState {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_one_on_the_wire() {
        let check = |value: &dyn Fn() -> serde_json::Value, name: &str| assert_eq!(value(), name);
        for state in TaskState::ALL {
            check(&|| serde_json::to_value(state).unwrap(), state.as_str());
        }
        for mode in Mode::ALL {
            check(&|| serde_json::to_value(mode).unwrap(), mode.as_str());
        }
        for policy in MisfirePolicy::ALL {
            check(&|| serde_json::to_value(policy).unwrap(), policy.as_str());
        }
        for way in [Way::Push, Way::Pull] {
            check(&|| serde_json::to_value(way).unwrap(), way.as_str());
        }
        for holder in [Holder::Worker, Holder::Consumer, Holder::Receiver, Holder::Mover] {
            check(&|| serde_json::to_value(holder).unwrap(), holder.as_str());
        }
        for kept in [
            Durability::Fsynced,
            Durability::AofAlways,
            Durability::AofEverysec,
            Durability::Volatile,
        ] {
            check(&|| serde_json::to_value(kept).unwrap(), kept.as_str());
        }
        for state in [BreakerState::Closed, BreakerState::HalfOpen, BreakerState::Open] {
            check(&|| serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
