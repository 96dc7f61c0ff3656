//! The load: requests over a fixed number of connections, and their results.
//!
//! Closed loop: each connection sends its next request after the answer to the last. This measures
//! throughput, and slows down with the service.
//!
//! Open loop: the send times are planned in advance, and latency counts from the planned time, not
//! from the time of sending. So a stall of the service also counts for requests that it delays
//! ("coordinated omission": Gil Tene, "How NOT to Measure Latency"). Timers of tokio have a
//! resolution of a millisecond, which is included.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use tokio::time::{Instant, sleep_until};

use crate::account::{Accepted, accepted_in, histogram};
use crate::progress::Progress;
use crate::wire::{Connection, Peer, Refused};

/// The wait before an unconfirmed request is repeated, and how often it is repeated.
const REST: Duration = Duration::from_millis(250);
const REPEATS: u32 = 100;

/// When requests are sent.
#[derive(Clone, Debug)]
pub(crate) enum Pace<'a> {
    /// Closed loop, for this time.
    For(Duration),
    /// Closed loop, this many in total.
    Count(u64),
    /// Closed loop, this many in total. Unconfirmed ones are repeated, and may be stored twice.
    Fill(u64),
    /// Open loop: this many per second, this many in total.
    Rate(f64, u64),
    /// Open loop: this many per second, until the flag is set.
    RateUntil(f64, &'a Cell<bool>),
}

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// From the first request to the last answer.
    took: Duration,
    /// Per request, in microseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) accepted: Vec<Accepted>,
    /// How often requests were repeated.
    pub(crate) unconfirmed: u64,
    /// The last answer to an unconfirmed request.
    pub(crate) refusal: Option<Refused>,
}

impl Load {
    pub(crate) fn tasks_per_s(&self) -> f64 {
        self.accepted.len() as f64 / self.took.as_secs_f64()
    }
}

/// Sends adds, or batches of them; `request` creates request number n.
///
/// # Errors
/// The first answer that does not accept all tasks, or a broken connection: such a load measures
/// nothing.
pub(crate) async fn adds(
    to: &Peer,
    connections: usize,
    pace: Pace<'_>,
    request: impl Fn(u64) -> Bytes,
    progress: &Progress,
) -> anyhow::Result<Load> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(to.connect().await?);
    }
    let load = RefCell::new(Load {
        requests: 0,
        took: Duration::ZERO,
        latency: histogram(),
        accepted: Vec::new(),
        unconfirmed: 0,
        refusal: None,
    });
    let run = Run { pace, begun: Instant::now(), next: Cell::new(0), request, load, progress };
    try_join_all(open.into_iter().map(|connection| run.call(connection))).await?;
    let took = run.begun.elapsed();
    Ok(Load { took, ..run.load.into_inner() })
}

/// A load that runs.
struct Run<'a, R> {
    pace: Pace<'a>,
    begun: Instant,
    next: Cell<u64>,
    request: R,
    load: RefCell<Load>,
    progress: &'a Progress,
}

impl<R: Fn(u64) -> Bytes> Run<'_, R> {
    async fn call(&self, mut connection: Connection) -> anyhow::Result<()> {
        let repeats = if matches!(self.pace, Pace::Fill(_)) { REPEATS } else { 0 };
        while let Some((number, since)) = self.next().await {
            let request = (self.request)(number);
            let mut answer = connection.exchange(&request).await?;
            for _ in 0..repeats {
                if answer.status != 503 {
                    break;
                }
                self.load.borrow_mut().unconfirmed += 1;
                self.load.borrow_mut().refusal = Some(answer.refused());
                tokio::time::sleep(REST).await;
                answer = connection.exchange(&request).await?;
            }
            let mut load = self.load.borrow_mut();
            load.requests += 1;
            load.latency.saturating_record(micros(since.elapsed()));
            if answer.status != 200 || accepted_in(answer.body, &mut load.accepted).is_none() {
                return Err(answer.refused().into());
            }
            self.progress.add(1);
        }
        Ok(())
    }

    /// The number of the next request, and the time from which its latency counts.
    async fn next(&self) -> Option<(u64, Instant)> {
        let number = self.next.replace(self.next.get() + 1);
        let (rate, goes_on) = match self.pace {
            Pace::For(span) => (None, self.begun.elapsed() < span),
            Pace::Count(count) | Pace::Fill(count) => (None, number < count),
            Pace::Rate(rate, count) => (Some(rate), number < count),
            Pace::RateUntil(rate, stop) => (Some(rate), !stop.get()),
        };
        if !goes_on {
            return None;
        }
        let Some(rate) = rate else { return Some((number, Instant::now())) };
        let planned = self.begun + Duration::from_secs_f64(number as f64 / rate);
        sleep_until(planned).await;
        Some((number, planned))
    }
}

/// In microseconds, at least one, the minimum of histograms.
pub(crate) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
}
