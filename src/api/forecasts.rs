//! The waiting tasks of all topics by service and due time, counted for all viewers.
//!
//! An instance counts each span at most every few seconds, however many callers ask. One reading
//! counts a bounded number of lanes, a few hundred in one pipeline per server. The counts are kept
//! by topic, so that callers with different patterns share a reading.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use delayd_wire::ForecastSpan;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Topic};
use crate::sampler::Sampled;
use crate::store::{AnyStore, LaneSample, MAX_SAMPLED, Registered, SampleQuery, Sampling};
use crate::topic::{Registry, fitting};

/// The bounds of one reading.
const BOUNDS: ReadingBounds =
    ReadingBounds { lanes: 4096, tallies: 10_000, time: Duration::from_secs(2) };
/// The most lanes that are counted together.
const LANES: usize = 512;
/// A reading is kept for this many times as long as it took, and for its span's time at least.
const REST: u32 = 10;

/// How much one reading counts. It counts at least the first lanes.
struct ReadingBounds {
    /// The most lanes.
    lanes: usize,
    /// The most tallies that are kept, about 300 bytes each.
    tallies: usize,
    /// It counts no further lanes after this time.
    time: Duration,
}

/// How long the counts of a span are kept.
fn kept_for(span: ForecastSpan) -> Duration {
    Duration::from_secs(match span {
        ForecastSpan::Hour => 10,
        ForecastSpan::Day => 30,
        ForecastSpan::Week => 60,
    })
}

/// What a reading is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) store: &'a AnyStore,
    pub(crate) topics: &'a Registry,
    /// The counts that decide which topics come first.
    pub(crate) sampled: &'a Sampled,
}

/// The last readings of this instance.
#[derive(Debug, Default)]
pub(crate) struct Forecasts {
    spans: [Mutex<Option<KeptReading>>; ForecastSpan::ALL.len()],
    /// One reading runs at a time.
    reading: Mutex<()>,
}

#[derive(Debug)]
struct KeptReading {
    counted: Arc<ForecastReading>,
    until: Instant,
}

impl Forecasts {
    /// The counts of a span. Callers that ask while it is read wait for the same reading.
    pub(crate) async fn of(
        &self,
        sources: Sources<'_>,
        span: ForecastSpan,
    ) -> Result<Arc<ForecastReading>, Error> {
        let mut kept = self.spans[span as usize].lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return Ok(kept.counted.clone());
        }
        // An old reading takes no memory while the next one is made.
        *kept = None;
        let _only = self.reading.lock().await;
        let began = Instant::now();
        let counted = Arc::new(ForecastReading::read(sources, span, &BOUNDS).await?);
        let now = Instant::now();
        let until = now + kept_for(span).max((now - began) * REST);
        *kept = Some(KeptReading { counted: counted.clone(), until });
        Ok(counted)
    }
}

/// One reading.
#[derive(Debug, Default)]
pub(crate) struct ForecastReading {
    /// The store's time when it began.
    pub(crate) at: UnixMillis,
    /// The topics. `None`: not counted.
    topics: BTreeMap<Topic, Option<TopicReading>>,
}

#[derive(Debug, Default)]
struct TopicReading {
    tallies: BTreeMap<Destination, WaitingTally>,
    /// Some lane was not counted, or has more destinations than the store names.
    is_partial: bool,
}

/// The waiting tasks of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingTally {
    pub(crate) overdue: u64,
    pub(crate) buckets: Vec<u64>,
    pub(crate) rest: u64,
    pub(crate) is_cut: bool,
}

impl WaitingTally {
    /// `due` counts the tasks that are due by now, and by the end of each bucket.
    fn new(due: &[u64], waiting: u64, is_cut: bool) -> Self {
        let last = due.last().copied().unwrap_or_default();
        Self {
            overdue: due.first().copied().unwrap_or_default(),
            buckets: due.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect(),
            rest: waiting.saturating_sub(last),
            is_cut,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.overdue += other.overdue;
        self.rest += other.rest;
        self.is_cut |= other.is_cut;
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, count)| *sum += count);
    }

    /// The tasks that are due within the span.
    pub(crate) fn within(&self) -> u64 {
        self.overdue + self.buckets.iter().sum::<u64>()
    }
}

