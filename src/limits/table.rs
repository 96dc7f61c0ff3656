//! What stands under the lock: all destinations, and the slots that they share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::entry::Door;
use super::{Allowance, Chance, LimitParams};
use crate::clock::UnixMillis;
use crate::task::Destination;

/// Below so many destinations nobody is forgotten.
pub(super) const FEW: usize = 64;

#[derive(Debug)]
pub(super) struct House {
    pub(super) concurrency: usize,
    pub(super) in_flight: usize,
    pub(super) doors: HashMap<Destination, Door>,
    /// Held by hand.
    pub(super) on_hold: HashSet<Destination>,
    /// Releases by hand that have been seen, and when each was.
    pub(super) released: HashMap<Destination, UnixMillis>,
    /// How often the store was asked what is, and which of these answers `on_hold` is.
    pub(super) holds_asked: u64,
    pub(super) holds_known: u64,
    /// Destinations that only the house keeps waiting: by the number of free slots that it takes to serve them, and then by age.
    pub(super) crowded_out: BTreeSet<(usize, u64, Destination)>,
    /// The last number drawn, by those in line and by the crowded out.
    numbers: u64,
    /// The number of doors at which idle ones are looked for.
    sweep_at: usize,
}

impl House {
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            concurrency,
            in_flight: 0,
            doors: HashMap::new(),
            on_hold: HashSet::new(),
            released: HashMap::new(),
            holds_asked: 0,
            holds_known: 0,
            crowded_out: BTreeSet::new(),
            numbers: 0,
            sweep_at: FEW,
        }
    }

    pub(super) fn free(&self) -> usize {
        // Fewer may be allowed than were.
        self.concurrency.saturating_sub(self.in_flight)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn forget_idle(&mut self, now: Instant) {
        self.doors.retain(|_, door| !door.is_forgettable(now));
        self.doors.shrink_to(self.doors.len() * 2);
        self.sweep_at = FEW.max(self.doors.len() * 2);
    }

    /// Whether the destination is held by hand, and its door, in use from now.
    pub(super) fn door(&mut self, destination: &Destination, params: &LimitParams, now: Instant) -> (bool, &mut Door) {
        if !self.doors.contains_key(destination) && self.doors.len() >= self.sweep_at {
            self.forget_idle(now);
        }
        let fresh = || {
            let allowance = Allowance { concurrency: params.concurrency_per_service, rate: None };
            Door::new(allowance, &params.breaker, now)
        };
        let door = self.doors.entry(destination.clone()).or_insert_with(fresh);
        door.used = now;
        (self.on_hold.contains(destination), door)
    }

    /// Ends the hold that the destination's own `Retry-After` has set.
    pub(super) fn lift(&mut self, destination: &Destination, now: Instant) {
        if let Some(door) = self.doors.get_mut(destination) {
            door.lift_hold();
            self.serve(destination, now);
        }
    }

    /// What the one of that number in the destination's line may expect.
    pub(super) fn look(
        &mut self,
        destination: &Destination,
        allowance: Allowance,
        params: &LimitParams,
        (number, sleeper): (u64, &Arc<Notify>),
        now: Instant,
    ) -> Chance {
        let free = self.free();
        let (is_held, door) = self.door(destination, params, now);
        door.allow(allowance, now);
        let slots = door.grantable(free, now);
        if !is_held && door.line.share(slots, Some(number)) > 0 {
            return Chance::Now;
        }
        door.line.stand(number, sleeper);
        let wait = door.wait_for(now).filter(|_| !is_held);
        if wait.is_none() {
            door.line.no_watch(number);
        }
        let wait = wait.filter(|_| door.line.watches(number));
        self.serve(destination, now);
        Chance::Later(wait)
    }

    /// Calls those in the destination's line who can have a slot; else notes what would have to change. Answers how many were called.
    pub(super) fn serve(&mut self, destination: &Destination, now: Instant) -> usize {
        let free = self.free();
        let is_held = self.on_hold.contains(destination);
        let Some(door) = self.doors.get_mut(destination) else { return 0 };
        let (mut called, mut needs) = (0, None);
        if !is_held && door.line.is_awaited() {
            let slots = door.grantable(free, now);
            called = door.line.call(slots);
            if slots == 0 {
                if door.wait_for(now).is_some() {
                    door.line.keep_watch();
                }
                // Only the house is in the way: it takes as many free slots as there are in flight, and at least one.
                needs = (door.room(now) > 0).then_some(door.in_flight.max(1));
            }
        }
        if door.needs.map(|(needs, _)| needs) != needs {
            if let Some((needs, since)) = door.needs.take() {
                self.crowded_out.remove(&(needs, since, destination.clone()));
            }
            if let Some(needs) = needs {
                self.numbers += 1;
                door.needs = Some((needs, self.numbers));
                self.crowded_out.insert((needs, self.numbers, destination.clone()));
            }
        }
        called
    }

    /// Calls those whom the house kept waiting, as far as it has room now. Those who leave again call the next.
    pub(super) fn serve_crowded_out(&mut self, now: Instant) {
        let mut free = self.free();
        while free > 0 && self.crowded_out.first().is_some_and(|(needs, ..)| *needs <= self.free()) {
            let Some((.., destination)) = self.crowded_out.pop_first() else { return };
            if let Some(door) = self.doors.get_mut(&destination) {
                door.needs = None;
                free = free.saturating_sub(self.serve(&destination, now));
            }
        }
    }
}
