//! The deadline of a request's answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The deadline of a request's answer. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + limit)))
    }

    /// Extends the deadline by the `wait` that the caller asked for.
    pub(crate) fn put_off(&self, wait: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += wait;
    }

    pub(crate) fn moment(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
