//! A breaker that several share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Breaker, Params, State, Ticket, Verdict};

/// A breaker behind a lock, which is never held across an await.
#[derive(Debug)]
pub struct Gate(Mutex<Breaker>);

/// The breaker lets nobody through for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the circuit breaker is open")]
pub struct Refused {
    /// When there may be room again.
    pub retry_in: Duration,
}

impl Gate {
    /// A closed one.
    pub fn new(params: Params) -> Self {
        Self(Mutex::new(Breaker::new(params, Instant::now())))
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.breaker().state(Instant::now())
    }

    /// Lets one call through that begins now and has to end within `timeout`.
    ///
    /// # Errors
    /// [`Refused`] while it is open, and half-open while all probes are out.
    pub fn enter(self: &Arc<Self>, timeout: Duration) -> Result<Pass, Refused> {
        let now = Instant::now();
        let mut breaker = self.breaker();
        match breaker.reserve(now) {
            Some(mut ticket) => {
                breaker.begin(&mut ticket, now, timeout);
                Ok(Pass { gate: Arc::clone(self), ticket: Some(ticket), verdict: None })
            }
            None => Err(Refused { retry_in: breaker.retry_in(now).unwrap_or_default() }),
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        // Nothing under the lock panics half-way but by a broken invariant; the counts are then still the best there is.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call on its way. Dropped without a verdict it says nothing about the other side.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    ticket: Option<Ticket>,
    verdict: Option<Verdict>,
}

impl Pass {
    /// Says how the call ended.
    pub fn end(mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.breaker().end(ticket, self.verdict, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gate_refuses_while_it_is_open_and_lets_probes_back_in() {
        let gate = Arc::new(Gate::new(Params { consecutive_failures: 2, half_open_probes: 1, ..Params::default() }));
        let second = Duration::from_secs(1);
        for _ in 0..2 {
            gate.enter(second).unwrap().end(Verdict::Failure);
        }
        assert_eq!(gate.state(), State::Open);
        assert!(gate.enter(second).unwrap_err().retry_in > Duration::from_secs(4));
        tokio::time::advance(Duration::from_secs(5)).await;
        let probe = gate.enter(second).unwrap();
        assert!(gate.enter(second).is_err(), "one probe at a time");
        drop(probe);
        gate.enter(second).unwrap().end(Verdict::Success);
        assert_eq!(gate.state(), State::Closed);
    }
}
