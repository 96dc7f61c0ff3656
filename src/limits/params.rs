//! The settings of the limits, what has limits, and the state of a destination for operators.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Duration;

use super::Allowance;
use super::recent::RecentCalls;
use crate::model::breaker;
use crate::model::task::{Destination, Topic};
use delayd_wire::Rate;

/// The settings of the limits of destinations.
#[derive(Clone, Debug)]
pub struct LimitParams {
    /// The most calls at a time (`callback.concurrency`), from 1.
    pub concurrency: usize,
    /// The most calls at a time to one destination without a limit of its own, from 1.
    pub concurrency_per_service: usize,
    /// When the breaker opens, and for how long (`callback.breaker`).
    pub breaker: breaker::Params,
    /// The longest wait that a destination's `Retry-After` can ask for
    /// (`callback.retry_after_max`).
    pub retry_after_max: Duration,
}

impl LimitParams {
    /// The allowance of a destination, with the default limit if it has none of its own.
    pub(super) fn resolved(&self, own: Allowance) -> Allowance {
        let concurrency =
            if own.concurrency == 0 { self.concurrency_per_service } else { own.concurrency };
        Allowance { concurrency, rate: own.rate }
    }
}

/// What has limits of its own.
pub trait Limited: Clone + Debug + Display + Eq + Hash + Ord {
    /// The settings of its breaker; `None`: the outcomes of its calls do not matter.
    fn breaker(params: &LimitParams) -> Option<&breaker::Params>;
}

impl Limited for Destination {
    fn breaker(params: &LimitParams) -> Option<&breaker::Params> {
        Some(&params.breaker)
    }
}

impl Limited for Topic {
    fn breaker(_: &LimitParams) -> Option<&breaker::Params> {
        None
    }
}

/// All that the limits know about a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Detail {
    /// Its state.
    pub standing: Standing,
    /// The most slots that it may ever have.
    pub slots: usize,
    /// How long until its open breaker becomes half-open.
    pub probes_in: Option<Duration>,
    /// Its rate in the configuration.
    pub rate: Option<Rate>,
    /// Its last calls.
    pub recent: RecentCalls,
    /// The last changes of its breaker, the oldest first, and how long ago each was.
    pub changes: Vec<(breaker::State, Duration)>,
}

/// The state of a destination, as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The state of its breaker.
    pub breaker: breaker::State,
    /// Its taken slots.
    pub in_flight: usize,
    /// The most slots it may have now: its own limit, or the window of its slow start.
    pub window: usize,
    /// How much longer the wait for its `Retry-After` lasts.
    pub held_for: Option<Duration>,
    /// Why there is no OAuth token for it, so that it is not called.
    pub no_token: Option<String>,
    /// The outcome of its last failed call, and how long ago it was.
    pub last_failure: Option<(String, Duration)>,
}
