//! The load: requests over a fixed number of connections, and what came of them.
//!
//! Closed: each connection sends its next request as soon as the one before was answered. That
//! finds out what a service can do, and slows down with it.
//!
//! Open: the moments of all requests are planned in advance, and a latency is counted from the
//! planned moment, not from the one at which the request could at last be sent. So a service that
//! stalls cannot hide those who would have called meanwhile ("coordinated omission": Gil Tene, "How
//! NOT to Measure Latency"). A plan's moment is met to a millisecond, which is how fine tokio's
//! timers are; that millisecond, too, is counted.

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

/// How long a request rests that is not confirmed, before it is sent again.
const REST: Duration = Duration::from_millis(250);

/// When requests leave.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    /// Closed, for so long.
    For(Duration),
    /// Closed, that many in all.
    Count(u64),
    /// Closed, that many in all; what is not confirmed is sent again, and may then be stored twice.
    Fill(u64),
    /// Open: that many a second, that many in all.
    Rate(f64, u64),
    /// Open: that many a second, until told to stop.
    RateUntil(f64, Arc<AtomicBool>),
}

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// From the first request to the last answer.
    pub(crate) took: Duration,
    /// In microseconds, per request.
    pub(crate) latency: Histogram<u64>,
    pub(crate) accepted: Vec<Accepted>,
    /// Requests that were sent again.
    pub(crate) unconfirmed: u64,
    /// What the last of those was answered.
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
    /// How often a request that is not confirmed is sent again.
    fn repeats(&self) -> u32 {
        if matches!(self.pace, Pace::Fill(_)) { 100 } else { 0 }
    }

    /// The next request's number, and the moment that its latency is counted from.
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

/// Loads the service with adds, or batches of them; `request` makes the one of a number.
///
/// # Errors
/// The first answer that accepts nothing or not all, or a connection that breaks: such a load
/// measures nothing.
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

/// Takes down what an answer accepts.
fn note(answer: &Answer<'_>, accepted: &mut Vec<Accepted>) -> Result<(), Error> {
    let is_whole = answer.status == 200 && accepted_in(answer.body, accepted).is_some();
    if is_whole { Ok(()) } else { Err(Error::refused(answer)) }
}

/// At least one, which is the least that a histogram holds.
pub(crate) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
}
