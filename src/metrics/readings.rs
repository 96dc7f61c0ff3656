//! Figures that a part of the program has, and that are read at each scrape.

use std::fmt;
use std::sync::{Arc, OnceLock};

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Figures that are read at each scrape. The metrics exist before the part that has the figures, so
/// that part is named later.
pub struct Readings<T>(Arc<OnceLock<Read<T>>>);

impl<T> Readings<T> {
    /// Reads the figures by `read` from now on. `read` must not wait. Only the first call counts.
    pub fn read_by(&self, read: impl Fn() -> T + Send + Sync + 'static) {
        // A second part has nothing to add.
        let _ = self.0.set(Box::new(read));
    }

    /// The figures. `None` before [`Self::read_by`].
    pub(super) fn now(&self) -> Option<T> {
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
