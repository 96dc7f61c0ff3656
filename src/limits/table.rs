//! All destinations, or all topics, and the slots that they share. It is pure: it is used under one
//! lock, and the caller passes the time.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::allowance::Allowance;
use super::entry::LimitEntry;
use super::params::{LimitParams, Limited};
use super::wait_queue::{Availability, Wake};
use crate::model::clock::UnixMillis;

/// With fewer entries than this, none is forgotten.
pub(super) const FEW: usize = 64;

/// The destinations, or topics, in use.
#[derive(Debug)]
pub(super) struct Table<K> {
    pub(super) concurrency: usize,
    pub(super) in_flight: usize,
    pub(super) entries: HashMap<K, LimitEntry>,
    /// The number of the last request for the holds, and of the newest one that was answered.
    pub(super) holds_asked: u64,
    pub(super) holds_known: u64,
    /// The destinations that operators hold, by that answer. Their gates know it.
    pub(super) held: HashSet<K>,
    /// The latest releases by operators, and when each was.
    released: HashMap<K, UnixMillis>,
    /// Destinations that wait only because of the total. Ordered by the number of free slots that
    /// it takes to serve them, then by age.
    pub(super) crowded_out: BTreeSet<(usize, u64, K)>,
    /// The last number that was given to a waiter or to an entry of `crowded_out`.
    numbers: u64,
    /// Idle entries are removed when there are so many entries.
    sweep_at: usize,
}

impl<K: Limited> Table<K> {
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            concurrency,
            in_flight: 0,
            entries: HashMap::new(),
            holds_asked: 0,
            holds_known: 0,
            held: HashSet::new(),
            released: HashMap::new(),
            crowded_out: BTreeSet::new(),
            numbers: 0,
            sweep_at: FEW,
        }
    }

    /// The number of slots that are free in total.
    pub(super) fn free(&self) -> usize {
        // The settings may allow fewer than are taken.
        self.concurrency.saturating_sub(self.in_flight)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn forget_idle(&mut self, now: Instant) {
        self.entries.retain(|_, entry| !entry.is_forgettable(now));
        self.entries.shrink_to(self.entries.len() * 2);
        self.sweep_at = FEW.max(self.entries.len() * 2);
    }

    /// The entry of `key`, which counts as used now.
    pub(super) fn entry(&mut self, key: &K, params: &LimitParams, now: Instant) -> &mut LimitEntry {
        if !self.entries.contains_key(key) && self.entries.len() >= self.sweep_at {
            self.forget_idle(now);
        }
        let fresh = || {
            let allowance = Allowance { concurrency: params.concurrency_per_service, rate: None };
            LimitEntry::new(allowance, K::breaker(params), now)
        };
        let entry = self.entries.entry(key.clone()).or_insert_with(fresh);
        entry.used = now;
        entry
    }

    /// Changes the settings.
    pub(super) fn set_params(&mut self, params: &LimitParams, now: Instant) {
        self.concurrency = params.concurrency;
        for entry in self.entries.values_mut() {
            entry.gate.set_breaker(&params.breaker, now);
            if entry.gate.shorten_retry_after(now + params.retry_after_max) {
                entry.bulkhead.wake_timer();
            }
        }
    }

    /// Whether there is a slot for the waiter. If not, it waits.
    pub(super) fn check(
        &mut self,
        key: &K,
        allowance: Allowance,
        params: &LimitParams,
        (waiter, wake): (u64, &Arc<dyn Wake>),
        now: Instant,
    ) -> Availability {
        let free_in_total = self.free();
        let entry = self.entry(key, params, now);
        entry.allow(allowance, now);
        let free = entry.free(free_in_total, now);
        let availability = entry.bulkhead.check(free, waiter, wake, || entry.gate.retry_in(now));
        if availability != Availability::Now {
            self.serve(key, now);
        }
        availability
    }

    /// Sets which destinations operators hold. `released` are the latest releases; each new one
    /// also ends the wait for `Retry-After`.
    pub(super) fn set_holds(
        &mut self,
        held: HashSet<K>,
        released: HashMap<K, UnixMillis>,
        params: &LimitParams,
        now: Instant,
    ) {
        let known = std::mem::replace(&mut self.released, released);
        let is_new = |(key, at): &(&K, &UnixMillis)| known.get(*key) != Some(*at);
        let lifted: Vec<K> =
            self.released.iter().filter(is_new).map(|(key, _)| key.clone()).collect();
        for key in lifted {
            self.end_retry_after(&key, now);
        }
        let before = std::mem::replace(&mut self.held, held);
        let is_changed: Vec<K> = before.symmetric_difference(&self.held).cloned().collect();
        for key in is_changed {
            let is_held = self.held.contains(&key);
            self.entry(&key, params, now).gate.set_held(is_held);
            self.serve(&key, now);
        }
    }

    /// Sets why the destination has no OAuth token; `None` if it has one.
    pub(super) fn set_no_token(
        &mut self,
        key: &K,
        why: Option<String>,
        params: &LimitParams,
        now: Instant,
    ) {
        if why.is_some() || self.entries.contains_key(key) {
            self.entry(key, params, now).gate.set_no_token(why);
            self.serve(key, now);
        }
    }

    /// Ends the wait for the destination's `Retry-After`.
    pub(super) fn end_retry_after(&mut self, key: &K, now: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.gate.end_retry_after();
            self.serve(key, now);
        }
    }

    /// Wakes waiters of `key` if there are slots. If only the total is in the way, notes
    /// how many free slots it takes. Returns how many it woke.
    pub(super) fn serve(&mut self, key: &K, now: Instant) -> usize {
        let free_in_total = self.free();
        let Some(entry) = self.entries.get_mut(key) else { return 0 };
        let (mut woken, mut needs) = (0, None);
        if entry.bulkhead.is_awaited() {
            let free = entry.free(free_in_total, now);
            woken = entry.bulkhead.wake(free, || entry.gate.retry_in(now));
            if free == 0 && entry.room(now) > 0 {
                // Only the total is in the way. It takes as many free slots as it has
                // in flight, and at least one.
                needs = Some(entry.bulkhead.in_flight().max(1));
            }
        }
        if entry.crowded_out.map(|(needs, _)| needs) != needs {
            if let Some((needs, since)) = entry.crowded_out.take() {
                self.crowded_out.remove(&(needs, since, key.clone()));
            }
            if let Some(needs) = needs {
                self.numbers += 1;
                entry.crowded_out = Some((needs, self.numbers));
                self.crowded_out.insert((needs, self.numbers, key.clone()));
            }
        }
        woken
    }

    /// Wakes all waiters for which there is a slot.
    pub(super) fn serve_all(&mut self, now: Instant) {
        let keys: Vec<K> = self.entries.keys().cloned().collect();
        for key in keys {
            self.serve(&key, now);
        }
        self.serve_crowded_out(now);
    }

    /// Wakes waiters of destinations that waited only because of the total, as far as there are
    /// free slots. When they leave, the next ones are woken.
    pub(super) fn serve_crowded_out(&mut self, now: Instant) {
        let mut free = self.free();
        while free > 0 && self.crowded_out.first().is_some_and(|(needs, ..)| *needs <= self.free())
        {
            let Some((.., key)) = self.crowded_out.pop_first() else { return };
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.crowded_out = None;
                free = free.saturating_sub(self.serve(&key, now));
            }
        }
    }
}
