//! A position in the wait queue of a destination.

use std::sync::Arc;

use super::permit::Permits;
use super::shared::Shared;
use crate::limits::{Allowance, Availability, Wake};
use crate::model::task::Destination;

/// A waiter for permits of one destination. Dropping it leaves the wait queue.
///
/// Once woken, it must check again, reserve, suspend itself or be dropped before it waits for
/// anything else. Until then, the slots that it was woken for are kept from the waiters behind it.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<Shared>,
    destination: Destination,
    number: u64,
    wake: Arc<dyn Wake>,
}

impl Waiter {
    pub(super) fn new(
        shared: &Arc<Shared>,
        destination: &Destination,
        wake: Arc<dyn Wake>,
    ) -> Self {
        let number = shared.table().next_number();
        Self { shared: Arc::clone(shared), destination: destination.clone(), number, wake }
    }

    /// Whether there is a permit for this waiter. If not, it waits, and is notified in its turn.
    pub fn check(&self, allowance: Allowance) -> Availability {
        self.shared.check(&self.destination, allowance, (self.number, &self.wake))
    }

    /// Takes up to `most` permits, with those that it was woken for.
    pub fn reserve(&self, allowance: Allowance, most: usize) -> Permits {
        let taken = self.shared.take(Some(self.number), &self.destination, allowance, most);
        Permits::new(&self.shared, &self.destination, taken)
    }

    /// Keeps its position, but is not woken until it checks again.
    pub fn suspend(&self) {
        self.shared.suspend(&self.destination, self.number);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.suspend();
    }
}
