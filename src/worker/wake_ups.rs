//! Wakes a lane when it is its turn in the wait queue of a destination, and tells it which one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limits::Wake;
use crate::model::task::Destination;

/// The wake-ups of one lane.
#[derive(Debug)]
pub(super) struct WakeUps {
    lane: Arc<Notify>,
    state: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// Whether the lane waits for permits. While it does not, it takes no turn: nobody should wait
    /// for it until it has claimed.
    listens: bool,
    /// The destinations whose turns it was.
    woken: BTreeSet<Destination>,
}

impl WakeUps {
    /// `lane` is notified.
    pub(super) fn new(lane: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { lane, state: Mutex::default() })
    }

    /// Sets whether the lane waits for permits. Returns the destinations whose turns it has been.
    pub(super) fn listen(&self, listens: bool) -> BTreeSet<Destination> {
        let mut state = self.state();
        state.listens = listens;
        std::mem::take(&mut state.woken)
    }

    /// Wakes the lane for one destination.
    pub(super) fn of(self: &Arc<Self>, destination: &Destination) -> Arc<WakeUp> {
        Arc::new(WakeUp { lane: Arc::clone(self), destination: destination.clone() })
    }

    fn state(&self) -> MutexGuard<'_, Turns> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`WakeUps::of`].
#[derive(Debug)]
pub(super) struct WakeUp {
    lane: Arc<WakeUps>,
    destination: Destination,
}

impl Wake for WakeUp {
    fn wake(&self) -> bool {
        let mut state = self.lane.state();
        state.woken.insert(self.destination.clone());
        if state.listens {
            self.lane.lane.notify_one();
        }
        state.listens
    }
}
