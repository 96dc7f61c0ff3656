//! Values that are one of several names.

use serde::{Deserialize, Serialize};

/// A task's state. A task whose lease has expired counts as `scheduled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Waits for its due time, for a retry, or for a free slot.
    Scheduled,
    /// A holder has the task until its lease ends.
    Leased,
    /// Acknowledged.
    Delivered,
    /// Out of attempts, or the receiver's answer was final. Kept until it is replayed or purged.
    Dead,
    /// Cancelled by a caller.
    Cancelled,
    /// Not delivered in time: past its `expires_after`, or due in a pause with `misfire` "skip".
    Expired,
}

/// How a task is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `push` if the content has `sn` or `url`, otherwise `pull`.
    #[default]
    Auto,
    /// delayd calls the receiver.
    Push,
    /// Consumers pull the task.
    Pull,
}

/// `push`: delayd calls the receiver. `pull`: consumers pull the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// delayd calls the receiver.
    Push,
    /// Consumers pull the task.
    Pull,
}

/// The kind of a lease's holder.
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
    /// A mover, which moves the task to another store.
    Mover,
}

/// Which failures a stored task survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// On disk before the answer.
    Fsynced,
    /// Redis with `appendfsync always`.
    AofAlways,
    /// Redis with `appendfsync everysec`: a crash of the machine may lose one second.
    AofEverysec,
    /// Redis without AOF, or with `appendfsync no`: a crash of the server loses it.
    Volatile,
}

/// What happens to tasks that were due while their topic was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MisfirePolicy {
    /// They are delivered late.
    #[default]
    Fire,
    /// They expire without delivery.
    Skip,
    /// They become dead, and can be replayed.
    Dead,
}

/// The order of a list of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ListOrder {
    /// The earliest first.
    #[default]
    Oldest,
    /// The latest first.
    Newest,
}

/// The order of a list of topics. Topics of equal value follow each other by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TopicSort {
    /// By name.
    #[default]
    Name,
    /// The earliest due time first, so overdue topics come first; topics without tasks last.
    NextDue,
    /// The topic with the oldest overdue task first; topics without overdue tasks last.
    OldestOverdue,
    /// Most scheduled and leased tasks first.
    Pending,
    /// Most dead tasks first.
    Dead,
}

/// The state of a circuit breaker.
///
/// The order is from healthy to unhealthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls go through.
    #[default]
    Closed,
    /// Probes go through.
    HalfOpen,
    /// No call goes through.
    Open,
}

impl TaskState {
    /// Every state, in the order of the life cycle.
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

    /// Whether the task has ended. (A dead task can still be replayed.)
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Leased)
    }
}

impl Mode {
    /// Every mode.
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
    /// Every policy.
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

impl TopicSort {
    /// Every order.
    pub const ALL: [Self; 5] =
        [Self::Name, Self::NextDue, Self::OldestOverdue, Self::Pending, Self::Dead];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::NextDue => "next_due",
            Self::OldestOverdue => "oldest_overdue",
            Self::Pending => "pending",
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
    /// Every state, in the order of the variants.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

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
        for sort in TopicSort::ALL {
            check(&|| serde_json::to_value(sort).unwrap(), sort.as_str());
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
