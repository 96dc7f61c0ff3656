//! Slow start: how many calls at a time a destination may have until it has proved healthy.
//!
//! ```text
//! 16 ──16 successes──▶ 32 ──32 successes──▶ 64 ─▶ … ─▶ its limit
//!  ▲                                                      │
//!  └──────────────── no success for 60 s ─────────────────┘
//! ```
//!
//! So a destination gets only 16 calls at a time after an outage. The type is pure: the caller
//! passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// The window of a destination without a recent success.
pub(super) const START: usize = 16;

/// For how long a success counts as recent.
pub(super) const RECENT: Duration = Duration::from_secs(60);

/// The window of one destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowStart {
    size: usize,
    /// The successes since the window was doubled, minus the failures. So the window of a
    /// destination that mostly fails stays small.
    successes: usize,
    last_success: Option<Instant>,
}

impl SlowStart {
    pub(super) fn new() -> Self {
        Self { size: START, successes: 0, last_success: None }
    }

    /// How many calls may run at a time.
    pub(super) fn window(&self, now: Instant) -> usize {
        if self.is_recent(now) { self.size } else { START }
    }

    /// Counts a success. Doubles the window after as many as it is wide, up to `limit`.
    pub(super) fn succeeded(&mut self, now: Instant, limit: usize) {
        if !self.is_recent(now) {
            *self = Self::new();
        }
        self.last_success = Some(now);
        self.successes += 1;
        if self.successes >= self.size {
            self.size = self.size.saturating_mul(2).min(limit.max(START));
            self.successes = 0;
        }
    }

    /// Counts a failure.
    pub(super) fn failed(&mut self) {
        self.successes = self.successes.saturating_sub(1);
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.last_success.is_some_and(|at| now.duration_since(at) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn succeed(window: &mut SlowStart, times: usize, now: Instant) -> usize {
        (0..times).for_each(|_| window.succeeded(now, 100));
        window.window(now)
    }

    #[test]
    fn the_window_doubles_after_as_many_successes_as_it_is_wide_up_to_the_limit() {
        let now = Instant::now();
        let mut window = SlowStart::new();
        assert_eq!(window.window(now), 16);
        assert_eq!(succeed(&mut window, 15, now), 16);
        assert_eq!(succeed(&mut window, 1, now), 32);
        assert_eq!(succeed(&mut window, 31, now), 32);
        assert_eq!(succeed(&mut window, 1, now), 64);
        assert_eq!(succeed(&mut window, 64, now), 100);
        assert_eq!(succeed(&mut window, 500, now), 100);
    }

    #[test]
    fn a_minute_without_success_falls_back_to_the_start() {
        let now = Instant::now();
        let mut window = SlowStart::new();
        assert_eq!(succeed(&mut window, 40, now), 32);
        assert_eq!(window.window(now + RECENT - Duration::from_millis(1)), 32);
        assert_eq!(window.window(now + RECENT), 16);
        assert_eq!(succeed(&mut window, 15, now + RECENT), 16, "the count starts again, too");
        assert_eq!(succeed(&mut window, 1, now + RECENT), 32);
    }

    #[test]
    fn a_destination_that_fails_as_often_as_it_succeeds_stays_small() {
        let now = Instant::now();
        let mut window = SlowStart::new();
        for _ in 0..1_000 {
            window.succeeded(now, 100);
            window.failed();
        }
        assert_eq!(window.window(now), 16);
    }
}
