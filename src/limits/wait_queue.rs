//! A fair wait queue: first come, first woken.
//!
//! ```text
//! wait ─▶ waiting ─── wake ──▶ woken ─▶ leaves, with slots or without
//!            ▲                   │
//!            └─── waits again ───┘  in its old position
//! ```
//!
//! # Invariants
//!
//! - One waiter is woken for every [`SHARE`] free slots, in the order of arrival. Whatever the
//!   number of waiters, a freed slot causes at most one wake-up. Slots that are freed before the
//!   woken waiter runs are reserved for it too, so that it claims several tasks at once.
//! - A freed slot is reserved for the woken waiters, in equal shares. Newcomers cannot take it.
//! - A woken waiter leaves, or waits again, before it waits for anything else. The owner of the
//!   queue then wakes the next one. So each freed slot is used, and soon. A waiter that waits for
//!   something else already declines its turn, and the next one is woken instead.
//! - Where only time frees a slot (a token, the end of a hold), one waiter sets a timer for all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// The number of free slots for which one waiter is woken.
const SHARE: usize = 16;

/// Whether a waiter can have a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// There is a slot for it.
    Now,
    /// There is none, and it waits to be notified in its turn. With a duration, it keeps the timer
    /// for all waiters: it checks again after that, because time alone may have freed a slot.
    Later(Option<Duration>),
}

/// Wakes a waiter.
pub trait Wake: fmt::Debug + Send + Sync {
    /// Tells the waiter that it is its turn. Returns whether it takes the turn. If not, it leaves
    /// the queue, and has to check again.
    fn wake(&self) -> bool;
}

impl Wake for Notify {
    fn wake(&self) -> bool {
        self.notify_one();
        true
    }
}

/// The waiters for the slots of one bulkhead.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// By number, which is the order of arrival.
    waiting: BTreeMap<u64, Arc<dyn Wake>>,
    woken: BTreeSet<u64>,
    /// The waiter that keeps the timer.
    timer: Option<u64>,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.woken.is_empty()
    }

    /// Whether there are waiters that were not woken.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many of the free slots this waiter, or a newcomer, can take.
    pub(super) fn share(&self, free: usize, waiter: Option<u64>) -> usize {
        match waiter {
            Some(waiter) if self.woken.contains(&waiter) => free.div_ceil(self.woken.len()),
            // No waiter would be woken for the rest.
            _ if self.waiting.is_empty() => free.saturating_sub(self.woken.len()),
            _ => free.saturating_sub(self.woken.len() * SHARE),
        }
    }

    /// Adds the waiter, in the position of its number.
    pub(super) fn wait(&mut self, waiter: u64, wake: &Arc<dyn Wake>) {
        self.woken.remove(&waiter);
        self.waiting.insert(waiter, Arc::clone(wake));
    }

    pub(super) fn leave(&mut self, waiter: u64) {
        self.woken.remove(&waiter);
        self.waiting.remove(&waiter);
        self.drop_timer(waiter);
    }

    /// Wakes the first waiters, until there is one for every [`SHARE`] free slots. Returns how many
    /// it woke.
    pub(super) fn wake(&mut self, free: usize) -> usize {
        let before = self.woken.len();
        while self.woken.len() * SHARE < free
            && let Some((waiter, wake)) = self.waiting.pop_first()
        {
            self.drop_timer(waiter);
            if wake.wake() {
                self.woken.insert(waiter);
            }
        }
        self.woken.len() - before
    }

    /// Whether this waiter keeps the timer. The first one that asks becomes the keeper.
    pub(super) fn keeps_timer(&mut self, waiter: u64) -> bool {
        *self.timer.get_or_insert(waiter) == waiter
    }

    /// The waiter does not keep the timer any more.
    pub(super) fn drop_timer(&mut self, waiter: u64) {
        self.timer.take_if(|keeper| *keeper == waiter);
    }

    /// Makes sure that a waiter keeps the timer, or is woken and will.
    pub(super) fn ensure_timer(&mut self) {
        if self.timer.is_none() {
            self.wake(1);
        }
    }

    /// Wakes the waiter that keeps the timer, because its duration has changed.
    pub(super) fn wake_timer(&mut self) {
        if let Some(waiter) = self.timer.take()
            && let Some(wake) = self.waiting.remove(&waiter)
        {
            if wake.wake() {
                self.woken.insert(waiter);
            } else {
                self.ensure_timer();
            }
        }
    }
}
