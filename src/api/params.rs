//! The settings of the API, and the current values of those that a reload may change.

use std::time::Duration;

use crate::outcome::Policy;

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct Params {
    /// The longest body of a request, in bytes (`limits.body`).
    pub body_limit: usize,
    /// The longest content of a task, in bytes (`limits.content`).
    pub content_limit: usize,
    /// The most tasks of a batch (`limits.batch`).
    pub batch_limit: usize,
    /// The longest body of a batch, in bytes (`limits.batch_body`).
    pub batch_body_limit: usize,
    /// The latest due time, from now (`limits.max_delay`).
    pub max_delay: Duration,
    /// How long an idempotency key is remembered (`limits.idempotency_window`).
    pub idempotency_window: Duration,
    /// The retry policy of a nacked task that has no options of its own.
    pub policy: Policy,
    /// The memory budget for request bodies, and for answers, in bytes (`limits.bodies`).
    pub bodies: usize,
    /// The limit of concurrent requests. A further request waits for a slot for at most 150 ms, and
    /// then gets 503.
    pub concurrency: usize,
    /// The limit of pulls that wait for a task. A further one gets 503 at once.
    pub waiters: usize,
    /// The longest time from a request's head to its answer, in addition to the `wait` of a pull.
    pub timeout: Duration,
}

impl Params {
    /// Values that no configuration key sets, and the documented defaults of the others.
    pub fn new(policy: Policy) -> Self {
        Self {
            body_limit: 1 << 20,
            content_limit: 256 << 10,
            batch_limit: 1000,
            batch_body_limit: 16 << 20,
            max_delay: Duration::from_secs(3650 * 24 * 3600),
            idempotency_window: Duration::from_secs(24 * 3600),
            policy,
            bodies: 256 << 20,
            concurrency: 1024,
            waiters: 4096,
            timeout: Duration::from_secs(10),
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            body_limit: self.body_limit,
            batch_body_limit: self.batch_body_limit,
            content_limit: self.content_limit,
            batch_limit: self.batch_limit,
            max_delay: self.max_delay,
            idempotency_window: self.idempotency_window,
        }
    }
}

/// Limits that a reload may change (`Api::set_bounds`). The fields are those of [`Params`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) body_limit: usize,
    pub(crate) batch_body_limit: usize,
    pub(crate) content_limit: usize,
    pub(crate) batch_limit: usize,
    pub(crate) max_delay: Duration,
    pub(crate) idempotency_window: Duration,
}
