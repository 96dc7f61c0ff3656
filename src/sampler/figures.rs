//! The last counts of each lane, and which lanes are next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::snapshot::{HORIZONS, WITHIN};
use crate::metrics::TopicSample;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Topic};
use crate::store::{Counts, LaneSample, ScheduleSample};

/// The most lanes of one sample: one pipeline of the Redis store.
pub(super) const LANES_A_SAMPLE: usize = 512;
/// How many rounds there are for each count of the forecast.
const ROUNDS_A_FORECAST: u64 = 10;

/// The last counts of all lanes. Lanes are sampled in rotation.
#[derive(Debug, Default)]
pub(super) struct AllLaneFigures {
    lanes: HashMap<Lane, LaneFigures>,
    /// The lanes of the current round, and how many of them were sampled.
    round: Vec<Lane>,
    done: usize,
    /// The number of complete rounds with lanes.
    rounds: u64,
}

/// The last counts of a lane.
#[derive(Debug)]
pub(super) struct LaneFigures {
    /// When the counts were read, by the store's clock.
    pub(super) read: UnixMillis,
    pub(super) counts: Counts,
    pub(super) schedules: Vec<WaitingTasks>,
}

/// The tasks that wait in a lane for one destination.
#[derive(Debug)]
pub(super) struct WaitingTasks {
    pub(super) destination: Destination,
    pub(super) earliest: UnixMillis,
    pub(super) waiting: u64,
    pub(super) overdue: u64,
    /// The tasks that are overdue beyond the objective of their topic.
    pub(super) late: u64,
    /// The tasks that are due within each of the [`HORIZONS`], as counted last.
    pub(super) within: [u64; HORIZONS],
    pub(super) is_cut: bool,
}

/// What to ask the store for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextSample {
    pub(super) lanes: Vec<Lane>,
    /// Whether to count the forecast.
    pub(super) with_forecast: bool,
}

impl AllLaneFigures {
    /// The next lanes of the round. After the last one, it begins a new round with `all` lanes, and
    /// forgets the figures of other lanes.
    pub(super) fn next(&mut self, all: impl FnOnce() -> Vec<Lane>) -> NextSample {
        if self.done == self.round.len() {
            self.round = all();
            self.done = 0;
            if self.lanes.len() > self.round.len() {
                let known: HashSet<&Lane> = self.round.iter().collect();
                self.lanes.retain(|lane, _| known.contains(lane));
            }
        }
        let end = self.round.len().min(self.done + LANES_A_SAMPLE);
        NextSample {
            lanes: self.round[self.done..end].to_vec(),
            with_forecast: self.rounds.is_multiple_of(ROUNDS_A_FORECAST),
        }
    }

    /// Takes in the answer to [`Self::next`]. The figures of a lane whose server did not answer,
    /// `None`, stay as they are.
    pub(super) fn take_in(
        &mut self,
        now: UnixMillis,
        NextSample { lanes, with_forecast }: NextSample,
        samples: Vec<Option<LaneSample>>,
    ) {
        self.done += lanes.len();
        if self.done == self.round.len() && self.done > 0 {
            self.rounds += 1;
        }
        for (lane, sample) in lanes.into_iter().zip(samples) {
            if let Some(sample) = sample {
                let before = self.lanes.remove(&lane);
                self.lanes.insert(lane, LaneFigures::new(now, sample, before, with_forecast));
            }
        }
    }

    /// Whether each lane was sampled once.
    pub(super) fn is_complete(&self) -> bool {
        self.lanes.len() == self.round.len()
    }

    /// The figures of the first topics by name, and how many more there are.
    pub(super) fn topics(&self, most: usize) -> (Vec<TopicSample>, usize) {
        let mut topics: BTreeMap<&Topic, TopicSample> = BTreeMap::new();
        for (lane, figures) in &self.lanes {
            add(topics.entry(&lane.topic).or_default(), figures);
        }
        let left_out = topics.len().saturating_sub(most);
        let named = |(topic, sample): (&Topic, TopicSample)| TopicSample {
            topic: topic.to_string(),
            ..sample
        };
        (topics.into_iter().take(most).map(named).collect(), left_out)
    }

