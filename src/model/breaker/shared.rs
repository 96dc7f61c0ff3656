//! A breaker that several tasks share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Breaker, Params, State, Ticket, Verdict};

/// A breaker behind a lock, which is never held across an await.
#[derive(Debug)]
pub struct SharedBreaker(Mutex<Breaker>);

/// The breaker is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the circuit breaker is open")]
pub struct Refused {
    /// When a call may be permitted again.
    pub retry_in: Duration,
}

impl SharedBreaker {
    /// Returns a closed breaker.
    pub fn new(params: Params) -> Self {
        Self(Mutex::new(Breaker::new(params, Instant::now())))
    }

    /// The state.
    pub fn state(&self) -> State {
        self.lock().state(Instant::now())
    }

    /// Permits one call, which starts now and must end within `timeout`.
    ///
    /// # Errors
    /// [`Refused`] while it is open, or half-open with all probes running.
    pub fn enter(self: &Arc<Self>, timeout: Duration) -> Result<Pass, Refused> {
        let now = Instant::now();
        let mut breaker = self.lock();
        match breaker.reserve(now) {
            Some(mut ticket) => {
                breaker.begin(&mut ticket, now, timeout);
                Ok(Pass { breaker: Arc::clone(self), ticket: Some(ticket), verdict: None })
            }
            None => Err(Refused { retry_in: breaker.retry_in(now).unwrap_or_default() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        // Code under the lock panics only if an invariant is broken. The counts are then still
        // usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permitted call. Dropping it without a verdict has no effect on the breaker.
#[derive(Debug)]
pub struct Pass {
    breaker: Arc<SharedBreaker>,
    ticket: Option<Ticket>,
    verdict: Option<Verdict>,
}

impl Pass {
    /// Reports how the call ended.
    pub fn end(mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.breaker.lock().end(ticket, self.verdict, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gate_refuses_while_it_is_open_and_lets_probes_back_in() {
        let breaker = Arc::new(SharedBreaker::new(Params {
            consecutive_failures: 2,
            half_open_probes: 1,
            ..Params::default()
        }));
        let second = Duration::from_secs(1);
        for _ in 0..2 {
            breaker.enter(second).unwrap().end(Verdict::Failure);
        }
        assert_eq!(breaker.state(), State::Open);
        assert!(breaker.enter(second).unwrap_err().retry_in > Duration::from_secs(4));
        tokio::time::advance(Duration::from_secs(5)).await;
        let probe = breaker.enter(second).unwrap();
        assert!(breaker.enter(second).is_err(), "one probe at a time");
        drop(probe);
        breaker.enter(second).unwrap().end(Verdict::Success);
        assert_eq!(breaker.state(), State::Closed);
    }
}
