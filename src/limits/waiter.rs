//! A place in the line for a destination's slots, left by dropping.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Allowance, Limits, Permits};
use crate::task::Destination;

/// What one who stands in line may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// There is a slot.
    Now,
    /// There is none. His sleeper is notified when he is called; after the wait, if there is one, he must look again by himself, for time
    /// alone may have freed something then, and he keeps watch for all who stand here.
    Later(Option<Duration>),
}

/// A place in a destination's line. Who was called must look again, rest or drop it before he waits for anything else: the slot that he was
/// called for is kept from those behind him until then.
#[derive(Debug)]
pub struct Place {
    limits: Arc<Limits>,
    destination: Destination,
    number: u64,
    sleeper: Arc<Notify>,
}

impl Place {
    pub(super) fn new(limits: Arc<Limits>, destination: Destination, number: u64, sleeper: Arc<Notify>) -> Self {
        Self { limits, destination, number, sleeper }
    }

    /// Whether there is a slot for him; if not, he waits, and is called in his turn.
    pub fn look(&self, allowance: Allowance) -> Chance {
        let allowance = self.limits.resolved(allowance);
        let params = self.limits.params();
        let mut house = self.limits.house();
        house.look(&self.destination, allowance, &params, (self.number, &self.sleeper), Instant::now())
    }

    /// As [`Limits::reserve`], for the one who stands here: what he was called for is his.
    pub fn reserve(&self, allowance: Allowance, most: usize) -> Permits {
        self.limits.reserve_as(Some(self.number), &self.destination, allowance, most)
    }

    /// Is not called until he looks again; his place is kept.
    pub fn rest(&self) {
        let now = Instant::now();
        let mut house = self.limits.house();
        if let Some(door) = house.doors.get_mut(&self.destination) {
            door.line.leave(self.number);
            house.serve(&self.destination, now);
            house.serve_crowded_out(now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.rest();
    }
}
