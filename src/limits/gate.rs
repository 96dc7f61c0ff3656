//! The gate of one destination: its rate, circuit breaker, slow start and holds.
//!
//! Pure: the time is passed in, and the gate knows neither slots nor waiters. It answers how many
//! calls may begin now, and learns from the calls how the destination is.
//!
//! | what | closes the gate | until |
//! |---|---|---|
//! | rate | no token is left | a token is there |
//! | breaker | open; half-open, all probes are out | its time is over; a probe ends |
//! | `Retry-After` of the destination | set by an answer | its time is over, or an operator ends it |
//! | hold by an operator | set by hand | ended by hand |

use std::time::Duration;

use tokio::time::Instant;

use super::rate_limit::RateLimit;
use super::slow_start::SlowStart;
use crate::model::breaker::{self, Breaker, State, Ticket, Verdict};
use crate::model::task::Destination;
use delayd_wire::Rate;

/// What a call says about its destination.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// The destination is well.
    Succeeded,
    /// The destination is in trouble; the text names how.
    Failed(String),
}

/// One destination's gate.
#[derive(Debug)]
pub(super) struct Gate {
    rate: RateLimit,
    breaker: Breaker,
    /// The state of the breaker as it was last logged.
    logged: State,
    slow_start: SlowStart,
    /// The end of what the destination's own `Retry-After` asks for.
    retry_after: Option<Instant>,
    is_held: bool,
    last_failure: Option<(String, Instant)>,
}

impl Gate {
    /// An open one.
    pub(super) fn new(rate: Option<Rate>, breaker: &breaker::Params, now: Instant) -> Self {
        Self {
            rate: RateLimit::new(rate, now),
            breaker: Breaker::new(breaker.clone(), now),
            logged: State::Closed,
            slow_start: SlowStart::new(),
            retry_after: None,
            is_held: false,
            last_failure: None,
        }
    }

    pub(super) fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        self.rate.set(rate, now);
    }

    /// Changes the breaker's settings. It stays in its state.
    pub(super) fn set_breaker(&mut self, params: &breaker::Params, now: Instant) {
        self.breaker.set_params(params, now);
    }

    /// How many more calls may begin now.
    pub(super) fn admits(&mut self, now: Instant) -> usize {
        if self.is_held || self.held_for(now).is_some() {
            return 0;
        }
        self.rate.available(now).min(self.breaker.room(now))
    }

    /// How many calls may run at a time.
    pub(super) fn window(&mut self, now: Instant) -> usize {
        match self.breaker.state(now) {
            // Calls that still hang from before must not keep the probes back.
            State::HalfOpen => usize::MAX,
            State::Closed | State::Open => self.slow_start.window(now),
        }
    }

    /// How long until time alone opens it. `None`: it is open, or only an operator can open it.
    pub(super) fn retry_in(&mut self, now: Instant) -> Option<Duration> {
        if self.is_held {
            return None;
        }
        self.held_for(now).max(self.breaker.retry_in(now)).max(self.rate.retry_in(now))
    }

    /// Takes as many tokens and probes as it admits at most. All of one moment have the same
    /// ticket.
    pub(super) fn reserve(&mut self, count: usize, now: Instant) -> Option<Ticket> {
        self.rate.take(count, now);
        (0..count).filter_map(|_| self.breaker.reserve(now)).last()
    }

    /// Gives back the tokens and probes of calls that did not begin.
    pub(super) fn give_back(&mut self, count: usize, ticket: Option<Ticket>, now: Instant) {
        self.rate.give_back(count, now);
        for ticket in std::iter::repeat_n(ticket, count).flatten() {
            self.breaker.end(ticket, None, now);
        }
    }

    /// A call begins, and has to end within `timeout`.
    pub(super) fn begin(&mut self, ticket: &mut Ticket, timeout: Duration, now: Instant) {
        self.breaker.begin(ticket, now, timeout);
    }

    /// A call has ended. Without an ending it says nothing about the destination. `limit` is the
    /// most calls that may ever run at a time.
    pub(super) fn end(
        &mut self,
        ticket: Option<Ticket>,
        ending: Option<Ending>,
        limit: usize,
        now: Instant,
    ) {
        let verdict = match ending {
            Some(Ending::Succeeded) => {
                self.slow_start.succeeded(now, limit);
                Some(Verdict::Success)
            }
            Some(Ending::Failed(outcome)) => {
                self.slow_start.failed();
                self.last_failure = Some((outcome, now));
                Some(Verdict::Failure)
            }
            None => None,
        };
        if let Some(ticket) = ticket {
            self.breaker.end(ticket, verdict, now);
        }
    }

    /// Logs a change of the breaker's state. Returns whether there was one: what waits for the
    /// breaker has another time to wait then.
    pub(super) fn log_change(&mut self, sn: &Destination, now: Instant) -> bool {
        let (before, state) = (self.logged, self.breaker.state(now));
        if state == before {
            return false;
        }
        self.logged = state;
        let outcome =
            self.last_failure.as_ref().map_or("calls hang", |(outcome, _)| outcome.as_str());
        let open_ms = self.breaker.retry_in(now).unwrap_or_default().as_millis() as u64;
        match (before, state) {
            (_, State::Closed) => {
                tracing::info!(%sn, breaker = "closed", "Service {sn} is well again")
            }
            (State::Closed, State::Open) => {
                tracing::warn!(%sn, breaker = "open", open_ms, outcome, "Service {sn} keeps failing ({outcome}); its tasks wait");
            }
            (_, State::Open) => {
                tracing::info!(%sn, breaker = "open", open_ms, outcome, "Service {sn} still fails ({outcome})");
            }
            (_, State::HalfOpen) => {
                tracing::debug!(%sn, breaker = "half_open", "Trying whether service {sn} is back")
            }
        }
        if state == State::Open {
            // On its return the destination is met by a few calls, not by a herd.
            self.slow_start = SlowStart::new();
        }
        true
    }

    /// The destination asks for no calls until then. A longer wait stays.
    pub(super) fn retry_after(&mut self, until: Instant) {
        self.retry_after = self.retry_after.max(Some(until));
    }

    /// A wait for `Retry-After` that lasts for longer ends then. Returns whether there was one.
    pub(super) fn shorten_retry_after(&mut self, until: Instant) -> bool {
        let is_longer = self.retry_after.is_some_and(|held| held > until);
        if is_longer {
            self.retry_after = Some(until);
        }
        is_longer
    }

    /// Ends the wait for `Retry-After`.
    pub(super) fn end_retry_after(&mut self) {
        self.retry_after = None;
    }

    /// An operator holds the destination, or no longer.
    pub(super) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(super) fn breaker(&mut self, now: Instant) -> State {
        self.breaker.state(now)
    }

    /// What the slow start has come to, whatever the breaker's state.
    pub(super) fn slow_start(&self, now: Instant) -> usize {
        self.slow_start.window(now)
    }

    /// How much longer the destination's own `Retry-After` lasts.
    pub(super) fn held_for(&self, now: Instant) -> Option<Duration> {
        let left = self.retry_after?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// What the last failed call came to, and how long ago.
    pub(super) fn last_failure(&self, now: Instant) -> Option<(String, Duration)> {
        self.last_failure.as_ref().map(|(outcome, at)| (outcome.clone(), now.duration_since(*at)))
    }

    /// Whether a new gate would admit the same now, the state of the breaker aside.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        !self.is_held && self.held_for(now).is_none() && self.rate.is_full(now)
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
