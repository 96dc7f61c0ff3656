//! The figures of the last day, in rings of fixed size. They make graphs possible without
//! Prometheus.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::clock::UnixMillis;

/// The names of the figures. The first `COUNTERS` count what happened within a step; the others
/// are values at its end.
pub const FIGURES: [&str; 23] = [
    "added",
    "calls",
    "failed_calls",
    "lateness_delayd_ms",
    "lateness_receiver_ms",
    "lateness_operator_ms",
    "lateness_store_ms",
    "lateness_consumer_ms",
    "lateness_clock_ms",
    "lateness_unknown_ms",
    "scheduled",
    "leased",
    "dead",
    "overdue_delayd",
    "overdue_receiver",
    "overdue_operator",
    "overdue_store",
    "overdue_consumer",
    "oldest_overdue_ms",
    "calls_in_flight",
    "calls_limit",
    "cpu_millis",
    "memory_bytes",
];
/// The number of figures that are counters.
pub(super) const COUNTERS: usize = 10;

/// The figures of one moment, in the order of [`FIGURES`]. Counters are totals since the start.
pub(super) type Values = [u64; FIGURES.len()];

/// The step of each ring, and how far back it reaches.
const RINGS: [(Duration, Duration); 3] = [
    (Duration::from_secs(1), Duration::from_secs(5 * 60)),
    (Duration::from_secs(10), Duration::from_secs(3_600)),
    (Duration::from_secs(60), Duration::from_secs(86_400)),
];

/// The figures of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The end of the step.
    pub at: UnixMillis,
    /// In the order of [`FIGURES`].
    pub values: Values,
}

/// The rings. They grow as they are filled, to less than half a megabyte.
#[derive(Debug)]
pub struct FigureHistory([Ring; RINGS.len()]);

#[derive(Debug)]
struct Ring {
    step: Duration,
    most: usize,
    points: VecDeque<Point>,
    /// When the last step ended, and the figures then.
    before: Option<(UnixMillis, Values)>,
}

impl Default for FigureHistory {
    fn default() -> Self {
        let ring = |(step, span): (Duration, Duration)| Ring {
            step,
            most: (span.as_secs() / step.as_secs()) as usize,
            points: VecDeque::new(),
            before: None,
        };
        Self(RINGS.map(ring))
    }
}

impl FigureHistory {
    /// Adds the figures of a moment to the rings whose step is over.
    pub(super) fn note(&mut self, now: UnixMillis, values: Values) {
        self.0.iter_mut().for_each(|ring| ring.note(now, values));
    }

    /// The last point of the finest ring, and its step.
    pub fn last(&self) -> (Duration, Option<&Point>) {
        (self.0[0].step, self.0[0].points.back())
    }

    /// The step of the finest ring that reaches back for `span`, and its points, the oldest first.
    pub fn since(&self, span: Duration) -> (Duration, impl Iterator<Item = &Point>) {
        let reaches = |ring: &&Ring| ring.step * ring.most as u32 >= span;
        let ring = self.0.iter().find(reaches).unwrap_or(&self.0[RINGS.len() - 1]);
        let first = ring.points.back().map_or(UnixMillis(0), |last| last.at - span);
        (ring.step, ring.points.iter().filter(move |point| point.at > first))
    }
}

impl Ring {
    fn note(&mut self, now: UnixMillis, values: Values) {
        let Some((at, before)) = self.before else {
            self.before = Some((now, values));
            return;
        };
        // Half a second of tolerance, because ticks come a little early or late. If the clock was
        // set back, a new step begins.
        let passed = now.0 - at.0;
        if (0..self.step.as_millis() as i64 - 500).contains(&passed) {
            return;
        }
        let mut point = Point { at: now, values };
        for (value, before) in point.values.iter_mut().zip(before).take(COUNTERS) {
            *value = value.saturating_sub(before);
        }
        if self.points.len() == self.most {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.before = Some((now, values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::culprit::Culprit;

    /// What a restart or a jump of the clock delayed was in no figure.
    #[test]
    fn each_culprit_has_its_lateness() {
        let names = Culprit::ALL.map(|culprit| format!("lateness_{}_ms", culprit.as_str()));
        assert_eq!(FIGURES[3..COUNTERS], names);
    }

    fn values(added: u64, scheduled: u64) -> Values {
        let mut values = [0; FIGURES.len()];
        values[0] = added;
        values[COUNTERS] = scheduled;
        values
    }

    fn points(history: &FigureHistory, seconds: u64) -> (u64, Vec<(i64, u64, u64)>) {
        let (step, points) = history.since(Duration::from_secs(seconds));
        let read = |point: &Point| (point.at.0 / 1_000, point.values[0], point.values[COUNTERS]);
        (step.as_secs(), points.map(read).collect())
    }

    #[test]
    fn counters_are_those_of_the_step_and_values_those_at_its_end() {
        let mut history = FigureHistory::default();
        for second in 0..=20 {
            history.note(UnixMillis(second * 1_000), values(second as u64 * 3, second as u64));
        }
        assert_eq!(points(&history, 3), (1, vec![(18, 3, 18), (19, 3, 19), (20, 3, 20)]));
        assert_eq!(points(&history, 3_600), (10, vec![(10, 30, 10), (20, 30, 20)]));
        assert_eq!(points(&history, 86_400), (60, vec![]));
    }

    #[test]
    fn the_rings_are_bounded_and_keep_the_last() {
        let mut history = FigureHistory::default();
        for second in 0..200_000 {
            history.note(UnixMillis(second * 1_000), values(0, 0));
        }
        let lengths: Vec<usize> = history.0.iter().map(|ring| ring.points.len()).collect();
        assert_eq!(lengths, [300, 360, 1_440]);
        let bytes: usize =
            history.0.iter().map(|ring| ring.points.capacity() * size_of::<Point>()).sum();
        assert!(bytes < 4 << 20, "{bytes}");
        assert_eq!(points(&history, 2).1.last().unwrap().0, 199_999);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_history() {
        let mut history = FigureHistory::default();
        for second in [100, 101, 50, 51] {
            history.note(UnixMillis(second * 1_000), values(0, 0));
        }
        assert_eq!(history.0[0].points.len(), 3);
    }
}
