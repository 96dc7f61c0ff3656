//! Wall-clock time in milliseconds, and how it relates to the monotonic time of tokio.
//!
//! Due times, leases and history are wall-clock times ([`UnixMillis`]); timeouts and backoff sleeps
//! are monotonic. Only [`Clock`] reads the wall clock (`clippy.toml` bans it elsewhere), so tests
//! can replace it.
//!
//! A sleep until a wall-clock time reads the clock at least once per second, so a jump of the clock
//! neither stalls nor spins a sleeper.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

/// The maximum sleep before the wall clock is read again.
const RECHECK: Duration = Duration::from_secs(1);

/// A moment, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The moment as RFC 3339 in UTC with milliseconds, `2026-11-21T12:30:00.000Z`; after the year
    /// 9999, the number.
    pub fn rfc3339(self) -> String {
        match Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => format!("{timestamp:.3}"),
            Err(_) => self.to_string(),
        }
    }
}

impl Add<Duration> for UnixMillis {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for UnixMillis {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The wall clock, or a replacement for tests: one that is set manually, or one that follows the
/// time of tokio. Cheap to clone; clones share the time.
#[derive(Clone, Debug, Default)]
pub struct Clock(TimeSource);

#[derive(Clone, Debug, Default)]
enum TimeSource {
    #[default]
    System,
    Manual(Arc<watch::Sender<UnixMillis>>),
    Running {
        since: Instant,
        start: Arc<AtomicI64>,
    },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(TimeSource::System)
    }

    /// A clock that stays at `start` until [`Clock::set`] or [`Clock::advance`].
    pub fn manual(start: UnixMillis) -> Self {
        Self(TimeSource::Manual(Arc::new(watch::Sender::new(start))))
    }

    /// A clock that starts at `start` and follows the time of tokio, which a test may pause.
    /// [`Clock::set`] and [`Clock::advance`] make it jump without waking sleepers, like the
    /// machine's clock.
    pub fn running(start: UnixMillis) -> Self {
        Self(TimeSource::Running {
            since: Instant::now(),
            start: Arc::new(AtomicI64::new(start.0)),
        })
    }

    /// The wall-clock time.
    #[allow(clippy::disallowed_methods, reason = "the only place that reads the machine's clock")]
    pub fn now(&self) -> UnixMillis {
        match &self.0 {
            TimeSource::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                UnixMillis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
            }
            TimeSource::Manual(time) => *time.borrow(),
            TimeSource::Running { since, start } => {
                UnixMillis(start.load(Ordering::Relaxed)) + since.elapsed()
            }
        }
    }

    /// The wall-clock time in microseconds, for measurements. Clocks of tests have whole
    /// milliseconds.
    #[allow(clippy::disallowed_methods, reason = "the only place that reads the machine's clock")]
    pub fn now_micros(&self) -> i64 {
        match &self.0 {
            TimeSource::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
            }
            TimeSource::Manual(_) | TimeSource::Running { .. } => {
                self.now().0.saturating_mul(1_000)
            }
        }
    }

    /// The time of a clock of a test, or `None` for the machine's clock. Stores pass it to their
    /// scripts.
    pub fn manual_now(&self) -> Option<UnixMillis> {
        match &self.0 {
            TimeSource::System => None,
            TimeSource::Manual(_) | TimeSource::Running { .. } => Some(self.now()),
        }
    }

    /// Sets a clock of a test. Does nothing for the machine's clock.
    pub fn set(&self, to: UnixMillis) {
        match &self.0 {
            TimeSource::System => {}
            TimeSource::Manual(time) => drop(time.send_replace(to)),
            TimeSource::Running { since, start } => {
                start.store((to - since.elapsed()).0, Ordering::Relaxed)
            }
        }
    }

    /// Advances a clock of a test. Does nothing for the machine's clock.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Returns once the wall clock has reached `moment`, never before.
    pub async fn sleep_until(&self, moment: UnixMillis) {
        while self.now() < moment {
            self.doze_until(moment).await;
        }
    }

    /// Returns at `moment` or earlier: after a second, or when a manual clock moves. For callers
    /// that check other conditions as well.
    pub async fn doze_until(&self, moment: UnixMillis) {
        match &self.0 {
            TimeSource::System | TimeSource::Running { .. } => {
                tokio::time::sleep(moment.since(self.now()).min(RECHECK)).await;
            }
            TimeSource::Manual(time) => {
                let mut time = time.subscribe();
                if *time.borrow_and_update() < moment {
                    // `self` owns the sender, so the wait ends only by a move.
                    let _ = time.changed().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_a_sleeper_only_at_its_moment() {
        let clock = Clock::manual(UnixMillis(1_000));
        let mut sleeper = std::pin::pin!(clock.sleep_until(UnixMillis(2_000)));
        clock.advance(Duration::from_millis(999));
        assert!(futures_util::poll!(sleeper.as_mut()).is_pending());
        clock.advance(Duration::from_millis(1));
        assert!(futures_util::poll!(sleeper.as_mut()).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_clock_goes_with_tokios_time_and_jumps_when_it_is_set() {
        let clock = Clock::running(UnixMillis(1_000));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(clock.now(), UnixMillis(1_500));
        clock.set(UnixMillis(50));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(clock.now(), UnixMillis(60));
        clock.clone().advance(Duration::from_millis(40));
        assert_eq!(clock.now(), UnixMillis(100), "clones share the jumps");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_notices_a_jump_within_a_second() {
        let (clock, began) = (Clock::running(UnixMillis(0)), Instant::now());
        let jump = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            clock.set(UnixMillis(3_600_000));
        };
        tokio::join!(clock.sleep_until(UnixMillis(60_000)), jump);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        clock.set(UnixMillis(0));
        clock.sleep_until(UnixMillis(2_000)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn the_system_clock_never_wakes_a_sleeper_early() {
        let clock = Clock::system();
        let moment = clock.now() + Duration::from_millis(3);
        clock.sleep_until(moment).await;
        assert!(clock.now() >= moment);
    }
}
