//! Ids for an outage of the server that has the counter.
//!
//! In a cluster, one server has the counter, and adds to the lanes of all servers need ids. So each
//! draw brings ids for [`OUTAGE`] at the recent rate, beside those of the next second. They are
//! higher than these, and lower than those of the next draw, which replaces them: ids grow whether
//! or not the reserve is used.
//!
//! The reserves of all instances together must not run ahead of the clock: after a failover, the
//! clock keeps a counter that has lost its last draws above the ids in use. So a reserve ends where
//! the counter would be a second ahead. While an instance draws, others may find less room, or
//! none; then their next draw brings a reserve.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::clock::UnixMillis;
use crate::model::task::TaskId;

/// How long an outage may take.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long after its draw a reserve is used.
const USABLE: Duration = Duration::from_secs(60);
/// The most ids of a reserve.
pub(crate) const MOST: u64 = TaskId::PER_SECOND;

/// Ids that are used while the counter's server is away.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    ids: Range<u64>,
    drawn: Option<Instant>,
}

impl Reserve {
    /// How many ids to draw for it, beside a block of this size for a second. `last` is the last id
    /// that this instance has drawn.
    pub(crate) fn size_for(block: u64, last: u64, now: UnixMillis) -> u64 {
        let second = u64::try_from(now.0 / 1_000).unwrap_or(0);
        let room = ((second + 1) * TaskId::PER_SECOND).saturating_sub(last + block);
        (block * OUTAGE.as_secs()).min(MOST).min(room)
    }

    /// Replaces the reserve by a later one.
    pub(crate) fn replace(&mut self, ids: Range<u64>, drawn: Instant) {
        if ids.start >= self.ids.end {
            *self = Self { ids, drawn: Some(drawn) };
        }
    }

    /// The next ids, at most `size`; `None` if there are none, or if they were drawn too long ago.
    pub(crate) fn take(&mut self, size: u64) -> Option<Range<u64>> {
        if self.is_empty() {
            return None;
        }
        let first = self.ids.start;
        self.ids.start = (first + size).min(self.ids.end);
        Some(first..self.ids.start)
    }

    /// Whether it has no ids that may be used.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() || self.drawn.is_none_or(|drawn| drawn.elapsed() >= USABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_lasts_for_half_a_minute_and_does_not_run_ahead_of_the_clock() {
        let check = |block, last, expected| {
            let now = UnixMillis(1_000_500);
            assert_eq!(Reserve::size_for(block, last, now), expected, "{block} after {last}");
        };
        check(1_000, 1_000_000_000, 30_000);
        check(1_000, 0, 30_000);
        check(32_000, 1_000_000_000, 960_000);
        check(100_000, 0, MOST);
        check(1_000, 1_000_990_000, 9_000);
        check(1_000, 1_000_999_500, 0);
        check(1_000, 2_000_000_000, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn its_ids_grow_and_become_too_old() {
        let mut reserve = Reserve::default();
        assert_eq!(reserve.take(1), None);
        reserve.replace(100..130, Instant::now());
        assert_eq!(reserve.take(20), Some(100..120));
        // A draw that took long is answered after a later one.
        reserve.replace(50..80, Instant::now());
        assert_eq!(reserve.take(20), Some(120..130));
        assert_eq!(reserve.take(20), None);
        reserve.replace(200..230, Instant::now());
        tokio::time::advance(USABLE).await;
        assert_eq!(reserve.take(1), None);
    }
}
