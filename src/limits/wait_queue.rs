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
//! - One waiter is woken for every [`SHARE`] free slots, in the order of arrival. However many
//!   wait, a freed slot costs one wake-up at most. Slots that are freed before the woken waiter
//!   runs are also reserved for it, so that it claims several tasks at a time.
//! - A freed slot is reserved for the woken waiters, in equal shares. Newcomers cannot take it.
//! - A woken waiter leaves, or waits again, before it waits for anything else. The owner of the
//!   queue then wakes the next one. So no freed slot is forgotten, and none is kept for long.
//! - Where time alone frees something (a token, the end of a hold), one waiter sets a timer for
//!   all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// How many free slots one waiter is woken for.
const SHARE: usize = 16;

/// What a waiter may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// There is a slot for it.
    Now,
    /// There is none, and it waits. It is notified in its turn. If there is a duration, it checks
    /// again after it: time alone may have freed something, and it keeps the timer for all.
    Later(Option<Duration>),
}

/// The waiters for one set of slots.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// By number, in the order of arrival.
    waiting: BTreeMap<u64, Arc<Notify>>,
    woken: BTreeSet<u64>,
    /// The one of the waiting that keeps the timer.
    timer: Option<u64>,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.woken.is_empty()
    }

    /// Whether anybody waits that has not been woken.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many of the free slots are for this waiter, or for a newcomer.
    pub(super) fn share(&self, free: usize, waiter: Option<u64>) -> usize {
        match waiter {
            Some(waiter) if self.woken.contains(&waiter) => free.div_ceil(self.woken.len()),
            // Nobody else would be woken for the rest.
            _ if self.waiting.is_empty() => free.saturating_sub(self.woken.len()),
            _ => free.saturating_sub(self.woken.len() * SHARE),
        }
    }

    /// The waiter waits, in the position of its number.
    pub(super) fn wait(&mut self, waiter: u64, wake: &Arc<Notify>) {
        self.woken.remove(&waiter);
        self.waiting.insert(waiter, Arc::clone(wake));
    }

    pub(super) fn leave(&mut self, waiter: u64) {
        self.woken.remove(&waiter);
        self.waiting.remove(&waiter);
        self.drop_timer(waiter);
    }

    /// Wakes the first ones, until as many are awake as the free slots are for. Returns how many
    /// it woke.
    pub(super) fn wake(&mut self, free: usize) -> usize {
        let before = self.woken.len();
        while self.woken.len() * SHARE < free
            && let Some((waiter, wake)) = self.waiting.pop_first()
        {
            self.drop_timer(waiter);
            self.woken.insert(waiter);
            wake.notify_one();
        }
        self.woken.len() - before
    }

    /// Whether this waiter keeps the timer: the first one that asks does.
    pub(super) fn keeps_timer(&mut self, waiter: u64) -> bool {
        *self.timer.get_or_insert(waiter) == waiter
    }

    /// The waiter keeps the timer no longer.
    pub(super) fn drop_timer(&mut self, waiter: u64) {
        self.timer.take_if(|keeper| *keeper == waiter);
    }

    /// Ensures that somebody keeps the timer, or will once it is awake.
    pub(super) fn ensure_timer(&mut self) {
        if self.timer.is_none() {
            self.wake(1);
        }
    }

    /// Wakes the one that keeps the timer: its duration has changed.
    pub(super) fn wake_timer(&mut self) {
        if let Some(waiter) = self.timer.take()
            && let Some(wake) = self.waiting.remove(&waiter)
        {
            self.woken.insert(waiter);
            wake.notify_one();
        }
    }
}
