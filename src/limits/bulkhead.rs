//! A bulkhead: how many calls run at a time, and which waiter is next for a free slot.
//!
//! Pure: it has no lock and no clock. Its owner says how many slots are free: at most
//! [`Bulkhead::vacant`], and fewer if a rate or a gate admits fewer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::wait_queue::{Availability, WaitQueue};

/// The slots of one topic or destination.
#[derive(Debug)]
pub(super) struct Bulkhead {
    limit: usize,
    in_flight: usize,
    queue: WaitQueue,
}

impl Bulkhead {
    /// One whose slots are all vacant.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, in_flight: 0, queue: WaitQueue::default() }
    }

    /// Changes the limit. Slots that are taken stay so.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Slots that are not taken, of at most so many.
    pub(super) fn vacant(&self, at_most: usize) -> usize {
        self.limit.min(at_most).saturating_sub(self.in_flight)
    }

    /// Takes up to `most` of the free slots. Those that are reserved for others stay.
    ///
    /// A waiter that gets something leaves the queue.
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

    /// Whether one of the free slots is for the waiter; if not, it waits. `retry_in` is how long
    /// until time alone frees one.
    pub(super) fn check(
        &mut self,
        free: usize,
        waiter: u64,
        wake: &Arc<Notify>,
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

    /// Wakes the waiters for which there are free slots. Returns how many it woke. Without a free
    /// slot it only ensures that somebody keeps the timer, if time alone can free one.
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

    /// Wakes the waiter that keeps the timer: its duration has changed.
    pub(super) fn wake_timer(&mut self) {
        self.queue.wake_timer();
    }

    /// The waiter is not woken until it checks again.
    pub(super) fn suspend(&mut self, waiter: u64) {
        self.queue.leave(waiter);
    }

    /// Whether anybody waits that has not been woken.
    pub(super) fn is_awaited(&self) -> bool {
        self.queue.is_awaited()
    }

    /// Whether no slot is taken and nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty()
    }
}

#[cfg(test)]
#[path = "bulkhead_tests.rs"]
mod tests;
