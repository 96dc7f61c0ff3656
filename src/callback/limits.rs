//! How many calls may run: in the whole house, and per destination.
//!
//! A destination may take one more slot only if all of these hold:
//!
//! - it has fewer calls in flight than its own limit, and than its slow start's window (`window`);
//! - it is not held by its own `Retry-After`;
//! - the house has a free slot, and at least as many free ones as the destination has in flight. So one black hole
//!   takes half the house at most, two take two thirds, four take four fifths: never all of it.
//!
//! A worker reserves before it claims, so that it claims no task that it could not call at once; a destination
//! without slots is not claimed, and its tasks stay on their schedule. A worker that got less than it wanted leaves a
//! [`Notify`] behind and is woken when there is something to be had.
//!
//! # Invariants
//!
//! - Slots are given back by dropping, whatever way the call ends.
//! - One lock, held for a few steps and never across an await. A release looks only at those who can now be served.
//! - A destination's entry is forgotten once it has been idle for as long as a success lasts: by then
//!   it says nothing that a new one would not.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::window::{RECENT, Window};
use crate::task::Destination;

/// Below so many destinations nobody is forgotten.
const FEW: usize = 64;

/// The settings of the limits.
#[derive(Clone, Debug)]
pub struct LimitParams {
    /// The most calls at a time (`callback.concurrency`), from 1.
    pub concurrency: usize,
    /// The most calls at a time to one destination that names no limit of its own, from 1.
    pub concurrency_per_service: usize,
}

/// The slots of the house. Share it behind an [`Arc`].
#[derive(Debug)]
pub struct Limits {
    params: LimitParams,
    house: Mutex<House>,
}

#[derive(Debug)]
struct House {
    concurrency: usize,
    in_flight: usize,
    doors: HashMap<Destination, Door>,
    /// Destinations that only the house keeps waiting, by the number of free slots that it takes to serve them.
    crowded_out: BTreeSet<(usize, Destination)>,
    /// The number of doors at which idle ones are looked for.
    sweep_at: usize,
}

/// One destination.
#[derive(Debug)]
struct Door {
    in_flight: usize,
    /// As last named by a caller.
    limit: usize,
    window: Window,
    held_until: Option<Instant>,
    used: Instant,
    sleepers: Vec<Arc<Notify>>,
    /// Its key in [`House::crowded_out`].
    needs: Option<usize>,
}

impl Limits {
    /// A house with all its slots free.
    pub fn new(params: LimitParams) -> Self {
        let concurrency = params.concurrency;
        let house =
            House { concurrency, in_flight: 0, doors: HashMap::new(), crowded_out: BTreeSet::new(), sweep_at: FEW };
        Self { params, house: Mutex::new(house) }
    }

    /// Takes up to `most` slots, now; perhaps none. `limit` is the service's own, 0 for the default.
    pub fn reserve(self: &Arc<Self>, destination: &Destination, limit: usize, most: usize) -> Permits {
        let limit = self.limit(limit);
        let now = Instant::now();
        let mut house = self.house();
        let free = house.free();
        let door = house.door(destination, limit, now);
        door.limit = limit;
        let granted = door.grantable(free, now).min(most);
        door.in_flight += granted;
        house.in_flight += granted;
        drop(house);
        Permits { limits: Arc::clone(self), destination: destination.clone(), count: granted }
    }

    /// How many slots [`Limits::reserve`] would grant now.
    pub fn free(&self, destination: &Destination, limit: usize) -> usize {
        let limit = self.limit(limit);
        let now = Instant::now();
        let house = self.house();
        match house.doors.get(destination) {
            Some(door) => door.room(limit, now).min(share(house.free(), door.in_flight)),
            None => Window::new().size(now).min(limit).min(share(house.free(), 0)),
        }
    }

    /// Notifies `sleeper` once when a slot for `destination` can be had, at once if that is so already. The same sleeper is
    /// remembered once per destination, until it is notified. The end of a hold notifies nobody: see [`Limits::held_for`].
    pub fn wake_when_free(&self, destination: &Destination, sleeper: Arc<Notify>) {
        let now = Instant::now();
        let mut house = self.house();
        let door = house.door(destination, self.params.concurrency_per_service, now);
        if !door.sleepers.iter().any(|known| Arc::ptr_eq(known, &sleeper)) {
            door.sleepers.push(sleeper);
        }
        house.serve(destination, now);
    }

    /// Grants nothing to `destination` for so long; a longer hold stays. For a `Retry-After` that speaks for all of it.
    pub fn hold(&self, destination: &Destination, wait: Duration) {
        let now = Instant::now();
        let mut house = self.house();
        let door = house.door(destination, self.params.concurrency_per_service, now);
        door.held_until = door.held_until.max(Some(now + wait));
        // Whoever waits for a slot has to wait for the end of the hold instead.
        door.wake();
    }

