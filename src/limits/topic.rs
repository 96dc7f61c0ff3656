//! How many calls of one topic may run at a time, and begin in a time.
//!
//! A topic has a bulkhead and a rate, and nothing else. Whether a destination is well is for the
//! destination's gate to say; no outcome of a call reaches the limits of its topic.
//!
//! # Invariants
//!
//! - Slots are given back by dropping, and the tokens of calls that did not begin.
//! - One lock per topic, held for a few steps and never across an await.
//! - Where only time frees something, one of the waiters sets a timer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::allowance::Allowance;
use super::bulkhead::Bulkhead;
use super::rate_limit::RateLimit;
use super::wait_queue::Availability;
use crate::model::task::Topic;

/// How long nobody must have asked for a topic's slots before its bulkhead is forgotten.
const IDLE: Duration = Duration::from_secs(60);

/// The bulkheads of all topics that have limits.
#[derive(Debug, Default)]
pub struct TopicLimits(Mutex<HashMap<Topic, Arc<TopicBulkhead>>>);

impl TopicLimits {
    /// The topic's bulkhead.
    pub fn of(&self, topic: &Topic) -> Arc<TopicBulkhead> {
        let mut topics = self.topics();
        if let Some(known) = topics.get(topic) {
            return Arc::clone(known);
        }
        Arc::clone(topics.entry(topic.clone()).or_default())
    }

    /// Forgets the bulkheads that say nothing any more. To be called now and then.
    pub fn forget_idle(&self) {
        let now = Instant::now();
        // Who has a bulkhead may be about to take a slot of it. It came by it under this lock.
        self.topics().retain(|_, bulkhead| {
            Arc::strong_count(bulkhead) > 1 || !bulkhead.state().is_idle(now)
        });
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, Arc<TopicBulkhead>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots of one topic. Share it behind an [`Arc`].
#[derive(Debug)]
pub struct TopicBulkhead(Mutex<State>);

#[derive(Debug)]
struct State {
    bulkhead: Bulkhead,
    rate: RateLimit,
    /// When it was last used.
    used: Instant,
    /// The number of the last waiter.
    waiters: u64,
}

impl Default for TopicBulkhead {
    fn default() -> Self {
        let now = Instant::now();
        let (bulkhead, rate) = (Bulkhead::new(usize::MAX), RateLimit::new(None, now));
        Self(Mutex::new(State { bulkhead, rate, used: now, waiters: 0 }))
    }
}

impl TopicBulkhead {
    /// Takes up to `most` slots, now; perhaps none. Slots that are reserved for woken waiters stay.
    pub fn reserve(self: &Arc<Self>, allowance: Allowance, most: usize) -> TopicPermits {
        self.take(None, allowance, most)
    }

    /// A position at the end of the wait queue. It does not wait before its first
    /// [`TopicWaiter::check`].
    pub fn enqueue(self: &Arc<Self>, wake: Arc<Notify>) -> TopicWaiter {
        let mut state = self.state();
        state.waiters += 1;
        TopicWaiter { bulkhead: Arc::clone(self), number: state.waiters, wake }
    }

    fn take(
        self: &Arc<Self>,
        waiter: Option<u64>,
        allowance: Allowance,
        most: usize,
    ) -> TopicPermits {
        let now = Instant::now();
        let mut state = self.state();
        state.allow(allowance, now);
        let free = state.free(now);
        let count = state.bulkhead.take(free, waiter, most);
        state.rate.take(count, now);
        state.serve(now);
        TopicPermits { bulkhead: Arc::clone(self), count }
    }

    /// Gives slots back, and the tokens of `unused` calls that did not begin.
    fn give_back(&self, count: usize, unused: usize) {
        let now = Instant::now();
        let mut state = self.state();
        state.bulkhead.give_back(count);
        state.rate.give_back(unused, now);
        state.used = now;
        state.serve(now);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half-way but by a broken invariant; the counts are then
        // still the best there is.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn allow(&mut self, allowance: Allowance, now: Instant) {
        self.bulkhead.set_limit(allowance.concurrency);
        self.rate.set(allowance.rate, now);
        self.used = now;
    }

    fn free(&self, now: Instant) -> usize {
        self.bulkhead.vacant(usize::MAX).min(self.rate.available(now))
    }

    /// Wakes waiters that can have a slot.
    fn serve(&mut self, now: Instant) {
        if self.bulkhead.is_awaited() {
            let free = self.free(now);
            self.bulkhead.wake(free, || self.rate.retry_in(now));
        }
    }

    /// Whether a new one would say the same.
    fn is_idle(&self, now: Instant) -> bool {
        self.bulkhead.is_idle() && self.rate.is_full(now) && now.duration_since(self.used) >= IDLE
    }
}

/// Slots taken for one topic and not yet used. Dropping gives them back.
#[derive(Debug)]
pub struct TopicPermits {
    bulkhead: Arc<TopicBulkhead>,
    count: usize,
}

impl TopicPermits {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One of them, to be held during one call.
    pub fn split_one(&mut self) -> Option<TopicPermit> {
        self.count = self.count.checked_sub(1)?;
        Some(TopicPermit { bulkhead: Arc::clone(&self.bulkhead), has_begun: false })
    }
}

impl Drop for TopicPermits {
    fn drop(&mut self) {
        if self.count > 0 {
            self.bulkhead.give_back(self.count, self.count);
        }
    }
}

/// The slot of one call. Dropping gives it back; if no call began, its token as well.
#[derive(Debug)]
pub struct TopicPermit {
    bulkhead: Arc<TopicBulkhead>,
    has_begun: bool,
}

impl TopicPermit {
    /// The call begins: its token is spent.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }
}

impl Drop for TopicPermit {
    fn drop(&mut self) {
        self.bulkhead.give_back(1, usize::from(!self.has_begun));
    }
}

/// A waiter for slots of one topic; dropping leaves the wait queue.
///
/// Once woken, it must check again, reserve, suspend itself or be dropped before it waits for
/// anything else: until then the slots that it was woken for are kept from those behind it.
#[derive(Debug)]
pub struct TopicWaiter {
    bulkhead: Arc<TopicBulkhead>,
    number: u64,
    wake: Arc<Notify>,
}

impl TopicWaiter {
    /// Whether there is a slot for it; if not, it waits, and is notified in its turn.
    pub fn check(&self, allowance: Allowance) -> Availability {
        let now = Instant::now();
        let mut state = self.bulkhead.state();
        state.allow(allowance, now);
        let free = state.free(now);
        let State { bulkhead, rate, .. } = &mut *state;
        let availability = bulkhead.check(free, self.number, &self.wake, || rate.retry_in(now));
        if availability != Availability::Now {
            state.serve(now);
        }
        availability
    }

    /// Takes up to `most` slots, those that it was woken for among them.
    pub fn reserve(&self, allowance: Allowance, most: usize) -> TopicPermits {
        self.bulkhead.take(Some(self.number), allowance, most)
    }

    /// Is not woken until it checks again; its position is kept.
    pub fn suspend(&self) {
        let now = Instant::now();
        let mut state = self.bulkhead.state();
        state.bulkhead.suspend(self.number);
        state.serve(now);
    }
}

impl Drop for TopicWaiter {
    fn drop(&mut self) {
        self.suspend();
    }
}

#[cfg(test)]
#[path = "topic_tests.rs"]
mod tests;
