//! The progress of a bench: written by the scenario, read by the progress bar.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Cheap to clone; clones share the progress.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    step: Mutex<(u64, &'static str, u64)>,
    done: AtomicU64,
}

/// A step of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// A unique number.
    pub number: u64,
    /// What is counted.
    pub what: &'static str,
    /// The total, or 0 if unknown.
    pub total: u64,
}

impl Progress {
    /// Begins the next step.
    pub(crate) fn step(&self, what: &'static str, total: u64) {
        let mut step = self.0.step.lock().unwrap_or_else(PoisonError::into_inner);
        *step = (step.0 + 1, what, total);
        self.0.done.store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done: u64) {
        self.0.done.fetch_add(done, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, done: u64) {
        self.0.done.store(done, Ordering::Relaxed);
    }

    /// The current step, and how much of it is done.
    pub fn now(&self) -> (Step, u64) {
        let (number, what, total) = *self.0.step.lock().unwrap_or_else(PoisonError::into_inner);
        (Step { number, what, total }, self.0.done.load(Ordering::Relaxed))
    }
}
