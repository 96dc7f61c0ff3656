//! The recent calls, by the moment at which they began.
//!
//! A ring of buckets, each a tenth of the window wide. A bucket counts for the length of the
//! window, and at least until the deadlines of its calls. Otherwise calls with timeouts longer than
//! the window would never count.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Verdict;

/// The number of buckets in a window.
const BUCKETS: u32 = 10;

/// The counts of the recent calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallTally {
    /// Calls that ended or are overdue.
    pub(super) calls: u32,
    /// Calls that failed or are overdue.
    pub(super) failures: u32,
}

/// The calls of one window.
#[derive(Debug)]
pub(super) struct Window {
    length: Duration,
    buckets: VecDeque<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    start: Instant,
    running: u32,
    successes: u32,
    failures: u32,
    /// The latest deadline of its calls.
    overdue_at: Instant,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, buckets: VecDeque::new() }
    }

    fn width(&self) -> Duration {
        self.length / BUCKETS
    }

    /// Counts a call that starts now, with this deadline.
    pub(super) fn begin(&mut self, now: Instant, deadline: Instant) {
        self.prune(now);
        let width = self.width();
        match self.buckets.back_mut() {
            Some(bucket) if now < bucket.start + width => {
                bucket.running += 1;
                bucket.overdue_at = bucket.overdue_at.max(deadline);
            }
            _ => self.buckets.push_back(Bucket {
                start: now,
                running: 1,
                successes: 0,
                failures: 0,
                overdue_at: deadline,
            }),
        }
    }

    /// Counts the end of a call that began at `began`. Without a verdict, the call does not count.
    pub(super) fn end(&mut self, began: Instant, verdict: Option<Verdict>) {
        let after = self.buckets.partition_point(|bucket| bucket.start <= began);
        let Some(bucket) = after.checked_sub(1).and_then(|i| self.buckets.get_mut(i)) else {
            return;
        };
        bucket.running = bucket.running.saturating_sub(1);
        match verdict {
            Some(Verdict::Success) => bucket.successes += 1,
            Some(Verdict::Failure) => bucket.failures += 1,
            None => {}
        }
    }

    pub(super) fn tally(&mut self, now: Instant) -> CallTally {
        self.prune(now);
        self.buckets.iter().fold(CallTally::default(), |sum, bucket| {
            let overdue = if now > bucket.overdue_at { bucket.running } else { 0 };
            let failures = bucket.failures + overdue;
            CallTally {
                calls: sum.calls + bucket.successes + failures,
                failures: sum.failures + failures,
            }
        })
    }

    fn prune(&mut self, now: Instant) {
        let (length, width) = (self.length, self.width());
        // Buckets are in order of their starts. An old bucket that lasts longer keeps younger ones,
        // which is harmless. Two widths, because overdue calls are counted once per width.
        while self
            .buckets
            .front()
            .is_some_and(|bucket| now >= (bucket.start + length).max(bucket.overdue_at + 2 * width))
        {
            self.buckets.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tally(calls: u32, failures: u32) -> CallTally {
        CallTally { calls, failures }
    }

    #[test]
    fn calls_count_by_their_beginning_and_for_the_windows_length() {
        let t = Instant::now();
        let mut window = Window::new(10 * SECOND);
        for at in [0, 4, 8] {
            window.begin(t + at * SECOND, t + (at + 1) * SECOND);
            window.end(t + at * SECOND, Some(Verdict::Failure));
        }
        assert_eq!(window.tally(t + 9 * SECOND), tally(3, 3));
        assert_eq!(window.tally(t + 10 * SECOND), tally(2, 2));
        assert_eq!(window.tally(t + 18 * SECOND), tally(0, 0));
    }

    #[test]
    fn an_overdue_call_has_failed_and_a_running_one_does_not_count() {
        let t = Instant::now();
        let mut window = Window::new(10 * SECOND);
        window.begin(t, t + SECOND);
        assert_eq!(window.tally(t + SECOND), tally(0, 0));
        assert_eq!(window.tally(t + SECOND + Duration::from_millis(1)), tally(1, 1));
        window.end(t, Some(Verdict::Success));
        assert_eq!(window.tally(t + 2 * SECOND), tally(1, 0), "a late success counts");
    }

    /// With timeouts longer than the window, calls left the window before they could fail.
    #[test]
    fn a_call_that_takes_longer_than_the_window_counts_when_it_ends() {
        let t = Instant::now();
        let mut window = Window::new(10 * SECOND);
        window.begin(t, t + 15 * SECOND);
        window.begin(t + 12 * SECOND, t + 13 * SECOND);
        window.end(t, Some(Verdict::Failure));
        assert_eq!(window.tally(t + 15 * SECOND).failures, 2);
    }

    #[test]
    fn a_call_without_a_verdict_is_forgotten() {
        let t = Instant::now();
        let mut window = Window::new(SECOND);
        window.begin(t, t + SECOND);
        window.end(t, None);
        assert_eq!(window.tally(t + 2 * SECOND), tally(0, 0));
    }
}
