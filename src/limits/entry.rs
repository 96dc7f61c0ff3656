//! One destination: everything that may keep a call to it back.

use std::time::Duration;

use tokio::time::Instant;

use super::slow_start::{RECENT, Window};
use super::wait_queue::Line;
use super::{Allowance, Standing};
use crate::breaker::{self, Breaker, State, Ticket, Verdict};
use crate::rate::Bucket;
use crate::task::Destination;

/// How long nobody must have asked for a destination whose breaker is not closed, before it is forgotten with it.
const LONG_AGO: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
pub(super) struct Door {
    pub(super) in_flight: usize,
    pub(super) used: Instant,
    /// Its key among those whom the house keeps waiting.
    pub(super) needs: Option<(usize, u64)>,
    /// Who waits for its slots.
    pub(super) line: Line,
    /// As last named by a caller.
    allowance: Allowance,
    window: Window,
    bucket: Option<Bucket>,
    breaker: Breaker,
    /// The breaker's state as it was last logged.
    seen: State,
    held_until: Option<Instant>,
    last_failure: Option<(String, Instant)>,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Succeeded,
    Failed(String),
}

impl Door {
    pub(super) fn new(allowance: Allowance, breaker: &breaker::Params, now: Instant) -> Self {
        Self {
            in_flight: 0,
            used: now,
            needs: None,
            line: Line::default(),
            allowance,
            window: Window::new(),
            bucket: allowance.rate.map(|rate| Bucket::new(rate, now)),
            breaker: Breaker::new(breaker.clone(), now),
            seen: State::Closed,
            held_until: None,
            last_failure: None,
        }
    }

    /// Goes by another allowance from now on.
    pub(super) fn allow(&mut self, allowance: Allowance, now: Instant) {
        if self.allowance.rate != allowance.rate {
            self.bucket = allowance.rate.map(|rate| Bucket::new(rate, now));
        }
        self.allowance = allowance;
    }

    /// Goes by another breaker's settings from now on.
    pub(super) fn set_breaker(&mut self, params: &breaker::Params, now: Instant) {
        self.breaker.set_params(params, now);
    }

    /// How many more calls the destination itself would bear.
    pub(super) fn room(&mut self, now: Instant) -> usize {
        if self.held_for(now).is_some() {
            return 0;
        }
        // Calls that still hang from before must not keep the probes back.
        let window = if self.breaker.state(now) == State::HalfOpen { usize::MAX } else { self.window.size(now) };
        let slots = window.min(self.allowance.concurrency).saturating_sub(self.in_flight);
        let tokens = self.bucket.map_or(usize::MAX, |bucket| bucket.available(now));
        slots.min(tokens).min(self.breaker.room(now))
    }

    /// How many of `free` slots of the house it may have.
    pub(super) fn grantable(&mut self, free: usize, now: Instant) -> usize {
        self.room(now).min(share(free, self.in_flight))
    }

    /// Takes as many slots, tokens and probes.
    pub(super) fn reserve(&mut self, count: usize, now: Instant) -> Option<Ticket> {
        self.in_flight += count;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(count, now);
        }
        // All of one moment are alike.
        (0..count).filter_map(|_| self.breaker.reserve(now)).last()
    }

    /// Gives back what was not used.
    pub(super) fn give_back(&mut self, count: usize, ticket: Option<Ticket>, now: Instant) {
        self.in_flight -= count;
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(count, now);
        }
        for ticket in std::iter::repeat_n(ticket, count).flatten() {
            self.breaker.end(ticket, None, now);
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self, ticket: &mut Ticket, timeout: Duration, now: Instant) {
        self.breaker.begin(ticket, now, timeout);
    }

    /// A call has ended.
    pub(super) fn end(&mut self, ticket: Option<Ticket>, ending: Option<Ending>, now: Instant) {
        self.in_flight -= 1;
        self.used = now;
        let verdict = ending.as_ref().map(|ending| match ending {
            Ending::Succeeded => Verdict::Success,
            Ending::Failed(_) => Verdict::Failure,
        });
        match ending {
            Some(Ending::Succeeded) => self.window.succeeded(now, self.allowance.concurrency),
            Some(Ending::Failed(outcome)) => {
                self.window.failed();
                self.last_failure = Some((outcome, now));
            }
            None => {}
        }
        if let Some(ticket) = ticket {
            self.breaker.end(ticket, verdict, now);
        }
    }

    /// Says so if the breaker has come to another state, and lets the one who watches set his timer anew.
    pub(super) fn look(&mut self, sn: &Destination, now: Instant) {
        let (before, state) = (self.seen, self.breaker.state(now));
        if state == before {
            return;
        }
        self.seen = state;
        let outcome = self.last_failure.as_ref().map_or("calls hang", |(outcome, _)| outcome.as_str());
        let open_ms = self.breaker.retry_in(now).unwrap_or_default().as_millis() as u64;
        match (before, state) {
            (_, State::Closed) => tracing::info!(%sn, breaker = "closed", "Service {sn} is well again"),
            (State::Closed, State::Open) => {
                tracing::warn!(%sn, breaker = "open", open_ms, outcome, "Service {sn} keeps failing ({outcome}); its tasks wait");
            }
            (_, State::Open) => {
                tracing::info!(%sn, breaker = "open", open_ms, outcome, "Service {sn} still fails ({outcome})");
            }
            (_, State::HalfOpen) => tracing::debug!(%sn, breaker = "half_open", "Trying whether service {sn} is back"),
        }
        if state == State::Open {
            // On its return it is met by a few calls, not by a herd.
            self.window = Window::new();
        }
        self.line.call_watch();
    }

    pub(super) fn hold_until(&mut self, until: Instant) {
        self.held_until = self.held_until.max(Some(until));
    }

    /// A hold that lasts for longer ends then; the one who watches sets their timer anew.
    pub(super) fn shorten_hold(&mut self, until: Instant) {
        if self.held_until.is_some_and(|held| held > until) {
            self.held_until = Some(until);
            self.line.call_watch();
        }
    }

    pub(super) fn lift_hold(&mut self) {
        self.held_until = None;
    }

    fn held_for(&self, now: Instant) -> Option<Duration> {
        let left = self.held_until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// How long until time alone has moved what keeps calls back now.
    pub(super) fn wait_for(&mut self, now: Instant) -> Option<Duration> {
        let token = self.bucket.and_then(|bucket| bucket.wait(now));
        self.held_for(now).max(self.breaker.retry_in(now)).max(token)
    }

    pub(super) fn standing(&mut self, now: Instant) -> Standing {
        Standing {
            breaker: self.breaker.state(now),
            in_flight: self.in_flight,
            window: self.window.size(now).min(self.allowance.concurrency),
            held_for: self.held_for(now),
            last_failure: self.last_failure.as_ref().map(|(outcome, at)| (outcome.clone(), now.duration_since(*at))),
        }
    }

    pub(super) fn is_forgettable(&mut self, now: Instant) -> bool {
        let idle = now.duration_since(self.used);
        let is_free = self.in_flight == 0 && self.line.is_empty() && self.held_for(now).is_none();
        // A fresh one would have all its tokens.
        let is_full = self.bucket.is_none_or(|bucket| bucket.is_full(now));
        is_free && is_full && idle >= RECENT && (idle >= LONG_AGO || self.breaker.state(now) == State::Closed)
    }
}

/// How many of `free` slots may go, one after another, to someone who has `own`: before each there must be at least
/// one free, and as many free as are its own by then.
pub(super) fn share(free: usize, own: usize) -> usize {
    if free == 0 || free < own { 0 } else { (free - own) / 2 + 1 }
}
