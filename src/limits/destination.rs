//! The limits of destinations: how many calls run in total, and per destination.
//!
//! A destination gets one more slot only if all of these hold:
//!
//! - Its gate admits a call: rate, circuit breaker, holds (`gate`).
//! - Its bulkhead has a vacant slot, within its own limit and the window of its slow start.
//! - In total, at least one slot is free, and at least as many as the destination has in flight. So
//!   one dead destination takes at most half of all slots, two take two thirds, four take four
//!   fifths.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Allowance;
use super::entry::LimitEntry;
use super::limiter::Limiter;
use super::params::{Detail, LimitParams, Limited, Standing};
use crate::model::breaker::State;
use crate::model::clock::UnixMillis;
use crate::model::task::Destination;

/// The number of a request for the holds, in the order of the requests.
#[derive(Clone, Copy, Debug)]
pub struct HoldsAsked(u64);

/// The limits of all destinations.
pub type DestinationLimits = Limiter<Destination>;

impl DestinationLimits {
    /// Changes the settings. Taken slots stay taken, and each breaker keeps its state.
    pub fn set_params(&self, params: LimitParams) {
        let now = Instant::now();
        let mut table = self.0.table();
        table.set_params(&params, now);
        self.0.set_params(params);
        table.serve_all(now);
    }

    /// Whether operators hold the destination.
    pub fn is_held(&self, destination: &Destination) -> bool {
        self.0.table().held.contains(destination)
    }

    /// The longest wait that a `Retry-After` may ask for (`callback.retry_after_max`).
    pub fn retry_after_max(&self) -> Duration {
        self.0.params().retry_after_max
    }

    /// Grants `destination` no permits for `wait`, because of its `Retry-After`. A longer wait
    /// stays.
    pub fn hold(&self, destination: &Destination, wait: Duration) {
        let (now, params) = (Instant::now(), self.0.params());
        let mut table = self.0.table();
        table
            .entry(destination, &params, now)
            .gate
            .retry_after(now + wait.min(params.retry_after_max));
        // Waiters for a slot now have to wait until then.
        table.serve(destination, now);
    }

    /// Call this before the store is asked for the holds. Pass the result, with the store's answer,
    /// to [`DestinationLimits::set_holds`].
    pub fn ask_holds(&self) -> HoldsAsked {
        let mut table = self.0.table();
        table.holds_asked += 1;
        HoldsAsked(table.holds_asked)
    }

    /// Ends the wait for `destination`'s `Retry-After`. A later answer may set another.
    pub fn lift(&self, destination: &Destination) {
        self.0.table().end_retry_after(destination, Instant::now());
    }

    /// Operators hold exactly these destinations from now on.
    ///
    /// The answer to an older request than the last one is ignored. It may have been read before a
    /// hold that was confirmed to an operator.
    ///
    /// `released` are the latest releases by operators, on any instance. A new one also ends the
    /// wait for the destination's `Retry-After`.
    pub fn set_holds(
        &self,
        asked: HoldsAsked,
        held: HashSet<Destination>,
        released: HashMap<Destination, UnixMillis>,
    ) {
        let (now, params) = (Instant::now(), self.0.params());
        let mut table = self.0.table();
        if asked.0 >= table.holds_known {
            table.holds_known = asked.0;
            table.set_holds(held, released, &params, now);
        }
    }

    /// Grants `destination` no permits, because there is no access token for it; `None`: there is
    /// one again.
    pub fn set_no_token(&self, destination: &Destination, why: Option<String>) {
        let (now, params) = (Instant::now(), self.0.params());
        self.0.table().set_no_token(destination, why, &params, now);
    }

    /// The current state of `destination`.
    pub fn standing(&self, destination: &Destination, allowance: Allowance) -> Standing {
        let (now, params) = (Instant::now(), self.0.params());
        match self.0.table().entries.get_mut(destination) {
            Some(entry) => {
                // A hold may have created the entry before its allowance was known.
                entry.allow(params.resolved(allowance), now);
                entry.standing(now)
            }
            None => LimitEntry::new(params.resolved(allowance), Destination::breaker(&params), now)
                .standing(now),
        }
    }

    /// All that is known about `destination`.
    pub fn detail(&self, destination: &Destination, allowance: Allowance) -> Detail {
        let (now, params) = (Instant::now(), self.0.params());
        let allowance = params.resolved(allowance);
        match self.0.table().entries.get_mut(destination) {
            Some(entry) => {
                entry.allow(allowance, now);
                // The change may be due only since now.
                self.0.note_change(destination, entry, now);
                entry.detail(now)
            }
            None => LimitEntry::new(allowance, Destination::breaker(&params), now).detail(now),
        }
    }

    /// Lets an open breaker of `destination` become half-open now, so that the next due tasks are
    /// its probes. Returns the state of the breaker.
    pub fn probe(&self, destination: &Destination) -> State {
        self.0.probe(destination)
    }

    /// Calls `tell` with each change of a breaker. `tell` must not wait, nor use the limits.
    pub fn observe_breakers(&self, tell: impl Fn(&Destination, State) + Send + Sync + 'static) {
        self.0.observer.set(Box::new(tell));
    }

    /// The destinations that operators hold.
    pub fn held(&self) -> Vec<Destination> {
        self.0.table().held.iter().cloned().collect()
    }

    /// The most calls at a time to a destination with this allowance.
    pub fn slots(&self, allowance: Allowance) -> usize {
        let params = self.0.params();
        params.resolved(allowance).concurrency.min(params.concurrency)
    }
}

#[cfg(test)]
#[path = "destination_tests.rs"]
mod tests;
