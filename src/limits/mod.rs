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
//! without slots is not claimed, and its tasks stay on their schedule. A worker that got less than it wanted stands in line ([`Place`]),
//! and is called in its turn when there is something to be had (`line`).
//!
//! # Invariants
//!
//! - Slots, tokens and probes are given back by dropping, whatever way the call ends.
//! - One lock, held for a few steps and never across an await. A release looks only at those who can now be served, and calls no more of
//!   them than there are slots.
//! - What comes back with time alone (a token, the end of a hold or of an open breaker) wakes nobody: one of those who wait sets a timer.
//! - A destination's entry is forgotten once it has been idle for as long as a success lasts: by then
//!   it says nothing that a new one would not. That is looked for when many new ones come, and by the workers once a minute.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::breaker;
use crate::clock::UnixMillis;
use crate::rate::Rate;
use crate::task::Destination;

mod entry;
mod permit;
mod slow_start;
mod table;
mod wait_queue;
mod waiter;

use entry::Door;
pub use permit::{Permit, Permits};
use table::House;
pub use waiter::{Chance, Place};

/// The settings of the limits.
#[derive(Clone, Debug)]
pub struct LimitParams {
    /// The most calls at a time (`callback.concurrency`), from 1.
    pub concurrency: usize,
    /// The most calls at a time to one destination that names no limit of its own, from 1.
    pub concurrency_per_service: usize,
    /// When a destination is left alone (`callback.breaker`).
    pub breaker: breaker::Params,
    /// The longest that a destination's `Retry-After` holds it (`callback.retry_after_max`).
    pub retry_after_max: Duration,
}

/// What a service's own section allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// The most calls at a time; 0 for `callback.concurrency_per_service`.
    pub concurrency: usize,
    /// How many calls may begin in a time.
    pub rate: Option<Rate>,
}

/// When the store was asked what is held by hand, among those who ask.
#[derive(Clone, Copy, Debug)]
pub struct HoldsAsked(u64);

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

impl Limits {
    /// A house with all its slots free.
    pub fn new(params: LimitParams) -> Self {
        let house = House::new(params.concurrency);
        Self { params: RwLock::new(Arc::new(params)), house: Mutex::new(house) }
    }

    /// Goes by other settings from now on. Slots that are taken stay so, and each breaker stays in its state.
    pub fn set_params(&self, params: LimitParams) {
        let now = Instant::now();
        let mut house = self.house();
        house.concurrency = params.concurrency;
        for door in house.doors.values_mut() {
            door.set_breaker(&params.breaker, now);
            door.shorten_hold(now + params.retry_after_max);
        }
        *self.params.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(params);
        // Whoever waits looks by the new settings.
        let destinations: Vec<Destination> = house.doors.keys().cloned().collect();
        for destination in destinations {
            house.serve(&destination, now);
        }
        house.serve_crowded_out(now);
    }

    /// Takes up to `most` slots, now; perhaps none. Those for which others have been called from the line are theirs.
    pub fn reserve(self: &Arc<Self>, destination: &Destination, allowance: Allowance, most: usize) -> Permits {
        self.reserve_as(None, destination, allowance, most)
    }

    fn reserve_as(
        self: &Arc<Self>,
        number: Option<u64>,
        destination: &Destination,
        allowance: Allowance,
        most: usize,
    ) -> Permits {
        let now = Instant::now();
        let mut house = self.house();
        let free = house.free();
        let (is_held, door) = house.door(destination, &self.params(), now);
        door.allow(self.resolved(allowance), now);
        let slots = door.grantable(free, now);
        let granted = if is_held { 0 } else { door.line.share(slots, number).min(most) };
        if let Some(number) = number.filter(|_| granted > 0) {
            door.line.leave(number);
        }
        let ticket = door.reserve(granted, now);
        door.look(destination, now);
        house.in_flight += granted;
        // The breaker may have half-opened just now, for more than these.
        house.serve(destination, now);
        drop(house);
        Permits::new(Arc::clone(self), destination.clone(), granted, ticket)
    }

    /// How many slots there are for `destination` now, those for which someone has been called among them.
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

    /// A place at the end of the line for `destination`'s slots. He does not wait yet: that is for [`Place::look`] to say.
    pub fn line_up(self: &Arc<Self>, destination: &Destination, sleeper: Arc<Notify>) -> Place {
        let number = self.house().draw();
        Place::new(Arc::clone(self), destination.clone(), number, sleeper)
    }

    /// The longest that a `Retry-After` may ask for now.
    pub fn retry_after_max(&self) -> Duration {
        self.params().retry_after_max
    }

    /// Grants nothing to `destination` for so long; a longer hold stays. For a `Retry-After` that speaks for all of it.
    pub fn hold(&self, destination: &Destination, wait: Duration) {
        let now = Instant::now();
        let params = self.params();
        let mut house = self.house();
        let (_, door) = house.door(destination, &params, now);
        door.hold_until(now + wait.min(params.retry_after_max));
        // Whoever waits for a slot has to wait for the end of the hold instead.
        house.serve(destination, now);
    }

    /// To be called before the store is asked what is held by hand; its answer goes to [`Limits::set_holds`] with this.
    pub fn ask_holds(&self) -> HoldsAsked {
        let mut house = self.house();
        house.holds_asked += 1;
        HoldsAsked(house.holds_asked)
    }

    /// Ends the hold that `destination`'s `Retry-After` has set. An answer that comes later may set another.
    pub fn lift(&self, destination: &Destination) {
        self.house().lift(destination, Instant::now());
    }

    /// Which destinations are held by hand from now on: these, and no others. What was asked for before what is known already says nothing:
    /// it may have been read before a hold of which the caller has been told that it is set.
    ///
    /// `released` are the latest releases by hand, on any instance. One that is new lifts the destination's `Retry-After` hold here.
    pub fn set_holds(
        &self,
        asked: HoldsAsked,
        destinations: HashSet<Destination>,
        released: HashMap<Destination, UnixMillis>,
    ) {
        let now = Instant::now();
        let mut house = self.house();
        if asked.0 < house.holds_known {
            return;
        }
        house.holds_known = asked.0;
        let known = std::mem::replace(&mut house.released, released);
        let is_new = |(destination, at): &(&Destination, &UnixMillis)| known.get(*destination) != Some(*at);
        let lifted: Vec<Destination> =
            house.released.iter().filter(is_new).map(|(destination, _)| destination.clone()).collect();
        for destination in lifted {
            house.lift(&destination, now);
        }
        let before = std::mem::replace(&mut house.on_hold, destinations);
        let released: Vec<Destination> = before.difference(&house.on_hold).cloned().collect();
        for destination in released {
            house.serve(&destination, now);
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

    /// Forgets the destinations that say nothing any more. To be called now and then: callers may name any number of hosts.
    pub fn forget_idle(&self) {
        self.house().forget_idle(Instant::now());
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
        house.serve_crowded_out(now);
    }

    fn params(&self) -> Arc<LimitParams> {
        self.params.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn house(&self) -> MutexGuard<'_, House> {
        // Nothing under the lock panics half-way but by a broken invariant; the counts are then still the best there is.
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
