//! A bulkhead: limits the calls that run at a time, and decides which waiter is next.
//!
//! It is pure, without a lock or a clock. Its owner passes the number of free slots: at most
//! [`Bulkhead::vacant`], or fewer if a rate or a gate admits fewer.

use std::sync::Arc;
use std::time::Duration;

use super::wait_queue::{Availability, WaitQueue, Wake};

/// The slots of one topic or destination.
#[derive(Debug)]
pub(super) struct Bulkhead {
    limit: usize,
    in_flight: usize,
    queue: WaitQueue,
}

impl Bulkhead {
    /// A bulkhead without taken slots.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, in_flight: 0, queue: WaitQueue::default() }
    }

    /// Changes the limit. Taken slots stay taken.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The number of slots that are not taken, if the limit is at most `at_most`.
    pub(super) fn vacant(&self, at_most: usize) -> usize {
        self.limit.min(at_most).saturating_sub(self.in_flight)
    }

    /// Takes up to `most` of the free slots, but none that are reserved for other waiters. Returns
    /// how many.
    ///
    /// A waiter that gets slots leaves the queue.
    pub(super) fn take(&mut self, free: usize, waiter: Option<u64>, most: usize) -> usize {
        let taken = self.queue.share(free, waiter).min(most);
        if let Some(waiter) = waiter.filter(|_| taken > 0) {
            self.queue.leave(waiter);
        }
        self.in_flight += taken;
        taken
    }

    pub(super) fn give_back(&mut self, count: usize) {
        self.in_flight -= count;
    }

    /// Whether a free slot is for this waiter. If not, it waits. `retry_in` returns how long it
    /// takes until time alone frees a slot.
    pub(super) fn check(
        &mut self,
        free: usize,
        waiter: u64,
        wake: &Arc<dyn Wake>,
        retry_in: impl FnOnce() -> Option<Duration>,
    ) -> Availability {
        if self.queue.share(free, Some(waiter)) > 0 {
            return Availability::Now;
        }
        self.queue.wait(waiter, wake);
        let retry_in = retry_in();
        if retry_in.is_none() {
            self.queue.drop_timer(waiter);
        }
        Availability::Later(retry_in.filter(|_| self.queue.keeps_timer(waiter)))
    }

    /// Wakes waiters for the free slots, and returns how many. Without a free slot, it only makes
    /// sure that some waiter keeps the timer, if time alone can free one.
    pub(super) fn wake(
        &mut self,
        free: usize,
        retry_in: impl FnOnce() -> Option<Duration>,
    ) -> usize {
        let woken = self.queue.wake(free);
        if free == 0 && retry_in().is_some() {
            self.queue.ensure_timer();
        }
        woken
    }

    /// Wakes the waiter that keeps the timer, because its duration has changed.
    pub(super) fn wake_timer(&mut self) {
        self.queue.wake_timer();
    }

    /// The waiter is not woken until it checks again.
    pub(super) fn suspend(&mut self, waiter: u64) {
        self.queue.leave(waiter);
    }

    /// Whether there are waiters that were not woken.
    pub(super) fn is_awaited(&self) -> bool {
        self.queue.is_awaited()
    }

    /// Whether no slot is taken and there are no waiters.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty()
    }
}

#[cfg(test)]
#[path = "bulkhead_tests.rs"]
mod tests;
