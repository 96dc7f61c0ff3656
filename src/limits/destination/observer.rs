//! Who is told of changes of breakers.

use std::fmt;
use std::sync::OnceLock;

use crate::model::breaker::State;
use crate::model::task::Destination;

type Tell = Box<dyn Fn(&Destination, State) + Send + Sync>;

/// Is told of each change of a destination's breaker, under the table's lock.
#[derive(Default)]
pub(super) struct Observer(OnceLock<Tell>);

impl Observer {
    /// Tells `tell` from now on. Only the first call counts.
    pub(super) fn set(&self, tell: Tell) {
        // A second observer has nothing to add.
        let _ = self.0.set(tell);
    }

    /// The breaker of the destination has changed to this state.
    pub(super) fn tell(&self, destination: &Destination, to: State) {
        if let Some(tell) = self.0.get() {
            tell(destination, to);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
