//! The gate of one destination: its rate, circuit breaker, slow start and holds. The gate of a
//! topic has a rate only.
//!
//! It is pure: the caller passes the time, and the gate knows neither slots nor waiters. It returns
//! how many calls may begin now, and learns from each call whether the destination is healthy.
//!
//! | part | closes the gate | until |
//! |---|---|---|
//! | rate | no token is left | a token is there |
//! | breaker | it is open, or half-open with all probes taken | its wait ends, or a probe ends |
//! | `Retry-After` | an answer of the destination sets it | its wait ends, or an operator ends it |
//! | hold | an operator sets it | an operator releases it |
//! | token | the service's OAuth has none | it has one |

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

use super::rate_limit::RateLimit;
use super::slow_start::SlowStart;
use crate::model::breaker::{self, Breaker, State, Ticket, Verdict};
use crate::model::culprit::Culprit;
use delayd_wire::Rate;

/// What a call showed about its destination.
#[derive(Clone, Debug)]
pub(super) enum CallEnding {
    /// The destination is healthy.
    Succeeded,
    /// The destination failed. The text is the outcome of the call.
    Failed(String),
}

/// One gate.
#[derive(Debug)]
pub(super) struct Gate {
    rate: RateLimit,
    /// `None` for a topic: the outcomes of its calls count for their destinations.
    health: Option<DestinationHealth>,
    /// The end of the wait that the destination's `Retry-After` asks for.
    retry_after: Option<Instant>,
    is_held: bool,
    /// Why there is no OAuth token.
    no_token: Option<String>,
}

/// How healthy a destination is, by the outcomes of its calls.
#[derive(Debug)]
struct DestinationHealth {
    breaker: Breaker,
    /// The state of the breaker that was logged last.
    logged: State,
    slow_start: SlowStart,
    last_failure: Option<(String, Instant)>,
}

impl DestinationHealth {
    fn new(breaker: &breaker::Params, now: Instant) -> Self {
        Self {
            breaker: Breaker::new(breaker.clone(), now),
            logged: State::Closed,
            slow_start: SlowStart::new(),
            last_failure: None,
        }
    }
}

impl Gate {
    /// A gate that is open. Without `breaker`, it has neither a breaker nor a slow start.
    pub(super) fn new(rate: Option<Rate>, breaker: Option<&breaker::Params>, now: Instant) -> Self {
        Self {
            rate: RateLimit::new(rate, now),
            health: breaker.map(|breaker| DestinationHealth::new(breaker, now)),
            retry_after: None,
            is_held: false,
            no_token: None,
        }
    }

