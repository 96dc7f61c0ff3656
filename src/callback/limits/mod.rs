//! How many calls may run: in the whole house, and per destination.
//!
//! A destination may take one more slot only if all of these hold:
//!
//! - it has fewer calls in flight than its own limit, and than its slow start's window (`window`);
//! - its rate has a token left, its breaker is not open, and half-open has a probe left;
//! - it is not held, neither by its own `Retry-After` nor by hand;
//! - the house has a free slot, and at least as many free ones as the destination has in flight. So one black hole
//!   takes half the house at most, two take two thirds, four take four fifths: never all of it.
//!
//! A worker reserves before it claims, so that it claims no task that it could not call at once; a destination
//! without slots is not claimed, and its tasks stay on their schedule. A worker that got less than it wanted leaves a
//! [`Notify`] behind and is woken when there is something to be had.
//!
//! # Invariants
//!
//! - Slots, tokens and probes are given back by dropping, whatever way the call ends.
//! - One lock, held for a few steps and never across an await. A release looks only at those who can now be served.
//! - What comes back with time alone (a token, the end of a hold or of an open breaker) wakes nobody: whoever waits asks
//!   [`Limits::wait_for`] and sets a timer.
//! - A destination's entry is forgotten once it has been idle for as long as a success lasts: by then
//!   it says nothing that a new one would not.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::breaker;
use crate::rate::Rate;
use crate::task::Destination;

mod door;
mod permit;

use door::Door;
pub use permit::{Permit, Permits};

/// Below so many destinations nobody is forgotten.
const FEW: usize = 64;

/// The settings of the limits.
#[derive(Clone, Debug)]
pub struct LimitParams {
    /// The most calls at a time (`callback.concurrency`), from 1.
    pub concurrency: usize,
    /// The most calls at a time to one destination that names no limit of its own, from 1.
    pub concurrency_per_service: usize,
    /// When a destination is left alone (`callback.breaker`).
    pub breaker: breaker::Params,
}

/// What a service's own section allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// The most calls at a time; 0 for `callback.concurrency_per_service`.
    pub concurrency: usize,
    /// How many calls may begin in a time.
    pub rate: Option<Rate>,
}

/// How a destination stands, for eyes.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its breaker.
    pub breaker: breaker::State,
    /// Its slots that are taken.
    pub in_flight: usize,
    /// How many may be: its own limit, or what its slow start has come to.
    pub window: usize,
    /// How much longer its own `Retry-After` holds it.
    pub held_for: Option<Duration>,
    /// What its last failed call came to, and how long ago.
    pub last_failure: Option<(String, Duration)>,
}

/// The slots of the house. Share it behind an [`Arc`].
#[derive(Debug)]
pub struct Limits {
    params: RwLock<Arc<LimitParams>>,
    house: Mutex<House>,
}

#[derive(Debug)]
struct House {
    concurrency: usize,
    in_flight: usize,
    doors: HashMap<Destination, Door>,
    /// Held by hand.
    on_hold: HashSet<Destination>,
    /// Destinations that only the house keeps waiting, by the number of free slots that it takes to serve them.
    crowded_out: BTreeSet<(usize, Destination)>,
    /// The number of doors at which idle ones are looked for.
    sweep_at: usize,
}

impl Limits {
    /// A house with all its slots free.
    pub fn new(params: LimitParams) -> Self {
        let house = House {
            concurrency: params.concurrency,
            in_flight: 0,
            doors: HashMap::new(),
            on_hold: HashSet::new(),
            crowded_out: BTreeSet::new(),
            sweep_at: FEW,
        };
        Self { params: RwLock::new(Arc::new(params)), house: Mutex::new(house) }
    }

    /// Goes by other settings from now on. Slots that are taken stay so, and each breaker stays in its state.
    pub fn set_params(&self, params: LimitParams) {
        let mut house = self.house();
        let now = Instant::now();
        for door in house.doors.values_mut() {
            door.set_breaker(&params.breaker, now);
            // Whoever waits looks by the new settings.
            door.wake();
        }
        house.concurrency = params.concurrency;
        *self.params.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(params);
        house.serve_crowded_out();
    }

    /// Takes up to `most` slots, now; perhaps none.
    pub fn reserve(self: &Arc<Self>, destination: &Destination, allowance: Allowance, most: usize) -> Permits {
        let now = Instant::now();
        let mut house = self.house();
        let free = house.free();
        let (is_held, door) = house.door(destination, &self.params(), now);
        door.allow(self.resolved(allowance), now);
        let granted = if is_held { 0 } else { door.grantable(free, now).min(most) };
        let ticket = door.reserve(granted, now);
        door.look(destination, now);
        house.in_flight += granted;
        drop(house);
        Permits::new(Arc::clone(self), destination.clone(), granted, ticket)
    }

