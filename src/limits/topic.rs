//! The limits of topics: how many calls run at a time, and how many begin in a time.
//!
//! A topic has a bulkhead and a rate. It has no breaker: outcomes of calls count for the gate of
//! their destination only.
//!
//! # Invariants
//!
//! - Slots, and the tokens of calls that did not begin, are given back by dropping permits.
//! - There is one lock per topic. It is held for a few steps, and never across an await.
//! - Where only time frees a permit, one of the waiters sets a timer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::allowance::Allowance;
use super::bulkhead::Bulkhead;
use super::last_block::LastBlock;
use super::rate_limit::RateLimit;
use super::wait_queue::{Availability, Wake};
use crate::model::culprit::Culprit;
use crate::model::task::Topic;

/// A topic's bulkhead is forgotten after this time without use.
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

    /// Forgets idle bulkheads. The worker calls it once a minute.
    pub fn forget_idle(&self) {
        let now = Instant::now();
        // Another reference may be about to take a slot. References are handed out under this lock.
        self.topics().retain(|_, bulkhead| {
            Arc::strong_count(bulkhead) > 1 || !bulkhead.state().is_idle(now)
        });
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, Arc<TopicBulkhead>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bulkhead and rate of one topic.
#[derive(Debug)]
pub struct TopicBulkhead(Mutex<TopicUse>);

#[derive(Debug)]
struct TopicUse {
    bulkhead: Bulkhead,
    rate: RateLimit,
    last_block: LastBlock,
    /// When it was last used.
    used: Instant,
    /// The number of the newest waiter.
    waiters: u64,
}

impl Default for TopicBulkhead {
    fn default() -> Self {
        let now = Instant::now();
        let (bulkhead, rate) = (Bulkhead::new(usize::MAX), RateLimit::new(None, now));
        let last_block = LastBlock::default();
        Self(Mutex::new(TopicUse { bulkhead, rate, last_block, used: now, waiters: 0 }))
    }
}

impl TopicBulkhead {
    /// Takes up to `most` permits, perhaps none. Slots that are reserved for woken waiters stay
    /// free.
    pub fn reserve(self: &Arc<Self>, allowance: Allowance, most: usize) -> TopicPermits {
        self.take(None, allowance, most)
    }

    /// Returns a new waiter. It joins the wait queue at its first [`TopicWaiter::check`].
    pub fn enqueue(self: &Arc<Self>, wake: Arc<Notify>) -> TopicWaiter {
        let mut state = self.state();
        state.waiters += 1;
        TopicWaiter { bulkhead: Arc::clone(self), number: state.waiters, wake }
    }

    /// Who keeps calls of the topic from beginning: its rate, which an operator sets, or slow calls
    /// in all its slots. `None` if one may begin.
    pub fn blocked_by(&self, allowance: Allowance) -> Option<Culprit> {
        let now = Instant::now();
        let mut state = self.state();
        state.allow(allowance, now);
        state.blocked_by(now)
    }

    /// Who keeps calls of the topic from beginning, or did so in the last second.
    pub fn delayed_by(&self, allowance: Allowance) -> Option<Culprit> {
        let now = Instant::now();
        let mut state = self.state();
        state.allow(allowance, now);
        state.blocked_by(now).or_else(|| state.last_block.lately(now))
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
        let by = state.blocked_by(now);
        state.last_block.note(by, now);
        state.serve(now);
        TopicPermits { bulkhead: Arc::clone(self), count }
    }

    /// Gives slots back, and the tokens of `unused` calls, which did not begin.
    fn give_back(&self, count: usize, unused: usize) {
        let now = Instant::now();
        let mut state = self.state();
        state.bulkhead.give_back(count);
        state.rate.give_back(unused, now);
        state.used = now;
        state.serve(now);
    }

    fn state(&self) -> MutexGuard<'_, TopicUse> {
        // Only a broken invariant panics under the lock. The counts are still the best there is.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicUse {
    fn allow(&mut self, allowance: Allowance, now: Instant) {
        self.bulkhead.set_limit(allowance.concurrency);
        self.rate.set(allowance.rate, now);
        self.used = now;
    }

    fn free(&self, now: Instant) -> usize {
        self.bulkhead.vacant(usize::MAX).min(self.rate.available(now))
    }

    fn blocked_by(&self, now: Instant) -> Option<Culprit> {
        if self.rate.available(now) == 0 {
            return Some(Culprit::Operator);
        }
        (self.free(now) == 0).then_some(Culprit::Receiver)
    }

    /// Wakes waiters if there are permits.
    fn serve(&mut self, now: Instant) {
        if self.bulkhead.is_awaited() {
            let free = self.free(now);
            self.bulkhead.wake(free, || self.rate.retry_in(now));
        }
    }

    /// Whether a new state would admit the same.
    fn is_idle(&self, now: Instant) -> bool {
        self.bulkhead.is_idle() && self.rate.is_full(now) && now.duration_since(self.used) >= IDLE
    }
}

/// Permits of one topic that are not used yet. Dropping gives them back.
#[derive(Debug)]
pub struct TopicPermits {
    bulkhead: Arc<TopicBulkhead>,
    count: usize,
}

impl TopicPermits {
    /// The number of permits.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no permits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Splits off one permit, for one call.
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

/// The permit of one call. Dropping gives the slot back; if the call did not begin, the token as
/// well.
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

/// A waiter for permits of one topic. Dropping it leaves the wait queue.
///
/// Once woken, it must check again, reserve, suspend itself or be dropped before it waits for
/// anything else. Until then, the slots that it was woken for are kept from the waiters behind it.
#[derive(Debug)]
pub struct TopicWaiter {
    bulkhead: Arc<TopicBulkhead>,
    number: u64,
    wake: Arc<dyn Wake>,
}

impl TopicWaiter {
    /// Whether there is a permit for this waiter. If not, it waits, and is notified in its turn.
    pub fn check(&self, allowance: Allowance) -> Availability {
        let now = Instant::now();
        let mut state = self.bulkhead.state();
        state.allow(allowance, now);
        let free = state.free(now);
        let TopicUse { bulkhead, rate, .. } = &mut *state;
        let availability = bulkhead.check(free, self.number, &self.wake, || rate.retry_in(now));
        if availability != Availability::Now {
            state.serve(now);
        }
        availability
    }

    /// Takes up to `most` permits, with those that it was woken for.
    pub fn reserve(&self, allowance: Allowance, most: usize) -> TopicPermits {
        self.bulkhead.take(Some(self.number), allowance, most)
    }

    /// Keeps its position, but is not woken until it checks again.
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
