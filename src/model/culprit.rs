//! Who delays a task.

/// Who delays a task that is due. Each late millisecond has one culprit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Culprit {
    /// delayd itself: slots were free, or no other instance worked the lane of a dead one.
    #[default]
    Delayd,
    /// The receiver: its breaker is open, its slots are taken, its slow start limits it, it asked
    /// for a wait with `Retry-After`, or its token endpoint gives no token.
    Receiver,
    /// An operator: a pause, a hold, a rate limit, or a destination that is not configured.
    Operator,
    /// The store: it is out of reach or slow.
    Store,
    /// A consumer: nobody pulls the task, or who pulled it forgot it.
    Consumer,
    /// The store's clock was set forward, so this time did not pass.
    Clock,
    /// Nobody knows: the task was due before the instance started.
    Unknown,
}

impl Culprit {
    /// All of them, in the order of the variants.
    pub const ALL: [Self; 7] = [
        Self::Delayd,
        Self::Receiver,
        Self::Operator,
        Self::Store,
        Self::Consumer,
        Self::Clock,
        Self::Unknown,
    ];

    /// Those that can delay a task that still waits, in the same order. The others are found
    /// only when a task is handed out.
    pub const OF_WAITING: [Self; 5] =
        [Self::Delayd, Self::Receiver, Self::Operator, Self::Store, Self::Consumer];

    /// The name, as metrics and answers show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delayd => "delayd",
            Self::Receiver => "receiver",
            Self::Operator => "operator",
            Self::Store => "store",
            Self::Consumer => "consumer",
            Self::Clock => "clock",
            Self::Unknown => "unknown",
        }
    }
}
