//! The difference between the store's clock and ours.
//!
//! # When a clock jumps
//!
//! | which | what happens |
//! |---|---|
//! | ours, forward | the lanes wake by it, at most a second later; their claims find nothing due, and correct the difference |
//! | ours, back | the next look, within a second, corrects the difference, and sleepers count by it at their next breath |
//! | the store's (Redis) | the same; what is due by its new time is seen by the next look |
//! | the machine's, under an embedded store | both are one clock, and the difference stays nought |
//!
//! None of these fires early, for due is what the store says. None of them spins: each wrong waking
//! is followed by an answer that puts the difference right.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::model::clock::{Clock, UnixMillis};

/// Turns the store's moments into ours. Each answer of the store that carries its now corrects it.
///
/// The difference stays as it is for as long as no answer contradicts it. One smaller than the
/// answer took cannot be told from none, and counts as none: so on one machine, or with the
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
        let took = self.clock.now().0 - asked.0;
        if took < 0 {
            // Our clock was set back meanwhile: this answer tells nothing, the next one will.
            return;
        }
        let seen = store_now.0 - (asked.0 + took / 2);
        let fits = |ahead: i64| (seen - ahead).abs() <= took / 2 + 1;
        let known = self.ahead_ms.load(Ordering::Relaxed);
        let ahead = [known, 0].into_iter().find(|&ahead| fits(ahead)).unwrap_or(seen);
        self.ahead_ms.store(ahead, Ordering::Relaxed);
    }

    /// The store's now, as far as we know.
    pub(super) fn store_now(&self) -> UnixMillis {
        UnixMillis(self.clock.now().0 + self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Returns when the store's clock has reached `moment`, as far as we know: what is learnt
    /// meanwhile counts.
    pub(super) async fn sleep_until(&self, moment: UnixMillis) {
        while self.store_now() < moment {
            let ahead = self.ahead_ms.load(Ordering::Relaxed);
            self.clock.doze_until(UnixMillis(moment.0 - ahead)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(ms: i64) -> (StoreTime, Clock) {
        let clock = Clock::manual(UnixMillis(ms));
        (StoreTime::new(clock.clone()), clock)
    }

    #[test]
    fn a_skewed_store_is_followed_and_noise_is_not() {
        let check = |store_now: i64, asked: i64, ahead: i64| {
            let (time, _) = at(10_000);
            time.saw(UnixMillis(store_now), UnixMillis(asked));
            assert_eq!(
                time.store_now().0,
                10_000 + ahead,
                "store at {store_now}, asked at {asked}"
            );
        };
        check(10_000, 10_000, 0);
        check(9_999, 9_998, 0);
        check(9_991, 9_990, 0);
        check(13_000, 10_000, 3_000);
        check(7_000, 10_000, -3_000);
        check(12_995, 9_990, 3_000);
    }

    #[test]
    fn a_known_difference_stays_until_an_answer_contradicts_it() {
        let (time, clock) = at(10_000);
        let check = |store_now: i64, asked: i64, ahead: i64| {
            time.saw(UnixMillis(store_now), UnixMillis(asked));
            assert_eq!(
                time.store_now().0,
                clock.now().0 + ahead,
                "store at {store_now}, asked at {asked}"
            );
        };
        check(13_000, 10_000, 3_000);
        check(13_001, 10_000, 3_000);
        check(13_010, 10_000, 3_010);
        // It took eight seconds: that fits any difference up to four, so it says nothing new.
        check(8_000, 2_000, 3_010);
        check(10_000, 10_000, 0);
        check(10_000 + HOUR, 10_000, HOUR);
        // Our clock was set back while the answer was on its way.
        check(10_000, 10_000 + HOUR, HOUR);
    }

    #[tokio::test]
    async fn a_sleeper_follows_the_difference_when_our_clock_is_set_back() {
        // Without this a task due in ten seconds was slept towards for an hour, and rested on the
        // look to be fired at all.
        let (time, clock) = at(HOUR);
        let mut sleeper = std::pin::pin!(time.sleep_until(UnixMillis(HOUR + 10_000)));
        assert!(poll!(sleeper.as_mut()).is_pending());
        clock.set(UnixMillis(1_000));
        time.saw(UnixMillis(HOUR + 1_000), clock.now());
        assert!(poll!(sleeper.as_mut()).is_pending());
        clock.advance(Duration::from_millis(8_999));
        assert!(poll!(sleeper.as_mut()).is_pending());
        clock.advance(Duration::from_millis(1));
        assert!(poll!(sleeper.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn a_sleeper_is_not_woken_early_by_a_jump_that_was_noticed() {
        let (time, clock) = at(1_000);
        let mut sleeper = std::pin::pin!(time.sleep_until(UnixMillis(11_000)));
        assert!(poll!(sleeper.as_mut()).is_pending());
        clock.set(UnixMillis(HOUR));
        time.saw(UnixMillis(2_000), clock.now());
        assert!(poll!(sleeper.as_mut()).is_pending());
        clock.advance(Duration::from_secs(9));
        assert!(poll!(sleeper.as_mut()).is_ready());
    }
}
