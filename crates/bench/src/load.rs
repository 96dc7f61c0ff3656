//! The load: requests over a fixed number of connections, and their results.
//!
//! Closed loop: each connection sends its next request after the answer to the last. This measures
//! throughput, and slows down with the service.
//!
//! Open loop: the send times are planned in advance, and latency counts from the planned time, not
//! from the time of sending. So a stall of the service also counts for requests that it delays
//! ("coordinated omission": Gil Tene, "How NOT to Measure Latency"). Timers of tokio have a
//! resolution of a millisecond, which is included.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::account::{Accepted, accepted_in, histogram};
use crate::error::Error;
use crate::progress::Progress;
use crate::wire::{Answer, Connection, Peer};

/// The wait before an unconfirmed request is repeated.
const REST: Duration = Duration::from_millis(250);

/// When requests are sent.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    /// Closed loop, for this time.
    For(Duration),
    /// Closed loop, this many in total.
    Count(u64),
    /// Closed loop, this many in total. Unconfirmed ones are repeated, and may be stored twice.
    Fill(u64),
    /// Open loop: this many per second, this many in total.
    Rate(f64, u64),
    /// Open loop: this many per second, until the flag is set.
    RateUntil(f64, Arc<AtomicBool>),
}

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// From the first request to the last answer.
    pub(crate) took: Duration,
    /// Per request, in microseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) accepted: Vec<Accepted>,
    /// How often requests were repeated.
    pub(crate) unconfirmed: u64,
    /// The last answer to an unconfirmed request.
    pub(crate) refusal: Option<Error>,
}

impl Load {
    pub(crate) fn tasks_per_s(&self) -> f64 {
        self.accepted.len() as f64 / self.took.as_secs_f64()
    }
}

struct Tally {
    requests: u64,
    latency: Histogram<u64>,
    accepted: Vec<Accepted>,
    unconfirmed: u64,
    refusal: Option<Error>,
}

struct Plan {
    pace: Pace,
    begun: Instant,
    next: AtomicU64,
}

impl Plan {
    /// How often an unconfirmed request is repeated.
    fn repeats(&self) -> u32 {
        if matches!(self.pace, Pace::Fill(_)) { 100 } else { 0 }
    }

    /// The number of the next request, and the time from which its latency counts.
    async fn next(&self) -> Option<(u64, Instant)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (rate, goes_on) = match &self.pace {
            Pace::For(span) => (None, self.begun.elapsed() < *span),
            Pace::Count(count) | Pace::Fill(count) => (None, number < *count),
            Pace::Rate(rate, count) => (Some(rate), number < *count),
            Pace::RateUntil(rate, stop) => (Some(rate), !stop.load(Ordering::Relaxed)),
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

/// Sends adds, or batches of them; `request` creates request number n.
///
/// # Errors
/// The first answer that does not accept all tasks, or a broken connection: such a load measures
/// nothing.
pub(crate) async fn adds(
    to: &Peer,
    connections: usize,
    pace: Pace,
    request: impl Fn(u64) -> Bytes + Clone + Send + 'static,
    progress: &Progress,
) -> Result<Load, Error> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(to.connect().await.map_err(Error::Broken)?);
    }
    let tally = Arc::new(Mutex::new(Tally {
        requests: 0,
        latency: histogram(),
        accepted: Vec::new(),
        unconfirmed: 0,
        refusal: None,
    }));
    let plan = Arc::new(Plan { pace, begun: Instant::now(), next: AtomicU64::new(0) });
    let mut callers = JoinSet::new();
    for connection in open {
        callers.spawn(call(
            connection,
            plan.clone(),
            tally.clone(),
            request.clone(),
            progress.clone(),
        ));
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller does not panic")?;
    }
    let took = plan.begun.elapsed();
    let tally = Arc::into_inner(tally).expect("the callers have ended");
    let Tally { requests, latency, accepted, unconfirmed, refusal } =
        tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Load { requests, took, latency, accepted, unconfirmed, refusal })
}

async fn call(
    mut connection: Connection,
    plan: Arc<Plan>,
    tally: Arc<Mutex<Tally>>,
    request: impl Fn(u64) -> Bytes,
    progress: Progress,
) -> Result<(), Error> {
    while let Some((number, since)) = plan.next().await {
        let request = request(number);
        let mut answer = connection.exchange(&request).await.map_err(Error::Broken)?;
        for _ in 0..plan.repeats() {
            if answer.status != 503 {
                break;
            }
            {
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.unconfirmed += 1;
                tally.refusal = Some(Error::refused(&answer));
            }
            tokio::time::sleep(REST).await;
            answer = connection.exchange(&request).await.map_err(Error::Broken)?;
        }
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.requests += 1;
        tally.latency.saturating_record(micros(since.elapsed()));
        note(&answer, &mut tally.accepted)?;
        progress.add(1);
    }
    Ok(())
}

/// Records the accepted tasks of an answer.
fn note(answer: &Answer<'_>, accepted: &mut Vec<Accepted>) -> Result<(), Error> {
    let is_whole = answer.status == 200 && accepted_in(answer.body, accepted).is_some();
    if is_whole { Ok(()) } else { Err(Error::refused(answer)) }
}

/// In microseconds, at least one, the minimum of histograms.
pub(crate) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
}