    pub(super) fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        self.rate.set(rate, now);
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate.rate()
    }

    /// Changes the settings of the breaker. Its state stays.
    pub(super) fn set_breaker(&mut self, params: &breaker::Params, now: Instant) {
        if let Some(health) = &mut self.health {
            health.breaker.set_params(params, now);
        }
    }

    /// How many calls may begin now.
    pub(super) fn admits(&mut self, now: Instant) -> usize {
        if self.is_held || self.no_token.is_some() || self.held_for(now).is_some() {
            return 0;
        }
        self.rate.available(now).min(self.room(now))
    }

    /// How many calls the breaker admits.
    fn room(&mut self, now: Instant) -> usize {
        self.health.as_mut().map_or(usize::MAX, |health| health.breaker.room(now))
    }

    /// Who keeps the gate closed; `None` if it is open.
    pub(super) fn blocked_by(&mut self, now: Instant) -> Option<Culprit> {
        if self.is_held {
            return Some(Culprit::Operator);
        }
        if self.no_token.is_some() || self.held_for(now).is_some() || self.room(now) == 0 {
            return Some(Culprit::Receiver);
        }
        (self.rate.available(now) == 0).then_some(Culprit::Operator)
    }

    /// How many calls may run at a time.
    pub(super) fn window(&mut self, now: Instant) -> usize {
        match self.breaker(now) {
            // Calls that still hang from before the outage must not block the probes.
            State::HalfOpen => usize::MAX,
            State::Closed | State::Open => self.slow_start(now),
        }
    }

    /// How long until time alone opens the gate. `None`: it is open, or only an operator or a token
    /// can open it.
    pub(super) fn retry_in(&mut self, now: Instant) -> Option<Duration> {
        if self.is_held || self.no_token.is_some() {
            return None;
        }
        self.held_for(now).max(self.breaker_retry_in(now)).max(self.rate.retry_in(now))
    }

    fn breaker_retry_in(&mut self, now: Instant) -> Option<Duration> {
        self.health.as_mut()?.breaker.retry_in(now)
    }

    /// How long until an open breaker becomes half-open.
    pub(super) fn probes_in(&mut self, now: Instant) -> Option<Duration> {
        match self.breaker(now) {
            State::Open => self.breaker_retry_in(now),
            State::Closed | State::HalfOpen => None,
        }
    }

    /// Ends the wait of an open breaker.
    pub(super) fn probe(&mut self, now: Instant) {
        if let Some(health) = &mut self.health {
            health.breaker.end_wait(now);
        }
    }

    /// Takes a token and a probe for each of `count` calls, at most as many as it admits. Calls
    /// that are reserved together have the same ticket.
    pub(super) fn reserve(&mut self, count: usize, now: Instant) -> Option<Ticket> {
        self.rate.take(count, now);
        let breaker = &mut self.health.as_mut()?.breaker;
        (0..count).filter_map(|_| breaker.reserve(now)).last()
    }

    /// Gives back the tokens and probes of calls that did not begin.
    pub(super) fn give_back(&mut self, count: usize, ticket: Option<Ticket>, now: Instant) {
        self.rate.give_back(count, now);
        let Some(health) = &mut self.health else { return };
        for ticket in std::iter::repeat_n(ticket, count).flatten() {
            health.breaker.end(ticket, None, now);
        }
    }

    /// A call begins, and has to end within `timeout`. Otherwise the breaker counts it as failed.
    pub(super) fn begin(&mut self, ticket: &mut Ticket, timeout: Duration, now: Instant) {
        if let Some(health) = &mut self.health {
            health.breaker.begin(ticket, now, timeout);
        }
    }

    /// A call has ended. Without an ending, it says nothing about the destination. `limit` is the
    /// most calls that may ever run at a time.
    pub(super) fn end(
        &mut self,
        ticket: Option<Ticket>,
        ending: Option<CallEnding>,
        limit: usize,
        now: Instant,
    ) {
        let Some(health) = &mut self.health else { return };
        let verdict = match ending {
            Some(CallEnding::Succeeded) => {
                health.slow_start.succeeded(now, limit);
                Some(Verdict::Success)
            }
            Some(CallEnding::Failed(outcome)) => {
                health.slow_start.failed();
                health.last_failure = Some((outcome, now));
                Some(Verdict::Failure)
            }
            None => None,
        };
        if let Some(ticket) = ticket {
            health.breaker.end(ticket, verdict, now);
        }
    }

    /// Logs a change of the breaker's state. Returns whether there was one: then waiters have
    /// another time to wait.
    pub(super) fn log_change(&mut self, sn: &impl Display, now: Instant) -> bool {
        let Some(health) = &mut self.health else { return false };
        let (before, state) = (health.logged, health.breaker.state(now));
        if state == before {
            return false;
        }
        health.logged = state;
        let outcome =
            health.last_failure.as_ref().map_or("calls hang", |(outcome, _)| outcome.as_str());
        let open_ms = health.breaker.retry_in(now).unwrap_or_default().as_millis() as u64;
        match (before, state) {
            (_, State::Closed) => {
                tracing::info!(%sn, breaker = "closed", "Service {sn} is healthy again")
            }
            (State::Closed, State::Open) => {
                tracing::warn!(
                    %sn, breaker = "open", open_ms, outcome,
                    "Service {sn} keeps failing ({outcome}); its tasks wait"
                );
            }
            (_, State::Open) => {
                tracing::info!(
                    %sn, breaker = "open", open_ms, outcome,
                    "Service {sn} still fails ({outcome})"
                );
            }
            (_, State::HalfOpen) => {
                tracing::debug!(%sn, breaker = "half_open", "Probing service {sn}")
            }
        }
        if state == State::Open {
            // After the outage, the destination is called slowly at first.
            health.slow_start = SlowStart::new();
        }
        true
    }

    /// The destination asks for no calls until then. If it asked for a longer wait before, that
    /// stays.
    pub(super) fn retry_after(&mut self, until: Instant) {
        self.retry_after = self.retry_after.max(Some(until));
    }

    /// Shortens a longer wait for `Retry-After` to `until`. Returns whether it did.
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

    /// Sets whether an operator holds the destination.
    pub(super) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Sets why there is no OAuth token; `None` if there is one.
    pub(super) fn set_no_token(&mut self, why: Option<String>) {
        self.no_token = why;
    }

    /// Why there is no OAuth token.
    pub(super) fn no_token(&self) -> Option<&str> {
        self.no_token.as_deref()
    }

    pub(super) fn breaker(&mut self, now: Instant) -> State {
        self.health.as_mut().map_or(State::Closed, |health| health.breaker.state(now))
    }

    /// The window of the slow start, whatever the state of the breaker.
    pub(super) fn slow_start(&self, now: Instant) -> usize {
        self.health.as_ref().map_or(usize::MAX, |health| health.slow_start.window(now))
    }

    /// How much longer the wait for `Retry-After` lasts.
    pub(super) fn held_for(&self, now: Instant) -> Option<Duration> {
        let left = self.retry_after?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// The outcome of the last failed call, and how long ago it was.
    pub(super) fn last_failure(&self, now: Instant) -> Option<(String, Duration)> {
        let (outcome, at) = self.health.as_ref()?.last_failure.as_ref()?;
        Some((outcome.clone(), now.duration_since(*at)))
    }

    /// Whether a new gate would admit the same number of calls, apart from the breaker.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        !self.is_held
            && self.no_token.is_none()
            && self.held_for(now).is_none()
            && self.rate.is_full(now)
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
