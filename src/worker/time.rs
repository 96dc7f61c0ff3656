//! The difference between the store's clock and ours.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::{Clock, UnixMillis};

/// Turns the store's moments into ours. Each answer of the store that carries its now corrects it.
///
/// A difference smaller than the answer took cannot be told from none, and counts as none: so on one machine, or with the
/// embedded store, a moment is slept towards to the millisecond.
#[derive(Debug)]
pub(super) struct StoreTime {
    clock: Clock,
    ahead_ms: AtomicI64,
}

impl StoreTime {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, ahead_ms: AtomicI64::new(0) }
    }

    /// Learns from an answer that was asked for at `asked` by our clock, and came just now.
    pub(super) fn saw(&self, store_now: UnixMillis, asked: UnixMillis) {
        let now = self.clock.now();
        let took = now.0 - asked.0;
        let ahead = store_now.0 - (asked.0 + took / 2);
        let told_apart = ahead.abs() > took / 2 + 1;
        self.ahead_ms.store(if told_apart { ahead } else { 0 }, Ordering::Relaxed);
    }

    /// The store's now, as far as we know.
    pub(super) fn store_now(&self) -> UnixMillis {
        UnixMillis(self.clock.now().0 + self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Returns when the store's clock has reached `moment`, as far as we know.
    pub(super) async fn sleep_until(&self, moment: UnixMillis) {
        self.clock.sleep_until(UnixMillis(moment.0 - self.ahead_ms.load(Ordering::Relaxed))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_store_is_followed_and_noise_is_not() {
        let check = |store_now: i64, asked: i64, ahead: i64| {
            let time = StoreTime::new(Clock::manual(UnixMillis(10_000)));
            time.saw(UnixMillis(store_now), UnixMillis(asked));
            assert_eq!(time.store_now().0, 10_000 + ahead, "store at {store_now}, asked at {asked}");
        };
        check(10_000, 10_000, 0);
        check(9_999, 9_998, 0);
        check(9_991, 9_990, 0);
        check(13_000, 10_000, 3_000);
        check(7_000, 10_000, -3_000);
        check(12_995, 9_990, 3_000);
    }
}
