//! A position in the wait queue of a destination or topic.

use std::sync::Arc;

use super::params::Limited;
use super::permit::Permits;
use super::shared::Shared;
use super::{Allowance, Availability, Wake};

/// A waiter for permits of one destination or topic. Dropping it leaves the wait queue.
///
/// Once woken, it must check again, reserve, suspend itself or be dropped before it waits for
/// anything else. Until then, the slots that it was woken for are kept from the waiters behind it.
#[derive(Debug)]
pub struct Waiter<K: Limited> {
    shared: Arc<Shared<K>>,
    key: K,
    number: u64,
    wake: Arc<dyn Wake>,
}

impl<K: Limited> Waiter<K> {
    pub(super) fn new(shared: &Arc<Shared<K>>, key: &K, wake: Arc<dyn Wake>) -> Self {
        let number = shared.table().next_number();
        Self { shared: Arc::clone(shared), key: key.clone(), number, wake }
    }

    /// Whether there is a permit for this waiter. If not, it waits, and is notified in its turn.
    pub fn check(&self, allowance: Allowance) -> Availability {
        self.shared.check(&self.key, allowance, (self.number, &self.wake))
    }

    /// Takes up to `most` permits, with those that it was woken for.
    pub fn reserve(&self, allowance: Allowance, most: usize) -> Permits<K> {
        let taken = self.shared.take(Some(self.number), &self.key, allowance, most);
        Permits::new(&self.shared, &self.key, taken)
    }

    /// Keeps its position, but is not woken until it checks again.
    pub fn suspend(&self) {
        self.shared.suspend(&self.key, self.number);
    }
}

impl<K: Limited> Drop for Waiter<K> {
    fn drop(&mut self) {
        self.suspend();
    }
}
