//! The wall clock: tasks fall due by it, and arrivals are timed by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest sleep before the clock is read again, in case it was set.
const RECHECK: Duration = Duration::from_secs(1);

/// Microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "the only place that reads the clock")]
pub(crate) fn now_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    now_us() / 1_000
}

/// Returns once the clock has reached this millisecond, never before.
pub(crate) async fn sleep_until(ms: i64) {
    while let Ok(left @ 1..) = u64::try_from(ms - now_ms()) {
        tokio::time::sleep(Duration::from_millis(left).min(RECHECK)).await;
    }
}
