//! The three states, and the transitions between them.

use std::time::Duration;

use tokio::time::Instant;

use super::window::Window;
use super::{Params, State, Verdict};

/// How long probes may stay reserved without beginning. It is longer than a claim takes, and only
/// limits the harm of a leak.
const RESERVED: Duration = Duration::from_secs(30);

/// One breaker. Every method first makes the transitions that are due by `now`.
#[derive(Debug)]
pub struct Breaker {
    params: Params,
    phase: Phase,
    /// Grows with each change of state. Calls of earlier epochs do not count.
    epoch: u64,
    /// The number of openings without a whole window between them.
    streak: u32,
}

#[derive(Debug)]
enum Phase {
    Closed { since: Instant, window: Window, in_a_row: u32, look_at: Instant },
    Open { until: Instant, time: Duration },
    HalfOpen(Probing),
}

/// The probes of a half-open breaker.
#[derive(Debug)]
struct Probing {
    /// Whether an operator ended the wait.
    is_by_hand: bool,
    /// Probes that were reserved and have not begun.
    reserved: u32,
    reserved_until: Instant,
    /// The deadlines of the running probes.
    running: Vec<Instant>,
    successes: u32,
    /// How long the breaker was open before.
    time_open: Duration,
    /// When the last probe began or ended.
    quiet_since: Instant,
}

/// A call that may begin. Return it with [`Breaker::end`].
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    epoch: u64,
    /// When the call began, and its deadline. `None` if it was only reserved.
    span: Option<(Instant, Instant)>,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(params: Params, now: Instant) -> Self {
        let phase = Phase::closed(&params, now);
        Self { params, phase, epoch: 0, streak: 0 }
    }

    /// Changes the settings. The state stays; a window of another length starts empty.
    pub fn set_params(&mut self, params: &Params, now: Instant) {
        if self.params.window != params.window
            && let Phase::Closed { window, .. } = &mut self.phase
        {
            *window = Window::new(params.window);
        }
        self.params = params.clone();
        self.advance(now);
    }

    /// The current state.
    pub fn state(&mut self, now: Instant) -> State {
        self.advance(now);
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen(_) => State::HalfOpen,
        }
    }

    /// How many more calls may begin.
    pub fn room(&mut self, now: Instant) -> usize {
        self.advance(now);
        match &self.phase {
            Phase::Closed { .. } => usize::MAX,
            Phase::Open { .. } => 0,
            Phase::HalfOpen(probing) => {
                self.params.half_open_probes.saturating_sub(probing.out()) as usize
            }
        }
    }

    /// How long until another call may begin; `None` if one may begin now. It can be sooner, if a
    /// probe ends.
    pub fn retry_in(&mut self, now: Instant) -> Option<Duration> {
        if self.room(now) > 0 {
            return None;
        }
        let until = match &self.phase {
            Phase::Closed { .. } => now,
            Phase::Open { until, .. } => *until,
            Phase::HalfOpen(probing) => probing.next_deadline().unwrap_or(now),
        };
        // A deadline counts only after it has passed.
        Some(until.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Ends the wait of an open breaker: it becomes half-open. If a probe then fails, the next wait
    /// is as long as the one that was ended.
    pub fn end_wait(&mut self, now: Instant) {
        self.advance(now);
        if let Phase::Open { .. } = self.phase {
            self.half_open(true, now);
        }
    }

    /// Reserves one call, if one may begin.
    pub fn reserve(&mut self, now: Instant) -> Option<Ticket> {
        if self.room(now) == 0 {
            return None;
        }
        if let Phase::HalfOpen(probing) = &mut self.phase {
            probing.reserved += 1;
            probing.reserved_until = now + RESERVED;
        }
        Some(Ticket { epoch: self.epoch, span: None })
    }

    /// Starts the reserved call, which must end within `timeout`.
    pub fn begin(&mut self, ticket: &mut Ticket, now: Instant, timeout: Duration) {
        self.advance(now);
        let deadline = now + timeout;
        if ticket.epoch != self.epoch || ticket.span.is_some() {
            return;
        }
        ticket.span = Some((now, deadline));
        match &mut self.phase {
            Phase::Closed { window, .. } => window.begin(now, deadline),
            Phase::Open { .. } => {}
            Phase::HalfOpen(probing) => {
                probing.reserved = probing.reserved.saturating_sub(1);
                probing.running.push(deadline);
                probing.quiet_since = now;
            }
        }
    }

    /// A call has ended. Without a verdict, it was not made or says nothing.
    pub fn end(&mut self, ticket: Ticket, verdict: Option<Verdict>, now: Instant) {
        self.advance(now);
        if ticket.epoch != self.epoch {
            return;
        }
        match (&mut self.phase, ticket.span) {
            (Phase::Closed { window, in_a_row, .. }, Some((began, _))) => {
                window.end(began, verdict);
                match verdict {
                    Some(Verdict::Success) => *in_a_row = 0,
                    Some(Verdict::Failure) => {
                        *in_a_row += 1;
                        let too_many = *in_a_row >= self.params.consecutive_failures;
                        if too_many || is_failing(window, &self.params, now) {
                            self.open(now);
                        }
                    }
                    None => {}
                }
            }
            (Phase::HalfOpen(probing), None) => {
                probing.reserved = probing.reserved.saturating_sub(1)
            }
            (Phase::HalfOpen(probing), Some((_, deadline))) => {
                probing.forget(deadline);
                probing.quiet_since = now;
                match verdict {
                    Some(Verdict::Success) => {
                        probing.successes += 1;
                        if probing.successes >= self.params.half_open_probes {
                            self.close(now);
                        }
                    }
                    Some(Verdict::Failure) => self.open(now),
                    None => {}
                }
            }
            (Phase::Closed { .. }, None) | (Phase::Open { .. }, _) => {}
        }
    }

    /// Makes the transitions that are due by `now`.
    fn advance(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Closed { window, look_at, .. } => {
                // A call that becomes overdue causes no event. So the calls are counted again every
                // tenth of the window.
                if now >= *look_at {
                    *look_at = now + self.params.window / 10;
                    if is_failing(window, &self.params, now) {
                        self.open(now);
                    }
                }
            }
            Phase::Open { until, .. } => {
                if now >= *until {
                    self.half_open(false, now);
                }
            }
            Phase::HalfOpen(probing) => {
                if now > probing.reserved_until {
                    probing.reserved = 0;
                }
                if probing.running.iter().any(|deadline| now > *deadline) {
                    self.open(now);
                } else if probing.is_enough(now) {
                    self.close(now);
                }
            }
        }
    }

    fn half_open(&mut self, is_by_hand: bool, now: Instant) {
        let time_open = match self.phase {
            Phase::Open { time, .. } => time,
            Phase::Closed { .. } | Phase::HalfOpen(_) => self.params.open,
        };
        self.epoch += 1;
        self.phase = Phase::HalfOpen(Probing::new(is_by_hand, time_open, now));
    }

    fn open(&mut self, now: Instant) {
        if let Phase::HalfOpen(Probing { is_by_hand: true, .. }) = self.phase {
            self.streak = self.streak.saturating_sub(1);
        }
        if let Phase::Closed { since, .. } = self.phase
            && now.saturating_duration_since(since) >= self.params.window
        {
            self.streak = 0;
        }
        let time = self
            .params
            .open
            .saturating_mul(2_u32.saturating_pow(self.streak))
            .min(self.params.open_max);
        self.streak = self.streak.saturating_add(1);
        self.epoch += 1;
        self.phase = Phase::Open { until: now + time, time };
    }

    fn close(&mut self, now: Instant) {
        self.epoch += 1;
        self.phase = Phase::closed(&self.params, now);
    }
}

