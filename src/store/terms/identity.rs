//! The nouns of sameness: whether a task that is added is one that was added before.

use std::time::Duration;

/// Makes an add safe to repeat: the same key and fingerprint within the window answer the first task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key, 1 to 256 bytes of any text.
    pub key: String,
    /// What was asked for, as a hash: another one under the same key is [`Error::KeyReused`](super::super::Error::KeyReused).
    pub fingerprint: u128,
    /// How long the key is remembered, from the first add by the store's clock. It outlives the task.
    pub window: Duration,
}

/// Whether an add made a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// A new one.
    New,
    /// None: this task was added before, under the same idempotency key. Nothing changed.
    Duplicate,
    /// None: the pending task of the same `key` was moved to the new moment, with the new content and options.
    Replaced,
}
