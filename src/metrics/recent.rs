//! The last durations of something, for operators: quantiles of the last minute.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The most durations that are remembered: a kibibyte.
const MOST: usize = 128;

/// Older durations do not count, in seconds.
const WINDOW: u64 = 60;

/// The seconds of all rings count from here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The second of now, from 1: 0 marks an empty slot.
fn second() -> u64 {
    START.elapsed().as_secs() + 1
}

/// The last durations, at most 128. Notes take no lock; a reader may miss one that is written
/// meanwhile.
#[derive(Debug)]
pub struct RecentDurations {
    /// The second in the upper half, the microseconds in the lower one.
    slots: Box<[AtomicU64; MOST]>,
    next: AtomicUsize,
}

/// The figures of some durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// The number of durations.
    pub count: usize,
    /// Their median.
    pub p50: Option<Duration>,
    /// Their 99th percentile.
    pub p99: Option<Duration>,
}

impl Default for RecentDurations {
    fn default() -> Self {
        Self { slots: Box::new([const { AtomicU64::new(0) }; MOST]), next: AtomicUsize::new(0) }
    }
}

impl RecentDurations {
    /// Notes a duration; more than 71 minutes count as 71 minutes.
    pub(super) fn note(&self, took: Duration) {
        let micros = took.as_micros().min(u32::MAX.into()) as u64;
        let at = self.next.fetch_add(1, Ordering::Relaxed) % MOST;
        self.slots[at].store(second() << 32 | micros, Ordering::Relaxed);
    }

    /// The durations of the last minute, in microseconds.
    fn micros(&self) -> impl Iterator<Item = u64> {
        let first = second().saturating_sub(WINDOW).max(1);
        self.slots.iter().filter_map(move |slot| {
            let slot = slot.load(Ordering::Relaxed);
            (slot >> 32 >= first).then_some(slot & u64::from(u32::MAX))
        })
    }
}

/// The figures of the last minute over all of these rings.
pub(super) fn quantiles<'a>(all: impl IntoIterator<Item = &'a RecentDurations>) -> Quantiles {
    let mut micros: Vec<u64> = all.into_iter().flat_map(RecentDurations::micros).collect();
    micros.sort_unstable();
    // The nearest rank.
    let quantile = |percent: usize| {
        let rank = (micros.len() * percent).div_ceil(100).saturating_sub(1);
        micros.get(rank).map(|micros| Duration::from_micros(*micros))
    };
    Quantiles { count: micros.len(), p50: quantile(50), p99: quantile(99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_durations_of_a_minute_count() {
        let (one, other) = (RecentDurations::default(), RecentDurations::default());
        assert_eq!(quantiles([&one]), Quantiles::default());
        for millis in 1..=200 {
            one.note(ms(millis));
        }
        let last = Quantiles { count: MOST, p50: Some(ms(136)), p99: Some(ms(199)) };
        assert_eq!(quantiles([&one]), last);
        other.note(Duration::MAX);
        assert_eq!(quantiles([&one, &other]).count, MOST + 1);
        tokio::time::advance(ms(61_000)).await;
        assert_eq!(quantiles([&one, &other]), Quantiles::default());
        other.note(ms(7));
        let newest = Quantiles { count: 1, p50: Some(ms(7)), p99: Some(ms(7)) };
        assert_eq!(quantiles([&one, &other]), newest);
    }
}
