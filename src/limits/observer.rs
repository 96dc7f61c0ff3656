//! Who is told of changes of breakers.

use std::fmt;
use std::sync::OnceLock;

use crate::model::breaker::State;

type Tell<K> = Box<dyn Fn(&K, State) + Send + Sync>;

/// Is told of each change of a destination's breaker, under the table's lock.
pub(super) struct Observer<K>(OnceLock<Tell<K>>);

impl<K> Observer<K> {
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Tells `tell` from now on. Only the first call counts.
    pub(super) fn set(&self, tell: Tell<K>) {
        // A second observer has nothing to add.
        let _ = self.0.set(tell);
    }

    /// The breaker of `key` has changed to this state.
    pub(super) fn tell(&self, key: &K, to: State) {
        if let Some(tell) = self.0.get() {
            tell(key, to);
        }
    }
}

impl<K> fmt::Debug for Observer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
