//! The lock around the table, and the steps under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::time::Instant;

use super::entry::LimitEntry;
use super::observer::Observer;
use super::params::{LimitParams, Limited};
use super::table::Table;
use super::{Allowance, Availability, Wake};
use crate::model::breaker::{State, Ticket};

/// The settings, and the table behind its lock.
#[derive(Debug)]
pub(super) struct Shared<K> {
    params: RwLock<Arc<LimitParams>>,
    table: Mutex<Table<K>>,
    pub(super) observer: Observer<K>,
}

impl<K: Limited> Shared<K> {
    pub(super) fn new(params: LimitParams) -> Self {
        let table = Table::new(params.concurrency);
        Self {
            params: RwLock::new(Arc::new(params)),
            table: Mutex::new(table),
            observer: Observer::new(),
        }
    }

    pub(super) fn params(&self) -> Arc<LimitParams> {
        self.params.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the settings. Call it under the table's lock.
    pub(super) fn set_params(&self, params: LimitParams) {
        *self.params.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(params);
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table<K>> {
        // Only a broken invariant panics under the lock. The counts are still the best there is.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `most` slots, perhaps none. Slots that are reserved for other waiters stay free.
    pub(super) fn take(
        &self,
        waiter: Option<u64>,
        key: &K,
        allowance: Allowance,
        most: usize,
    ) -> (usize, Option<Ticket>) {
        let (now, params) = (Instant::now(), self.params());
        let mut table = self.table();
        let free_in_total = table.free();
        let entry = table.entry(key, &params, now);
        entry.allow(params.resolved(allowance), now);
        let free = entry.free(free_in_total, now);
        let (taken, ticket) = entry.take(free, waiter, most, now);
        self.note_change(key, entry, now);
        entry.note_block(free_in_total - taken, now);
        table.in_flight += taken;
        // The breaker may have become half-open just now, and may admit more than these.
        table.serve(key, now);
        (taken, ticket)
    }

    /// Whether there is a slot for the waiter. If not, it waits.
    pub(super) fn check(
        &self,
        key: &K,
        allowance: Allowance,
        waiter: (u64, &Arc<dyn Wake>),
    ) -> Availability {
        let params = self.params();
        self.table().check(key, params.resolved(allowance), &params, waiter, Instant::now())
    }

    /// The waiter is not woken until it checks again.
    pub(super) fn suspend(&self, key: &K, waiter: u64) {
        let now = Instant::now();
        let mut table = self.table();
        if let Some(entry) = table.entries.get_mut(key) {
            entry.bulkhead.suspend(waiter);
            table.serve(key, now);
            table.serve_crowded_out(now);
        }
    }

    /// Lets an open breaker become half-open now. Returns the state of the breaker.
    pub(super) fn probe(&self, key: &K) -> State {
        let now = Instant::now();
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(key) else { return State::Closed };
        entry.gate.probe(now);
        let state = entry.gate.breaker(now);
        self.note_change(key, entry, now);
        table.serve(key, now);
        state
    }

    /// Notes a change of the breaker of `key`, if there was one.
    pub(super) fn note_change(&self, key: &K, entry: &mut LimitEntry, now: Instant) {
        if entry.gate.log_change(key, now) {
            let to = entry.gate.breaker(now);
            entry.bulkhead.wake_timer();
            entry.recent.changed(to, now);
            self.observer.tell(key, to);
        }
    }

    /// Changes the entry of `key`, which has taken slots, then wakes waiters that can be served.
    /// `change` returns how many slots it freed.
    pub(super) fn update(&self, key: &K, change: impl FnOnce(&mut LimitEntry, Instant) -> usize) {
        let now = Instant::now();
        let mut table = self.table();
        let entry =
            table.entries.get_mut(key).expect("an entry with calls in flight is not forgotten");
        let freed = change(entry, now);
        self.note_change(key, entry, now);
        table.in_flight -= freed;
        table.serve(key, now);
        table.serve_crowded_out(now);
    }
}
