//! The difference between the store's clock and ours.
//!
//! # When a clock jumps
//!
//! - *Ours, forward*: the lanes wake within a second. Their claims find nothing due, and correct
//!   the difference.
//! - *Ours, back*: the next poll corrects the difference within a second, and sleeping lanes use it
//!   when they check the clock next.
//! - *The store's (Redis)*: the same. The next poll finds what is due by the new time.
//! - *The machine's, with the embedded store*: both use this clock, and the difference stays 0.
//!
//! No jump makes a task early, because the store decides what is due. No jump makes a lane spin:
//! each wrong wake-up leads to an answer that corrects the difference.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::model::clock::{Clock, UnixMillis};

/// Converts between the store's time and ours. Each answer that has the store's now corrects it.
///
/// The known difference stays until an answer contradicts it. A difference smaller than the
/// duration of the request counts as none. So if both clocks are one, lanes wake at the exact
/// millisecond.
#[derive(Debug)]
pub(super) struct StoreTime {
    clock: Clock,
    ahead_ms: AtomicI64,
    /// The store's time by the last answer, when that came, and how long it took.
    last: Mutex<Option<(UnixMillis, Instant, Duration)>>,
    /// When a server last agreed with our clock. Then ours is right, and that of another is wrong.
    agreed: Mutex<Option<Instant>>,
    /// Whether a wrong clock was logged.
    has_warned: AtomicBool,
    metrics: Arc<Metrics>,
}

/// A larger difference between the clocks is an error of one of them. Receivers refuse signatures
/// whose time is five minutes off.
const WRONG_MS: u64 = 60_000;

/// How long it counts that a server agreed with our clock.
const AGREES_FOR: Duration = Duration::from_secs(10);

impl StoreTime {
    pub(super) fn new(clock: Clock, metrics: Arc<Metrics>) -> Self {
        let (ahead_ms, has_warned) = (AtomicI64::new(0), AtomicBool::new(false));
        let (last, agreed) = Default::default();
        Self { clock, ahead_ms, last, agreed, has_warned, metrics }
    }

    /// Learns from an answer that has just arrived. `asked` is when the request was sent, by our
    /// clock.
    pub(super) fn saw(&self, store_now: UnixMillis, asked: UnixMillis) {
        let took = self.clock.now().0 - asked.0;
        if took < 0 {
            // Our clock was set back meanwhile, so this answer says nothing.
            return;
        }
        let seen = store_now.0 - (asked.0 + took / 2);
        if seen.unsigned_abs() <= WRONG_MS {
            *self.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let fits = |ahead: i64| (seen - ahead).abs() <= took / 2 + 1;
        let known = self.ahead_ms.load(Ordering::Relaxed);
        let ahead = [known, 0].into_iter().find(|&ahead| fits(ahead)).unwrap_or(seen);
        if ahead != known {
            self.ahead_ms.store(ahead, Ordering::Relaxed);
            self.metrics.worker.clock_is_ahead(ahead);
            // Several Redis servers may differ from each other, so this could be logged again and
            // again.
            if ahead.unsigned_abs() > WRONG_MS && !self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    ahead_ms = ahead,
                    "The store's clock and that of this instance differ by more than a minute; \
                     callbacks are signed by the store's clock"
                );
            }
        }
        self.note_jump(store_now, Duration::from_millis(took.unsigned_abs()));
    }

    /// Notes the time that the store's clock has skipped since its last answer. The store may have
    /// read its clock long before that answer came: such a wait is no jump.
    fn note_jump(&self, store_now: UnixMillis, took: Duration) {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, at, waited)) = last.replace((store_now, now, took)) {
            let expected = before + now.duration_since(at);
            let delays = &self.metrics.lateness.delays;
            if expected + waited + JUMP <= store_now {
                delays.saw_jump(expected, store_now);
            } else if store_now + took + JUMP <= expected {
                delays.saw_jump_back();
            }
        }
    }

    /// The store's now, by what is known of its clock.
    pub(super) fn store_now(&self) -> UnixMillis {
        self.at(self.clock.now())
    }

    /// The store's time at this moment of our clock.
    pub(super) fn at(&self, ours: UnixMillis) -> UnixMillis {
        UnixMillis(ours.0 + self.ahead_ms.load(Ordering::Relaxed))
    }

    /// How far the clock to sign by is ahead of ours, in milliseconds. It is the store's clock if
    /// ours is wrong by it, because all instances share that one. If one of several servers agrees
    /// with ours, ours counts.
    pub(super) fn signing_ahead_ms(&self) -> i64 {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        if ahead.unsigned_abs() <= WRONG_MS || self.has_agreed() { 0 } else { ahead }
    }

    /// Whether a server agreed with our clock lately.
    fn has_agreed(&self) -> bool {
        let agreed = *self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        agreed.is_some_and(|at| at.elapsed() < AGREES_FOR)
    }

    /// Returns when the store's clock has reached `moment`, by what is known of it then.
    pub(super) async fn sleep_until(&self, moment: UnixMillis) {
        while self.store_now() < moment {
            let ahead = self.ahead_ms.load(Ordering::Relaxed);
            self.clock.doze_until(UnixMillis(moment.0 - ahead)).await;
        }
    }
}

/// Compares our wall clock with the monotonic clock, which never jumps.
#[derive(Debug)]
pub(super) struct JumpWatch {
    clock: Clock,
    seen: ClockReading,
}