    /// The counts of each topic.
    pub(super) fn counts_by_topic(&self) -> HashMap<Topic, Counts> {
        let mut topics: HashMap<Topic, Counts> = HashMap::new();
        for (lane, figures) in &self.lanes {
            match topics.get_mut(&lane.topic) {
                Some(counts) => counts.add(&figures.counts),
                None => drop(topics.insert(lane.topic.clone(), figures.counts)),
            }
        }
        topics
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = (&Lane, &LaneFigures)> {
        self.lanes.iter()
    }
}

impl LaneFigures {
    fn new(
        now: UnixMillis,
        LaneSample { counts, schedules }: LaneSample,
        before: Option<Self>,
        with_forecast: bool,
    ) -> Self {
        let schedule = |sample: ScheduleSample| {
            let ScheduleSample { destination, earliest, waiting, due, late, is_cut, .. } = sample;
            let mut within = [0; HORIZONS];
            if with_forecast {
                within.iter_mut().zip(&due[1..]).for_each(|(count, due)| *count = *due);
            } else if let Some(known) = before.as_ref().and_then(|before| {
                before.schedules.iter().find(|known| known.destination == destination)
            }) {
                within = known.within;
            }
            let overdue = due.first().copied().unwrap_or_default();
            WaitingTasks { destination, earliest, waiting, overdue, late, within, is_cut }
        };
        let schedules = schedules.into_iter().map(schedule).collect();
        Self { read: now, counts, schedules }
    }
}

impl WaitingTasks {
    /// The least number of overdue tasks while the lane's server is away: the earliest task may
    /// have fallen due since the last count.
    pub(super) fn overdue_by(&self, now: UnixMillis) -> u64 {
        self.overdue.max(u64::from(self.earliest <= now))
    }

    /// The number of tasks that are overdue for longer than `after`, if nobody has counted since:
    /// one at least, if the earliest is.
    pub(super) fn late_by(&self, now: UnixMillis, after: Duration) -> u64 {
        self.late.max(u64::from(self.earliest + after < now))
    }
}

/// Adds the figures of a lane to those of its topic.
fn add(sum: &mut TopicSample, LaneFigures { counts, schedules, .. }: &LaneFigures) {
    let Counts { scheduled, leased, delivered, dead, cancelled, expired, .. } = *counts;
    let counts = [scheduled, leased, delivered, dead, cancelled, expired];
    sum.tasks.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    for schedule in schedules.iter().filter(|schedule| schedule.overdue > 0) {
        sum.overdue += schedule.overdue;
        let oldest = schedule.earliest.0;
        sum.oldest_overdue_ms = match sum.oldest_overdue_ms {
            0 => oldest,
            known => known.min(oldest),
        };
    }
}

/// The spans of time within which a sample counts the due tasks.
pub(super) fn spans(with_forecast: bool) -> Vec<Duration> {
    let horizons = if with_forecast { &WITHIN[..] } else { &[] };
    std::iter::once(Duration::ZERO).chain(horizons.iter().map(|(_, span)| *span)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(count: usize) -> Vec<Lane> {
        (0..count).map(|number| format!("t{number}:0").parse().unwrap()).collect()
    }

    /// Takes the next sample of `count` lanes. Returns how many were asked for, and whether with
    /// the forecast.
    fn sample(figures: &mut AllLaneFigures, count: usize) -> (usize, bool) {
        let next = figures.next(|| lanes(count));
        let asked = (next.lanes.len(), next.with_forecast);
        let answers = vec![Some(LaneSample::default()); next.lanes.len()];
        figures.take_in(UnixMillis(1), next, answers);
        asked
    }

    #[test]
    fn many_lanes_are_sampled_in_rotation() {
        let mut figures = AllLaneFigures::default();
        let last = (2 * LANES_A_SAMPLE + 7, 7);
        assert_eq!(sample(&mut figures, last.0), (LANES_A_SAMPLE, true));
        assert!(!figures.is_complete());
        assert_eq!(sample(&mut figures, last.0), (LANES_A_SAMPLE, true));
        assert_eq!(sample(&mut figures, last.0), (last.1, true));
        assert!(figures.is_complete());
        assert_eq!(figures.lanes().count(), last.0);
        assert_eq!(sample(&mut figures, 3), (3, false), "a round begins with the lanes of then");
        assert_eq!(figures.lanes().count(), 3, "lanes that are gone are forgotten");
    }

    #[test]
    fn a_forecast_is_counted_every_tenth_round() {
        let mut figures = AllLaneFigures::default();
        let with: Vec<bool> = (0..21).map(|_| sample(&mut figures, 1).1).collect();
        let expected: Vec<bool> = (0..21).map(|round| round % 10 == 0).collect();
        assert_eq!(with, expected);
    }
}
