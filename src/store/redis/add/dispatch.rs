//! Sends the requests of one server's queue in batches, several of which may be under way.
//!
//! Two batches at a time are enough for a server that is near: one is gathered while the other is
//! with Redis, and the batches are large. To a server that is far away, two for each millisecond of
//! the round trip are sent at once. Further batches are sent after short intervals. So no request
//! waits for the answer to another batch, unless [`MOST_UNDER_WAY`] are under way. With
//! `wait_replicas` there is one batch at a time, because the wait blocks the connection.
//!
//! Ids are drawn by batches in the order of the queue, so they grow in that order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::batch::Batch;
use super::request::Request;
use crate::store::redis::arguments::MOST_BYTES;
use crate::store::redis::session::Session;

/// The most requests in one batch.
const MOST_REQUESTS: usize = 512;
/// How many batches are sent without an interval, for each whole millisecond of the round trip.
const AT_ONCE: usize = 2;
/// The most batches under way.
const MOST_UNDER_WAY: usize = 16;
/// The interval before each further batch.
const INTERVAL: Duration = Duration::from_micros(500);

/// Sends the requests for a server until no more will come.
pub(super) async fn run(session: Arc<Session>, server: u64, mut requests: mpsc::Receiver<Request>) {
    let most = if session.wait_replicas > 0 { 1 } else { MOST_UNDER_WAY };
    let mut under_way = UnderWay::new(most);
    loop {
        under_way.room(at_once(session.servers.round_trip(server))).await;
        let Some(gathered) = gather(&mut requests, under_way.most_bytes()).await else { break };
        let batch = Batch::with_ids(&session, gathered).await;
        under_way.start(send(session.clone(), batch));
    }
    // Without this, the batches would be cut off.
    while under_way.batches.join_next().await.is_some() {}
}

/// How many batches are sent without an interval.
fn at_once(round_trip: Duration) -> usize {
    let milliseconds = round_trip.as_millis().clamp(1, MOST_UNDER_WAY as u128) as usize;
    (AT_ONCE * milliseconds).min(MOST_UNDER_WAY)
}

/// The batches that are with Redis.
struct UnderWay {
    batches: JoinSet<()>,
    most: usize,
    last: Instant,
}

impl UnderWay {
    fn new(most: usize) -> Self {
        Self { batches: JoinSet::new(), most, last: Instant::now() }
    }

    /// Returns once another batch may be sent; without an interval if fewer than `at_once` are
    /// under way.
    async fn room(&mut self, at_once: usize) {
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
    fn most_bytes(&self) -> usize {
        if self.batches.len() < AT_ONCE { MOST_BYTES } else { MOST_BYTES / MOST_UNDER_WAY }
    }

    fn start(&mut self, batch: impl Future<Output = ()> + Send + 'static) {
        self.last = Instant::now();
        self.batches.spawn(batch);
    }
}

async fn send(session: Arc<Session>, mut batch: Batch) {
    batch.send_all(&session).await;
    batch.answer();
    if !batch.refused.is_empty() {
        // The registry may be on another server, which may be unreachable. The next batch and the
        // rest of this one must not wait for it.
        tokio::spawn(async move { batch.open_lanes(&session).await });
    }
}

/// Waits for a request, and takes those behind it up to the size of one batch. Leaves out requests
/// whose callers were refused meanwhile: their tasks must not be stored. Returns `None` when no
/// more requests will come.
async fn gather(requests: &mut mpsc::Receiver<Request>, most_bytes: usize) -> Option<Vec<Request>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    // If all requests are abandoned there is no batch: it would draw ids without use, while other
    // requests wait for theirs.
    while batch.is_empty() {
        let mut next = Some(requests.recv().await?);
        // Lets callers that are about to add enter the queue. If there are none, this takes no
        // time.
        tokio::task::yield_now().await;
        while let Some(request) = next {
            if !request.is_abandoned() {
                bytes += request.tasks.iter().map(|task| task.content.len()).sum::<usize>();
                batch.push(request);
            }
            next = if batch.len() < MOST_REQUESTS && bytes < most_bytes {
                requests.try_recv().ok()
            } else {
                None
            };
        }
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::redis::add::testing::request;

    #[tokio::test]
    async fn there_is_no_batch_of_those_who_have_gone() {
        let (sender, mut receiver) = mpsc::channel(8);
        for _ in 0..3 {
            sender.try_send(request(1).0).unwrap();
        }
        let (stays, _answered) = request(2);
        let (gathered, ()) = tokio::join!(gather(&mut receiver, MOST_BYTES), async {
            // The three have been read by now.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            sender.try_send(stays).unwrap();
        });
        assert_eq!(
            gathered.unwrap().iter().map(|request| request.tasks.len()).collect::<Vec<_>>(),
            [2]
        );
        sender.try_send(request(1).0).unwrap();
        drop(sender);
        assert!(gather(&mut receiver, MOST_BYTES).await.is_none());
    }

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
