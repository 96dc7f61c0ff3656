//! The last calls of a destination, and the last changes of its breaker, for operators.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::breaker::State;

/// The most calls that are remembered: half a kibibyte, because there may be many destinations.
const MOST_CALLS: usize = 128;
/// The most changes of the breaker that are remembered.
const MOST_CHANGES: usize = 16;

/// The last calls, and the last changes of the breaker.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The duration in milliseconds, doubled, plus one if the call failed.
    calls: VecDeque<u32>,
    changes: VecDeque<(State, Instant)>,
}

/// The figures of the last calls of a destination that said something about it, at most 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentCalls {
    /// Their number.
    pub count: usize,
    /// How many of them failed because of the destination.
    pub failures: usize,
    /// The median of their durations.
    pub p50: Option<Duration>,
    /// The 99th percentile of their durations.
    pub p99: Option<Duration>,
}

impl Recent {
    /// A call has ended.
    pub(super) fn ended(&mut self, took: Duration, is_failure: bool) {
        if self.calls.len() == MOST_CALLS {
            self.calls.pop_front();
        }
        let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX).min(u32::MAX >> 1);
        self.calls.push_back(millis << 1 | u32::from(is_failure));
    }

    /// The breaker has changed to this state.
    pub(super) fn changed(&mut self, to: State, now: Instant) {
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back((to, now));
    }

    pub(super) fn calls(&self) -> RecentCalls {
        let mut millis: Vec<u32> = self.calls.iter().map(|call| call >> 1).collect();
        millis.sort_unstable();
        // The nearest rank.
        let quantile = |percent: usize| {
            let rank = (millis.len() * percent).div_ceil(100).saturating_sub(1);
            millis.get(rank).map(|millis| Duration::from_millis((*millis).into()))
        };
        RecentCalls {
            count: millis.len(),
            failures: self.calls.iter().filter(|call| *call & 1 == 1).count(),
            p50: quantile(50),
            p99: quantile(99),
        }
    }

    /// The changes of the breaker, the oldest first, and how long ago each was.
    pub(super) fn changes(&self, now: Instant) -> Vec<(State, Duration)> {
        self.changes.iter().map(|(to, at)| (*to, now.duration_since(*at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_last_calls_are_counted() {
        let mut recent = Recent::default();
        assert_eq!(recent.calls(), RecentCalls::default());
        recent.ended(ms(7), true);
        let one = RecentCalls { count: 1, failures: 1, p50: Some(ms(7)), p99: Some(ms(7)) };
        assert_eq!(recent.calls(), one);
        for millis in 1..=200 {
            recent.ended(ms(millis), millis > 198);
        }
        let (p50, p99) = (Some(ms(136)), Some(ms(199)));
        let last = RecentCalls { count: MOST_CALLS, failures: 2, p50, p99 };
        assert_eq!(recent.calls(), last);
        recent.ended(Duration::MAX, false);
        assert_eq!(recent.calls().count, MOST_CALLS);
    }

    #[test]
    fn the_last_changes_are_kept() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for _ in 0..MOST_CHANGES {
            recent.changed(State::Open, now);
        }
        recent.changed(State::Closed, now + ms(5));
        let changes = recent.changes(now + ms(9));
        assert_eq!(changes.len(), MOST_CHANGES);
        assert_eq!(changes.last(), Some(&(State::Closed, ms(4))));
    }
}
