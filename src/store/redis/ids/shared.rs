//! The ids of this instance, for the adds of all servers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::stock::Stock;

/// The ids of this instance.
#[derive(Debug)]
pub(crate) struct SharedIds(Mutex<Stock>);

impl SharedIds {
    /// `outage` is how long the ids of a draw may be used without the counter.
    pub(crate) fn new(outage: Duration) -> Self {
        Self(Mutex::new(Stock::new(outage)))
    }

    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many ids tasks may get without the counter.
    pub(crate) fn reserve_left(&self) -> u64 {
        self.stock().reserve_left()
    }

    /// Drops all ids, because the counter was raised past other ids.
    pub(crate) fn drop_all(&self) {
        self.stock().empty();
    }

    #[cfg(test)]
    pub(crate) fn is_drawing(&self) -> bool {
        self.stock().drawing().is_some()
    }
}