/// A reading of the wall clock, and the monotonic times before and after it.
#[derive(Debug)]
struct ClockReading {
    wall: UnixMillis,
    between: (Instant, Instant),
}

impl ClockReading {
    fn now(clock: &Clock) -> Self {
        let before = Instant::now();
        let wall = clock.now();
        Self { wall, between: (before, Instant::now()) }
    }
}

/// A smaller difference is the gradual correction of a clock.
const JUMP: Duration = Duration::from_millis(500);

impl JumpWatch {
    pub(super) fn new(clock: Clock) -> Self {
        let seen = ClockReading::now(&clock);
        Self { clock, seen }
    }

    /// Whether our clock has jumped since the last call.
    pub(super) fn has_jumped(&mut self) -> bool {
        let ClockReading { wall, between } =
            std::mem::replace(&mut self.seen, ClockReading::now(&self.clock));
        let least = self.seen.between.0.duration_since(between.1);
        let most = self.seen.between.1.duration_since(between.0);
        self.seen.wall + JUMP <= wall + least || wall + most + JUMP <= self.seen.wall
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;
    use crate::model::culprit::Culprit;

    const HOUR: i64 = 3_600_000;

    fn at(ms: i64) -> (StoreTime, Clock) {
        let clock = Clock::manual(UnixMillis(ms));
        (StoreTime::new(clock.clone(), Metrics::new([])), clock)
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
    fn calls_are_signed_by_the_stores_clock_if_ours_is_wrong() {
        let check = |ahead: i64, expected: i64| {
            let (time, _) = at(HOUR);
            time.saw(UnixMillis(HOUR + ahead), UnixMillis(HOUR));
            assert_eq!(time.signing_ahead_ms(), expected, "{ahead}");
            assert_eq!(time.has_warned.load(Ordering::Relaxed), expected != 0, "{ahead}");
        };
        check(0, 0);
        check(60_000, 0);
        check(-60_000, 0);
        check(60_001, 60_001);
        check(-HOUR, -HOUR);
    }

    /// One wrong server of a cluster would make the signatures of all lanes wrong.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_agrees_with_our_clock_outweighs_a_wrong_one() {
        let (time, _) = at(HOUR);
        time.saw(UnixMillis(HOUR + 10), UnixMillis(HOUR));
        time.saw(UnixMillis(2 * HOUR), UnixMillis(HOUR));
        assert_eq!(time.signing_ahead_ms(), 0);
        tokio::time::advance(AGREES_FOR).await;
        assert_eq!(time.signing_ahead_ms(), HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_our_clock_is_noticed_once_and_a_slow_second_is_none() {
        let clock = Clock::running(UnixMillis(HOUR));
        let mut watch = JumpWatch::new(clock.clone());
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!watch.has_jumped());
        clock.set(UnixMillis(1_000));
        assert!(watch.has_jumped());
        assert!(!watch.has_jumped());
        clock.advance(Duration::from_millis(500));
        assert!(watch.has_jumped());
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
        // The request took eight seconds: the answer fits any difference up to four seconds.
        check(8_000, 2_000, 3_010);
        check(10_000, 10_000, 0);
        check(10_000 + HOUR, 10_000, HOUR);
        // Our clock was set back during the request.
        check(10_000, 10_000 + HOUR, HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_the_stores_clock_skips_is_no_lateness() {
        let (time, clock) = at(10_000);
        let see = |store_now: i64| time.saw(UnixMillis(store_now), clock.now());
        see(10_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        see(11_400);
        tokio::time::advance(Duration::from_secs(1)).await;
        let late = |due: i64, until: i64| {
            let delays = &time.metrics.lateness.delays;
            delays.begins(UnixMillis(0));
            let of_topic = delays.of(&"t".parse().unwrap());
            let late = of_topic.charge(UnixMillis(due), UnixMillis(until), &[], Culprit::Delayd);
            (late.part(Culprit::Delayd).as_millis(), late.part(Culprit::Clock).as_millis())
        };
        assert_eq!(late(10_000, 12_400), (2_400, 0));
        see(HOUR);
        assert_eq!(late(12_000, HOUR + 7), (407, HOUR as u128 - 12_400));
        tokio::time::advance(Duration::from_secs(1)).await;
        see(2_000);
        assert_eq!(late(12_000, 20_000), (8_000, 0), "the clock was set back");
        see(HOUR + 1_000);
        assert_eq!(late(12_000, HOUR + 1_000), (0, HOUR as u128 - 11_000));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_after_a_slow_one_shows_no_jump() {
        let (time, clock) = at(10_000);
        // The store read its clock at the beginning of two seconds.
        time.saw(UnixMillis(8_000), UnixMillis(8_000));
        tokio::time::advance(Duration::from_millis(10)).await;
        clock.advance(Duration::from_millis(10));
        time.saw(UnixMillis(10_010), clock.now());
        let delays = &time.metrics.lateness.delays;
        delays.begins(UnixMillis(0));
        let of_topic = delays.of(&"t".parse().unwrap());
        let late = of_topic.charge(UnixMillis(0), UnixMillis(10_010), &[], Culprit::Delayd);
        assert_eq!(late.part(Culprit::Clock), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_sleeper_follows_the_difference_when_our_clock_is_set_back() {
        // The lane slept for an hour until a task that was due in ten seconds. Only the poll found
        // it earlier.
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
