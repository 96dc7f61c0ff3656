//! One limiter, of all destinations or of all topics. Each has a bulkhead and a gate (`entry`).
//!
//! # Invariants
//!
//! - Slots, tokens and probes are given back by dropping permits, however the call ends.
//! - There is one lock. It is held for a few steps, and never across an await. A release only looks
//!   at waiters that can be served now, and wakes at most one per slot.
//! - Where only time frees a slot (a token, the end of a hold or of an open breaker), one of the
//!   waiters sets a timer.
//! - An entry is forgotten once a new one would admit the same: when it has been idle for as long
//!   as a success counts. Idle entries are removed when many new ones come, and once a minute.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::entry::LimitEntry;
use super::params::{LimitParams, Limited};
use super::permit::Permits;
use super::shared::Shared;
use super::waiter::Waiter;
use super::{Allowance, Wake};
use crate::model::breaker;
use crate::model::culprit::Culprit;
use crate::model::task::Topic;

/// The limits of all destinations, or of all topics. Cheap to clone.
#[derive(Debug)]
pub struct Limiter<K>(pub(super) Arc<Shared<K>>);

/// The limits of topics: how many calls run at a time, and how many begin in a time.
pub type TopicLimits = Limiter<Topic>;

impl<K> Clone for Limiter<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Default for TopicLimits {
    /// Topics share no slots, and none has a limit but its own.
    fn default() -> Self {
        Self::new(LimitParams {
            concurrency: usize::MAX,
            concurrency_per_service: usize::MAX,
            breaker: breaker::Params::default(),
            retry_after_max: Duration::MAX,
        })
    }
}

impl<K: Limited> Limiter<K> {
    /// Limits without calls in flight.
    pub fn new(params: LimitParams) -> Self {
        Self(Arc::new(Shared::new(params)))
    }

    /// Takes up to `most` permits, perhaps none. Slots that are reserved for woken waiters stay
    /// free.
    pub fn reserve(&self, key: &K, allowance: Allowance, most: usize) -> Permits<K> {
        Permits::new(&self.0, key, self.0.take(None, key, allowance, most))
    }

    /// How many slots there are for `key` now, with those that are reserved for woken waiters.
    pub fn free(&self, key: &K, allowance: Allowance) -> usize {
        let (now, params) = (Instant::now(), self.0.params());
        let allowance = params.resolved(allowance);
        let mut table = self.0.table();
        let free = table.free();
        match table.entries.get_mut(key) {
            Some(entry) => {
                entry.allow(allowance, now);
                entry.free(free, now)
            }
            None => LimitEntry::new(allowance, K::breaker(&params), now).free(free, now),
        }
    }

    /// Who keeps calls from beginning now: an operator, whose rate or hold it is, or receivers,
    /// whose calls fail or take all slots. `None` if one may begin.
    pub fn blocked_by(&self, key: &K, allowance: Allowance) -> Option<Culprit> {
        self.culprit(key, allowance, LimitEntry::blocked_by)
    }

    /// Who keeps calls from beginning, or did so in the last second.
    pub fn delayed_by(&self, key: &K, allowance: Allowance) -> Option<Culprit> {
        self.culprit(key, allowance, LimitEntry::delayed_by)
    }

    fn culprit(
        &self,
        key: &K,
        allowance: Allowance,
        of: fn(&mut LimitEntry, usize, Instant) -> Option<Culprit>,
    ) -> Option<Culprit> {
        let (now, params) = (Instant::now(), self.0.params());
        let mut table = self.0.table();
        let free = table.free();
        match table.entries.get_mut(key) {
            Some(entry) => {
                entry.allow(params.resolved(allowance), now);
                of(entry, free, now)
            }
            None => (free == 0).then_some(Culprit::Receiver),
        }
    }

    /// Returns a new waiter. It joins the wait queue of `key` at its first [`Waiter::check`].
    pub fn enqueue(&self, key: &K, wake: Arc<impl Wake + 'static>) -> Waiter<K> {
        Waiter::new(&self.0, key, wake)
    }

    /// Forgets idle entries. The worker calls it once a minute: callers may name any number of
    /// hosts.
    pub fn forget_idle(&self) {
        self.0.table().forget_idle(Instant::now());
    }

    /// The number of taken slots in total.
    pub fn in_flight(&self) -> usize {
        self.0.table().in_flight
    }
}

#[cfg(test)]
#[path = "topic_tests.rs"]
mod topic_tests;
