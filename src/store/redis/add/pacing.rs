//! How many batches of one server are under way.
//!
//! Two batches at a time are enough for a server that is near: one is gathered while the other is
//! with Redis, and the batches are large. To a server that is far away, two for each millisecond of
//! the round trip are sent at once. Further batches are sent after short intervals. So no request
//! waits for the answer to another batch, unless [`MOST_UNDER_WAY`] are under way. With
//! `wait_replicas` there is one batch at a time, because the wait blocks the connection.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::store::redis::arguments::MOST_BYTES;

/// How many batches are sent without an interval, for each whole millisecond of the round trip.
const AT_ONCE: usize = 2;
/// The most batches under way.
pub(super) const MOST_UNDER_WAY: usize = 16;
/// The interval before each further batch.
const INTERVAL: Duration = Duration::from_micros(500);

/// How many batches are sent without an interval.
pub(super) fn at_once(round_trip: Duration) -> usize {
    let milliseconds = round_trip.as_millis().clamp(1, MOST_UNDER_WAY as u128) as usize;
    (AT_ONCE * milliseconds).min(MOST_UNDER_WAY)
}

/// The batches that are with Redis.
pub(super) struct UnderWay {
    batches: JoinSet<()>,
    most: usize,
    last: Instant,
}

impl UnderWay {
    pub(super) fn new(most: usize) -> Self {
        Self { batches: JoinSet::new(), most, last: Instant::now() }
    }

    /// Returns once another batch may be sent; without an interval if fewer than `at_once` are
    /// under way.
    pub(super) async fn room(&mut self, at_once: usize) {
        while self.batches.try_join_next().is_some() {}
        while self.batches.len() >= at_once.min(self.most) {
            tokio::select! {
                biased;
                _ = self.batches.join_next() => {}
                () = tokio::time::sleep_until(self.last + INTERVAL),
                    if self.batches.len() < self.most => return,
            }
        }
    }

    /// The most bytes of the next batch. All further batches together take as much as one.
    pub(super) fn most_bytes(&self) -> usize {
        if self.batches.len() < AT_ONCE { MOST_BYTES } else { MOST_BYTES / MOST_UNDER_WAY }
    }

    pub(super) fn start(&mut self, batch: impl Future<Output = ()> + Send + 'static) {
        self.last = Instant::now();
        self.batches.spawn(batch);
    }

    /// Waits for all batches. Without this, they would be cut off.
    pub(super) async fn end(mut self) {
        while self.batches.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn more_batches_are_sent_at_once_to_a_far_server() {
        let check = |micros, expected| {
            assert_eq!(at_once(Duration::from_micros(micros)), expected, "{micros} µs");
        };
        check(0, 2);
        check(999, 2);
        check(2_100, 4);
        check(7_000, 14);
        check(1_000_000, MOST_UNDER_WAY);
    }

    /// There used to be two batches at most, so that a request waited for the answer to another
    /// batch, however far Redis was away.
    #[tokio::test(start_paused = true)]
    async fn further_batches_are_sent_after_an_interval_each() {
        let mut under_way = UnderWay::new(MOST_UNDER_WAY);
        let began = Instant::now();
        let mut sizes = Vec::new();
        for _ in 0..AT_ONCE {
            under_way.room(AT_ONCE).await;
            sizes.push(under_way.most_bytes());
            under_way.start(pending());
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in AT_ONCE..MOST_UNDER_WAY {
            let before = Instant::now();
            under_way.room(AT_ONCE).await;
            assert!(before.elapsed() >= INTERVAL);
            sizes.push(under_way.most_bytes());
            under_way.start(pending());
        }
        assert!(sizes.iter().sum::<usize>() <= (AT_ONCE + 1) * MOST_BYTES);
        let later = tokio::time::timeout(Duration::from_secs(60), under_way.room(AT_ONCE)).await;
        assert!(later.is_err(), "there is no limit");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_sent_at_once_when_another_has_ended() {
        let mut under_way = UnderWay::new(1);
        let (end, ended) = oneshot::channel::<()>();
        under_way.start(async move { ended.await.unwrap() });
        assert!(under_way.room(AT_ONCE).now_or_never().is_none());
        end.send(()).unwrap();
        let before = Instant::now();
        under_way.room(AT_ONCE).await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
