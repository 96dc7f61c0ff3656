//! How many calls may run: in total, and per destination.
//!
//! A destination gets one more slot only if all of these hold:
//!
//! - its gate admits a call: rate, circuit breaker, holds (`gate`);
//! - its bulkhead has a vacant slot: of its own limit, and of its slow start's window;
//! - in total there is a free slot, and at least as many as the destination has in flight. So one
//!   black hole takes half of all slots at most, two take two thirds, four take four fifths.
//!
//! # Invariants
//!
//! - Slots, tokens and probes are given back by dropping, whatever way the call ends.
//! - One lock, held for a few steps and never across an await. A release looks only at waiters that
//!   can be served now, and wakes no more of them than there are slots.
//! - What comes back with time alone (a token, the end of a hold or of an open breaker) wakes
//!   nobody: one of the waiters sets a timer.
//! - An entry is forgotten once it has been idle for as long as a success lasts: by then a new one
//!   would say the same. That is done when many new ones come, and by the workers once a minute.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Allowance;
use crate::model::clock::UnixMillis;
use crate::model::task::Destination;

mod entry;
mod params;
mod permit;
mod shared;
mod table;
mod waiter;

use entry::Entry;
pub use params::{LimitParams, Standing};
pub use permit::{Permit, Permits};
use shared::Shared;
pub use waiter::Waiter;

/// When the store was asked what operators hold, among those that ask.
#[derive(Clone, Copy, Debug)]
pub struct HoldsAsked(u64);

/// The limits of all destinations. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DestinationLimits(Arc<Shared>);

impl DestinationLimits {
    /// All slots are free.
    pub fn new(params: LimitParams) -> Self {
        Self(Arc::new(Shared::new(params)))
    }

    /// Goes by other settings from now on. Slots that are taken stay so, and each breaker stays in
    /// its state.
    pub fn set_params(&self, params: LimitParams) {
        let now = Instant::now();
        let mut table = self.0.table();
        table.set_params(&params, now);
        self.0.set_params(params);
        table.serve_all(now);
    }

    /// Takes up to `most` slots, now; perhaps none. Slots that are reserved for woken waiters stay.
    pub fn reserve(&self, destination: &Destination, allowance: Allowance, most: usize) -> Permits {
        Permits::new(&self.0, destination, self.0.take(None, destination, allowance, most))
    }

    /// How many slots there are for `destination` now, those for woken waiters among them.
    pub fn free(&self, destination: &Destination, allowance: Allowance) -> usize {
        let (now, params) = (Instant::now(), self.0.params());
        let allowance = params.resolved(allowance);
        let mut table = self.0.table();
        let free = table.free();
        match table.entries.get_mut(destination) {
            Some(entry) => {
                entry.allow(allowance, now);
                entry.free(free, now)
            }
            None => Entry::new(allowance, &params.breaker, now).free(free, now),
        }
    }

    /// A position at the end of the wait queue for `destination`. It does not wait before its first
    /// [`Waiter::check`].
    pub fn enqueue(&self, destination: &Destination, wake: Arc<Notify>) -> Waiter {
        Waiter::new(&self.0, destination, wake)
    }

    /// The longest that a `Retry-After` may ask for now.
    pub fn retry_after_max(&self) -> Duration {
        self.0.params().retry_after_max
    }

    /// Grants nothing to `destination` for so long; a longer hold stays. For a `Retry-After` that
    /// speaks for all of it.
    pub fn hold(&self, destination: &Destination, wait: Duration) {
        let (now, params) = (Instant::now(), self.0.params());
        let mut table = self.0.table();
        table
            .entry(destination, &params, now)
            .gate
            .retry_after(now + wait.min(params.retry_after_max));
        // Waiters for a slot have to wait for the end of the hold instead.
        table.serve(destination, now);
    }

    /// To be called before the store is asked what operators hold; its answer goes to
    /// [`DestinationLimits::set_holds`] with this.
    pub fn ask_holds(&self) -> HoldsAsked {
        let mut table = self.0.table();
        table.holds_asked += 1;
        HoldsAsked(table.holds_asked)
    }

    /// Ends the hold that `destination`'s `Retry-After` has set. A later answer may set another.
    pub fn lift(&self, destination: &Destination) {
        self.0.table().end_retry_after(destination, Instant::now());
    }

    /// Operators hold these destinations from now on, and no others. An answer that was asked for
    /// before the one that is known is ignored: it may have been read before a hold of which the
    /// caller has been told that it is set.
    ///
    /// `released` are the latest releases by operators, on any instance. One that is new also ends
    /// the destination's `Retry-After` hold here.
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

    /// How `destination` stands.
    pub fn standing(&self, destination: &Destination, allowance: Allowance) -> Standing {
        let (now, params) = (Instant::now(), self.0.params());
        match self.0.table().entries.get_mut(destination) {
            Some(entry) => {
                // A hold may have come before anybody asked by these settings.
                entry.allow(params.resolved(allowance), now);
                entry.standing(now)
            }
            None => Entry::new(params.resolved(allowance), &params.breaker, now).standing(now),
        }
    }

    /// Forgets destinations that say nothing any more. To be called now and then: callers may name
    /// any number of hosts.
    pub fn forget_idle(&self) {
        self.0.table().forget_idle(Instant::now());
    }

    /// How many slots are taken in total.
    pub fn in_flight(&self) -> usize {
        self.0.table().in_flight
    }
}

#[cfg(test)]
mod tests;