    /// How much longer `destination` is held, if it is.
    pub fn held_for(&self, destination: &Destination) -> Option<Duration> {
        let until = self.house().doors.get(destination)?.held_until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// How many slots are taken in the whole house.
    pub fn in_flight(&self) -> usize {
        self.house().in_flight
    }

    fn limit(&self, own: usize) -> usize {
        if own == 0 { self.params.concurrency_per_service } else { own }
    }

    fn release(&self, destination: &Destination, count: usize, ending: Option<Ending>) {
        let now = Instant::now();
        let mut house = self.house();
        house.in_flight -= count;
        let door = house.doors.get_mut(destination).expect("a destination with calls in flight is not forgotten");
        door.in_flight -= count;
        door.used = now;
        match ending {
            Some(Ending::Succeeded) => door.window.succeeded(now, door.limit),
            Some(Ending::Failed) => door.window.failed(),
            None => {}
        }
        house.serve(destination, now);
        house.serve_crowded_out();
    }

    fn house(&self) -> MutexGuard<'_, House> {
        // Nothing under the lock panics half-way but by a broken invariant; the counts are then still the best there is.
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl House {
    fn free(&self) -> usize {
        self.concurrency - self.in_flight
    }

    /// The destination's door, in use from now.
    fn door(&mut self, destination: &Destination, limit: usize, now: Instant) -> &mut Door {
        if !self.doors.contains_key(destination) && self.doors.len() >= self.sweep_at {
            self.doors.retain(|_, door| !door.is_forgettable(now));
            self.sweep_at = FEW.max(self.doors.len() * 2);
        }
        let door = self.doors.entry(destination.clone()).or_insert_with(|| Door::new(limit, now));
        door.used = now;
        door
    }

    /// Wakes the destination's sleepers if it can have a slot; else notes what would have to change.
    fn serve(&mut self, destination: &Destination, now: Instant) {
        let free = self.free();
        let Some(door) = self.doors.get_mut(destination) else { return };
        if door.sleepers.is_empty() {
            return;
        }
        let needs = if door.grantable(free, now) > 0 {
            door.wake();
            None
        } else {
            // Only the house is in the way: it takes as many free slots as there are in flight, and at least one.
            (door.room(door.limit, now) > 0).then_some(door.in_flight.max(1))
        };
        if let Some(old) = std::mem::replace(&mut door.needs, needs) {
            self.crowded_out.remove(&(old, destination.clone()));
        }
        if let Some(needs) = needs {
            self.crowded_out.insert((needs, destination.clone()));
        }
    }

    /// Wakes everyone whom the house kept waiting and has room for now.
    fn serve_crowded_out(&mut self) {
        while self.crowded_out.first().is_some_and(|(needs, _)| *needs <= self.free()) {
            let Some((_, destination)) = self.crowded_out.pop_first() else { return };
            if let Some(door) = self.doors.get_mut(&destination) {
                door.needs = None;
                door.wake();
            }
        }
    }
}

impl Door {
    fn new(limit: usize, now: Instant) -> Self {
        let window = Window::new();
        Self { in_flight: 0, limit, window, held_until: None, used: now, sleepers: Vec::new(), needs: None }
    }

    /// How many more calls the destination itself would bear.
    fn room(&self, limit: usize, now: Instant) -> usize {
        if self.is_held(now) { 0 } else { self.window.size(now).min(limit).saturating_sub(self.in_flight) }
    }

    fn grantable(&self, free: usize, now: Instant) -> usize {
        self.room(self.limit, now).min(share(free, self.in_flight))
    }

    fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    fn is_forgettable(&self, now: Instant) -> bool {
        let is_idle = self.in_flight == 0 && self.sleepers.is_empty() && !self.is_held(now);
        is_idle && now.duration_since(self.used) >= RECENT
    }

    fn wake(&mut self) {
        self.sleepers.drain(..).for_each(|sleeper| sleeper.notify_one());
    }
}

/// How many of `free` slots may go, one after another, to someone who has `own`: before each there must be at least
/// one free, and as many free as are its own by then.
fn share(free: usize, own: usize) -> usize {
    if free == 0 || free < own { 0 } else { (free - own) / 2 + 1 }
}

/// Slots taken for one destination and not yet used. Dropping gives them back.
#[derive(Debug)]
pub struct Permits {
    limits: Arc<Limits>,
    destination: Destination,
    count: usize,
}

impl Permits {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One of them, to be held during one call.
    pub fn split_one(&mut self) -> Option<Permit> {
        self.count = self.count.checked_sub(1)?;
        Some(Permit { limits: Arc::clone(&self.limits), destination: self.destination.clone(), ending: None })
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if self.count > 0 {
            self.limits.release(&self.destination, self.count, None);
        }
    }
}

/// The slot of one call. Dropping gives it back.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    destination: Destination,
    ending: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Succeeded,
    Failed,
}

impl Permit {
    /// The call showed that the destination is well. Counts when the permit is dropped.
    pub fn succeeded(&mut self) {
        self.ending = Some(Ending::Succeeded);
    }

    /// The call showed that the destination is in trouble. Counts when the permit is dropped.
    pub fn failed(&mut self) {
        self.ending = Some(Ending::Failed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.release(&self.destination, 1, self.ending);
    }
}

#[cfg(test)]
mod tests;
