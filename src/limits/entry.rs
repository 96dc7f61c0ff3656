//! One destination or topic: its bulkhead and its gate.

use std::time::Duration;

use tokio::time::Instant;

use super::Allowance;
use super::bulkhead::Bulkhead;
use super::gate::{CallEnding, Gate};
use super::last_block::LastBlock;
use super::params::{Detail, Standing};
use super::recent::Recent;
use super::slow_start::RECENT;
use crate::model::breaker::{self, State, Ticket};
use crate::model::culprit::Culprit;

/// An entry whose breaker is not closed is forgotten after this time without use.
const LONG_AGO: Duration = Duration::from_secs(15 * 60);

/// A destination or topic that is in use.
#[derive(Debug)]
pub(super) struct LimitEntry {
    pub(super) bulkhead: Bulkhead,
    pub(super) gate: Gate,
    pub(super) recent: Recent,
    last_block: LastBlock,
    /// When it was last used.
    pub(super) used: Instant,
    /// Its key in `Table::crowded_out`, if it is there.
    pub(super) crowded_out: Option<(usize, u64)>,
}

impl LimitEntry {
    /// An unused one. Without `breaker`, the outcomes of its calls do not matter.
    pub(super) fn new(
        allowance: Allowance,
        breaker: Option<&breaker::Params>,
        now: Instant,
    ) -> Self {
        Self {
            bulkhead: Bulkhead::new(allowance.concurrency),
            gate: Gate::new(allowance.rate, breaker, now),
            recent: Recent::default(),
            last_block: LastBlock::default(),
            used: now,
            crowded_out: None,
        }
    }

    /// Changes the allowance.
    pub(super) fn allow(&mut self, allowance: Allowance, now: Instant) {
        self.bulkhead.set_limit(allowance.concurrency);
        self.gate.set_rate(allowance.rate, now);
    }

    /// How many more calls the destination itself admits. The gate is checked first: while it is
    /// closed, slots do not matter.
    pub(super) fn room(&mut self, now: Instant) -> usize {
        match self.gate.admits(now) {
            0 => 0,
            admitted => admitted.min(self.bulkhead.vacant(self.gate.window(now))),
        }
    }

    /// How many slots the destination may take, if `free` are free in total.
    pub(super) fn free(&mut self, free_in_total: usize, now: Instant) -> usize {
        self.room(now).min(share(free_in_total, self.bulkhead.in_flight()))
    }

    /// Who keeps calls from beginning, if `free` slots are free in total; `None` if one may begin.
    /// Calls that take all slots are slow because of their receivers.
    pub(super) fn blocked_by(&mut self, free_in_total: usize, now: Instant) -> Option<Culprit> {
        self.gate
            .blocked_by(now)
            .or_else(|| (self.free(free_in_total, now) == 0).then_some(Culprit::Receiver))
    }

    /// Notes who keeps further calls from beginning, after some permits were taken.
    pub(super) fn note_block(&mut self, free_in_total: usize, now: Instant) {
        let by = self.blocked_by(free_in_total, now);
        self.last_block.note(by, now);
    }

    /// Who keeps calls from beginning, or did so in the last second.
    pub(super) fn delayed_by(&mut self, free_in_total: usize, now: Instant) -> Option<Culprit> {
        self.blocked_by(free_in_total, now).or_else(|| self.last_block.lately(now))
    }

    /// Takes up to `most` of the free slots, with a token and a probe for each.
    pub(super) fn take(
        &mut self,
        free: usize,
        waiter: Option<u64>,
        most: usize,
        now: Instant,
    ) -> (usize, Option<Ticket>) {
        let taken = self.bulkhead.take(free, waiter, most);
        (taken, self.gate.reserve(taken, now))
    }

    /// Gives back permits that were not used.
    pub(super) fn give_back(&mut self, count: usize, ticket: Option<Ticket>, now: Instant) {
        self.bulkhead.give_back(count);
        self.gate.give_back(count, ticket, now);
    }

    /// A call that began at `began` has ended.
    pub(super) fn end(
        &mut self,
        ticket: Option<Ticket>,
        ending: Option<CallEnding>,
        began: Instant,
        now: Instant,
    ) {
        self.used = now;
        if let Some(ending) = &ending {
            let is_failure = matches!(ending, CallEnding::Failed(_));
            self.recent.ended(now.duration_since(began), is_failure);
        }
        self.bulkhead.give_back(1);
        self.gate.end(ticket, ending, self.bulkhead.limit(), now);
    }

    /// How bad its state is. What is not called, and has no call in flight, comes last.
    pub(super) fn badness(&mut self, now: Instant) -> impl Ord + use<> {
        let is_stopped = self.gate.no_token().is_some() || self.gate.held_for(now).is_some();
        (self.gate.breaker(now), is_stopped, self.bulkhead.in_flight(), self.used)
    }

    pub(super) fn standing(&mut self, now: Instant) -> Standing {
        Standing {
            breaker: self.gate.breaker(now),
            in_flight: self.bulkhead.in_flight(),
            window: self.gate.slow_start(now).min(self.bulkhead.limit()),
            held_for: self.gate.held_for(now),
            no_token: self.gate.no_token().map(str::to_owned),
            last_failure: self.gate.last_failure(now),
        }
    }

    pub(super) fn detail(&mut self, now: Instant) -> Detail {
        Detail {
            standing: self.standing(now),
            slots: self.bulkhead.limit(),
            probes_in: self.gate.probes_in(now),
            rate: self.gate.rate(),
            recent: self.recent.calls(),
            changes: self.recent.changes(now),
        }
    }

    /// Whether a new entry would admit the same.
    pub(super) fn is_forgettable(&mut self, now: Instant) -> bool {
        let unused = now.duration_since(self.used);
        self.bulkhead.is_idle()
            && self.gate.is_idle(now)
            && unused >= RECENT
            && (unused >= LONG_AGO || self.gate.breaker(now) == State::Closed)
    }
}

/// How many of the `free` slots a destination with `own` slots may take, one after another. Before
/// each, at least one slot must be free, and at least as many as it has by then.
pub(super) fn share(free: usize, own: usize) -> usize {
    if free == 0 || free < own { 0 } else { (free - own) / 2 + 1 }
}
