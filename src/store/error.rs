//! The errors of a store. They know no HTTP. Their texts may name addresses and paths, and are for
//! logs only.

/// A failed call of a store. A logical refusal (a stale receipt, an unknown task) is an answer, not
/// an error. A refused add is an error, because it stored nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The store is unreachable, overloaded or silent. The call may or may not have had its effect.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// Only one lane is unreachable, because it is moving to another server. Other lanes on the
    /// same server are not affected.
    #[error("store unavailable: {0}")]
    Moving(String),
    /// The store is up, but has no room for more tasks. Nothing was stored; claims and settles
    /// continue.
    #[error("store full: {0}")]
    Full(String),
    /// The lane holds as many waiting and leased tasks as allowed. Nothing was stored.
    #[error("the topic's quota of pending tasks is used up")]
    OverQuota,
    /// The token has created as many topics as it may. Nothing was stored.
    #[error("the token may create no more topics")]
    CreatorLimit,
    /// The topic has another number of lanes than the caller's entry. Nothing was stored; the
    /// caller reads the entry again.
    #[error("the topic's number of lanes is not what the caller's entry says")]
    StaleEntry,
    /// The idempotency key belongs to a task with another fingerprint. Nothing was stored.
    #[error("the idempotency key was used for another task")]
    KeyReused,
    /// The setup cannot work: a wrong password, an eviction policy that loses tasks, a file that
    /// another process holds. Repeating does not help.
    #[error("{0}")]
    Misconfigured(String),
    /// The store holds data that this version cannot read, or gave an answer that no version should
    /// give.
    #[error("store is broken: {0}")]
    Corrupt(String),
}

/// The result of a call of a store.
pub type Result<T> = std::result::Result<T, Error>;
