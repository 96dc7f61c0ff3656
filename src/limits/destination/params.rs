//! The settings of the limits, and how a destination stands.

use std::time::Duration;

use crate::limits::Allowance;
use crate::model::breaker;

/// The settings of the limits of destinations.
#[derive(Clone, Debug)]
pub struct LimitParams {
    /// The most calls at a time (`callback.concurrency`), from 1.
    pub concurrency: usize,
    /// The most calls at a time to one destination that names no limit of its own, from 1.
    pub concurrency_per_service: usize,
    /// When a destination is left alone (`callback.breaker`).
    pub breaker: breaker::Params,
    /// The longest that a destination's `Retry-After` holds it (`callback.retry_after_max`).
    pub retry_after_max: Duration,
}

impl LimitParams {
    /// The allowance of a destination, with the default where it names none of its own.
    pub(super) fn resolved(&self, own: Allowance) -> Allowance {
        let concurrency =
            if own.concurrency == 0 { self.concurrency_per_service } else { own.concurrency };
        Allowance { concurrency, rate: own.rate }
    }
}

/// How a destination stands, for eyes.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its breaker.
    pub breaker: breaker::State,
    /// Its slots that are taken.
    pub in_flight: usize,
    /// How many may be: its own limit, or what its slow start has come to.
    pub window: usize,
    /// How much longer its own `Retry-After` holds it.
    pub held_for: Option<Duration>,
    /// What its last failed call came to, and how long ago.
    pub last_failure: Option<(String, Duration)>,
}