    /// How many slots [`Limits::reserve`] would grant now.
    pub fn free(&self, destination: &Destination, allowance: Allowance) -> usize {
        let allowance = self.resolved(allowance);
        let now = Instant::now();
        let mut house = self.house();
        let free = house.free();
        if house.on_hold.contains(destination) {
            return 0;
        }
        match house.doors.get_mut(destination) {
            Some(door) => {
                door.allow(allowance, now);
                door.grantable(free, now)
            }
            None => Door::new(allowance, &self.params().breaker, now).grantable(free, now),
        }
    }

    /// Notifies `sleeper` once when a slot for `destination` can be had, at once if that is so already. The same sleeper is
    /// remembered once per destination, until it is notified. It is notified as well when [`Limits::wait_for`] has become another.
    pub fn wake_when_free(&self, destination: &Destination, sleeper: Arc<Notify>) {
        let now = Instant::now();
        let mut house = self.house();
        let (_, door) = house.door(destination, &self.params(), now);
        door.wait(sleeper);
        house.serve(destination, now);
    }

    /// How long until `destination` may have a slot again, where that is a matter of time alone.
    pub fn wait_for(&self, destination: &Destination) -> Option<Duration> {
        let now = Instant::now();
        let mut house = self.house();
        let is_held = house.on_hold.contains(destination);
        house.doors.get_mut(destination)?.wait_for(now).filter(|_| !is_held)
    }

    /// Grants nothing to `destination` for so long; a longer hold stays. For a `Retry-After` that speaks for all of it.
    pub fn hold(&self, destination: &Destination, wait: Duration) {
        let now = Instant::now();
        let mut house = self.house();
        let (_, door) = house.door(destination, &self.params(), now);
        door.hold_until(now + wait);
    }

    /// Which destinations are held by hand from now on: these, and no others.
    pub fn set_holds(&self, destinations: HashSet<Destination>) {
        let mut house = self.house();
        let before = std::mem::replace(&mut house.on_hold, destinations);
        let released: Vec<Destination> = before.difference(&house.on_hold).cloned().collect();
        for destination in released {
            // Whoever slept through the hold has no timer for what may stand in the way besides.
            if let Some(door) = house.doors.get_mut(&destination) {
                door.wake();
            }
        }
    }

    /// How `destination` stands.
    pub fn standing(&self, destination: &Destination, allowance: Allowance) -> Standing {
        let allowance = self.resolved(allowance);
        let now = Instant::now();
        match self.house().doors.get_mut(destination) {
            Some(door) => door.standing(now),
            None => Door::new(allowance, &self.params().breaker, now).standing(now),
        }
    }

    /// How many slots are taken in the whole house.
    pub fn in_flight(&self) -> usize {
        self.house().in_flight
    }

    fn resolved(&self, own: Allowance) -> Allowance {
        let concurrency = if own.concurrency == 0 { self.params().concurrency_per_service } else { own.concurrency };
        Allowance { concurrency, rate: own.rate }
    }

    /// Does `what` at a door that has slots taken, and then wakes whoever can be served.
    fn at_door(&self, destination: &Destination, what: impl FnOnce(&mut Door, Instant) -> usize) {
        let now = Instant::now();
        let mut house = self.house();
        let door = house.doors.get_mut(destination).expect("a destination with calls in flight is not forgotten");
        let released = what(door, now);
        door.look(destination, now);
        house.in_flight -= released;
        house.serve(destination, now);
        house.serve_crowded_out();
    }

    fn params(&self) -> Arc<LimitParams> {
        self.params.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn house(&self) -> MutexGuard<'_, House> {
        // Nothing under the lock panics half-way but by a broken invariant; the counts are then still the best there is.
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl House {
    fn free(&self) -> usize {
        // Fewer are allowed than were, perhaps.
        self.concurrency.saturating_sub(self.in_flight)
    }

    /// Whether the destination is held by hand, and its door, in use from now.
    fn door(&mut self, destination: &Destination, params: &LimitParams, now: Instant) -> (bool, &mut Door) {
        if !self.doors.contains_key(destination) && self.doors.len() >= self.sweep_at {
            self.doors.retain(|_, door| !door.is_forgettable(now));
            self.sweep_at = FEW.max(self.doors.len() * 2);
        }
        let fresh = || {
            let allowance = Allowance { concurrency: params.concurrency_per_service, rate: None };
            Door::new(allowance, &params.breaker, now)
        };
        let door = self.doors.entry(destination.clone()).or_insert_with(fresh);
        door.used = now;
        (self.on_hold.contains(destination), door)
    }

    /// Wakes the destination's sleepers if it can have a slot; else notes what would have to change.
    fn serve(&mut self, destination: &Destination, now: Instant) {
        let free = self.free();
        let is_held = self.on_hold.contains(destination);
        let Some(door) = self.doors.get_mut(destination) else { return };
        if !door.is_awaited() {
            return;
        }
        let needs = if is_held {
            None
        } else if door.grantable(free, now) > 0 {
            door.wake();
            None
        } else {
            // Only the house is in the way: it takes as many free slots as there are in flight, and at least one.
            (door.room(now) > 0).then_some(door.in_flight.max(1))
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

#[cfg(test)]
mod tests;