/// The counts of some topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) topics: u64,
    /// How many of them were counted.
    pub(crate) seen: u64,
    pub(crate) is_complete: bool,
    pub(crate) by_destination: BTreeMap<Destination, WaitingTally>,
}

impl ForecastReading {
    /// Counts the topics with most waiting tasks first, as the sampler has counted them.
    async fn read(
        Sources { store, topics, sampled }: Sources<'_>,
        span: ForecastSpan,
        bounds: &ReadingBounds,
    ) -> Result<Self, Error> {
        let mut topics = match topics.is_read() {
            true => topics.known(),
            false => topics.refresh().await?,
        };
        let known = sampled.counts_by_topic();
        topics.sort_by_cached_key(|topic| {
            let waiting = known.get(&topic.entry.topic).map_or(0, |counts| counts.scheduled);
            (Reverse(waiting), topic.entry.topic.clone())
        });
        let (buckets, bucket_ms) = span.buckets();
        let within: Vec<Duration> =
            (0..=buckets as u64).map(|at| Duration::from_millis(at * bucket_ms)).collect();
        let (began, mut at, mut lanes, mut tallies) = (Instant::now(), None, 0, 0);
        let mut counted = Self::default();
        let mut rest = &topics[..];
        while !rest.is_empty() {
            let left = LANES.min(bounds.lanes.saturating_sub(lanes));
            let is_over = left == 0 || tallies >= bounds.tallies || began.elapsed() >= bounds.time;
            if at.is_some() && is_over {
                break;
            }
            let shards = rest.iter().map(|known| known.entry.shards);
            let (next, others) = rest.split_at(fitting(shards, rest.len(), left));
            let all: Vec<Lane> = next.iter().flat_map(|known| known.entry.lanes()).collect();
            lanes += all.len();
            let late_after = vec![Duration::ZERO; all.len()];
            let within = within.clone();
            let query = SampleQuery { lanes: all, late_after, within, is_thorough: true };
            let reading = store.sample(query).await?;
            counted.at = *at.get_or_insert(reading.now);
            let mut samples = reading.lanes.into_iter();
            for Registered { entry, .. } in next {
                let of_topic = TopicReading::new(samples.by_ref().take(entry.shards.into()));
                tallies += of_topic.tallies.len();
                counted.topics.insert(entry.topic.clone(), Some(of_topic));
            }
            rest = others;
        }
        counted.topics.extend(rest.iter().map(|known| (known.entry.topic.clone(), None)));
        if at.is_none() {
            counted.at = store.sample(SampleQuery::default()).await?.now;
        }
        Ok(counted)
    }

    /// The counts of the topics that match.
    pub(crate) fn sums(&self, matches: impl Fn(&Topic) -> bool) -> Sums {
        let mut sums = Sums { is_complete: true, ..Sums::default() };
        for (_, of_topic) in self.topics.iter().filter(|(topic, _)| matches(topic)) {
            sums.topics += 1;
            let Some(TopicReading { tallies, is_partial }) = of_topic else {
                sums.is_complete = false;
                continue;
            };
            sums.seen += 1;
            sums.is_complete &= !is_partial && !tallies.values().any(|tally| tally.is_cut);
            for (destination, tally) in tallies {
                add(&mut sums.by_destination, destination, tally);
            }
        }
        sums
    }
}

impl TopicReading {
    fn new(samples: impl Iterator<Item = Option<LaneSample>>) -> Self {
        let mut of_topic = Self::default();
        for sample in samples {
            let Some(LaneSample { counts, schedules }) = sample else {
                of_topic.is_partial = true;
                continue;
            };
            let waiting: u64 = schedules.iter().map(|schedule| schedule.waiting).sum();
            of_topic.is_partial |= schedules.len() >= MAX_SAMPLED && waiting < counts.scheduled;
            for schedule in schedules {
                let tally = WaitingTally::new(&schedule.due, schedule.waiting, schedule.is_cut);
                add(&mut of_topic.tallies, &schedule.destination, &tally);
            }
        }
        of_topic
    }
}

fn add(
    tallies: &mut BTreeMap<Destination, WaitingTally>,
    destination: &Destination,
    tally: &WaitingTally,
) {
    match tallies.get_mut(destination) {
        Some(sum) => sum.add(tally),
        None => drop(tallies.insert(destination.clone(), tally.clone())),
    }
}

#[cfg(test)]
#[path = "forecasts_tests.rs"]
mod tests;
