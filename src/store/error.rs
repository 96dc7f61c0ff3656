//! What can go wrong in a store. Knows no HTTP; the texts may name addresses and paths and are for
//! logs only.

/// A store's failure. Logical refusals (a stale receipt, an unknown task) are answers, not errors;
/// but an add that is refused is one, for it stored nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Out of reach, overloaded or silent. Whatever was asked may or may not have happened.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// One lane alone is out of reach, for it is on its way to another server. The others that lie
    /// beside it are not affected.
    #[error("store unavailable: {0}")]
    Moving(String),
    /// Up, but without room for more tasks. Nothing was stored; what is on its way out goes on.
    #[error("store full: {0}")]
    Full(String),
    /// The lane holds as many waiting and leased tasks as it may. Nothing was stored.
    #[error("the topic's quota of pending tasks is used up")]
    OverQuota,
    /// The topic has another number of lanes than the caller's entry says. Nothing was stored: the
    /// caller reads the topic's entry again.
    #[error("the topic's number of lanes is not what the caller's entry says")]
    StaleEntry,
    /// The idempotency key names a task that was asked for differently. Nothing was stored.
    #[error("the idempotency key was used for another task")]
    KeyReused,
    /// Set up in a way that cannot work: wrong password, an eviction policy that loses tasks, a
    /// file that another process holds. Repeating will not help.
    #[error("{0}")]
    Misconfigured(String),
    /// It holds something that this version cannot read, or answered what no version should.
    #[error("store is broken: {0}")]
    Corrupt(String),
}

/// The result of a store's verb.
pub type Result<T> = std::result::Result<T, Error>;
