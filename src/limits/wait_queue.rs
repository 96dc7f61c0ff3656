//! The line before one destination: who waits for its slots, and who is called.
//!
//! ```text
//! stand ─▶ waiting ─── call ──▶ called ─▶ leaves, with a slot or without
//!             ▲                                     │
//!             └──────── stands in its old place ◀───┘
//! ```
//!
//! # Invariants
//!
//! - One is called for every few slots that are to be had ([`SHARE`]), in the order in which they came: slots that come free cost a wake-up at most, however
//!   many wait. What else comes free until he is awake is his as well, so that where a thousand wait he claims some tasks at a time and not one.
//! - A slot for which one was called is his, or theirs who were called with him, to equal shares: nobody who comes by takes it.
//! - Who was called leaves, or stands again, before he waits for anything else; whoever keeps the line then calls the next. So no slot is
//!   forgotten because the one who was called had no use for it, and none waits for him.
//! - Where time alone will free something (a token, the end of a hold), one of those who wait keeps watch for all: he sets a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

/// How many slots one is called for.
const SHARE: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Line {
    /// By the number that each drew as he came.
    waiting: BTreeMap<u64, Arc<Notify>>,
    called: BTreeSet<u64>,
    /// One of those who wait.
    watch: Option<u64>,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.called.is_empty()
    }

    /// Whether anybody waits who has not been called.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many of the slots that are to be had are for the one of that number; or for one who comes by.
    pub(super) fn share(&self, slots: usize, number: Option<u64>) -> usize {
        match number {
            Some(number) if self.called.contains(&number) => slots.div_ceil(self.called.len()),
            // Nobody else would be called for the rest.
            _ if self.waiting.is_empty() => slots.saturating_sub(self.called.len()),
            _ => slots.saturating_sub(self.called.len() * SHARE),
        }
    }

    /// Waits, in the place of that number.
    pub(super) fn stand(&mut self, number: u64, sleeper: &Arc<Notify>) {
        self.called.remove(&number);
        self.waiting.insert(number, Arc::clone(sleeper));
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.called.remove(&number);
        self.waiting.remove(&number);
        self.watch.take_if(|watch| *watch == number);
    }

    /// Calls the first ones, until so many are called and have not left as it takes for the slots. Answers how many that were.
    pub(super) fn call(&mut self, slots: usize) -> usize {
        let before = self.called.len();
        while self.called.len() * SHARE < slots
            && let Some((number, sleeper)) = self.waiting.pop_first()
        {
            self.watch.take_if(|watch| *watch == number);
            self.called.insert(number);
            sleeper.notify_one();
        }
        self.called.len() - before
    }

    /// Whether the one of that number keeps the watch: whoever asks first does.
    pub(super) fn watches(&mut self, number: u64) -> bool {
        *self.watch.get_or_insert(number) == number
    }

    /// The one of that number need not watch.
    pub(super) fn no_watch(&mut self, number: u64) {
        self.watch.take_if(|watch| *watch == number);
    }

    /// Sees to it that somebody watches, or will once he is awake.
    pub(super) fn keep_watch(&mut self) {
        if self.watch.is_none() {
            self.call(1);
        }
    }

    /// Calls the one who watches, for what he waits for has become another.
    pub(super) fn call_watch(&mut self) {
        if let Some(number) = self.watch.take()
            && let Some(sleeper) = self.waiting.remove(&number)
        {
            self.called.insert(number);
            sleeper.notify_one();
        }
    }
}
