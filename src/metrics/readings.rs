//! Figures that each scrape reads from another part of the program.

use std::fmt;
use std::sync::{Arc, OnceLock};

type ReadNow<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Figures that each scrape reads from another part of the program. That part is built after the
/// metrics, so it sets the function that reads its figures later.
pub struct Readings<T>(Arc<OnceLock<ReadNow<T>>>);

impl<T> Readings<T> {
    /// Sets the function that reads the figures. It must not wait. Later calls have no effect.
    pub fn read_by(&self, read: impl Fn() -> T + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(read));
    }

    /// The figures. `None` before [`Self::read_by`].
    pub fn now(&self) -> Option<T> {
        self.0.get().map(|read| read())
    }
}

impl<T> Default for Readings<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Readings<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Readings<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}