/// Whether the share of failures among the recent calls is too large.
fn is_failing(window: &mut Window, params: &Params, now: Instant) -> bool {
    let tally = window.tally(now);
    tally.calls >= params.min_calls
        && f64::from(tally.failures) >= params.failure_ratio * f64::from(tally.calls)
}

impl Phase {
    fn closed(params: &Params, now: Instant) -> Self {
        Self::Closed { since: now, window: Window::new(params.window), in_a_row: 0, look_at: now }
    }
}

impl Probing {
    fn new(is_by_hand: bool, time_open: Duration, now: Instant) -> Self {
        Self {
            is_by_hand,
            reserved: 0,
            reserved_until: now,
            running: Vec::new(),
            successes: 0,
            time_open,
            quiet_since: now,
        }
    }

    /// Whether a probe has succeeded, and no other was made for as long as the breaker was open.
    /// Where tasks are rare, the next probe may be hours away.
    fn is_enough(&self, now: Instant) -> bool {
        self.successes > 0
            && self.out() == 0
            && now.saturating_duration_since(self.quiet_since) >= self.time_open
    }

    fn out(&self) -> u32 {
        self.reserved + u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let reserved = (self.reserved > 0).then_some(self.reserved_until);
        self.running.iter().copied().chain(reserved).min()
    }

    fn forget(&mut self, deadline: Instant) {
        if let Some(at) = self.running.iter().position(|&known| known == deadline) {
            self.running.swap_remove(at);
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
