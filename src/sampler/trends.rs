//! The waiting tasks of each topic over the last half hour, for small graphs.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::clock::UnixMillis;
use crate::model::task::Topic;
use crate::store::Counts;

/// The time between two points.
pub const STEP: Duration = Duration::from_secs(60);

/// The points of a topic.
const POINTS: usize = 30;

/// The most topics with points: they take about 2 MB.
const TOPICS: usize = 10_000;

/// The points of all topics.
#[derive(Debug, Default)]
pub struct Trends {
    topics: HashMap<Topic, Trend>,
    /// The number of rounds of points, and when the last one was.
    rounds: u64,
    noted: Option<UnixMillis>,
}

/// The points of a topic, in a ring: that of round `n` is at `n % POINTS`.
#[derive(Debug)]
struct Trend {
    points: [u32; POINTS],
    /// The first round that it has a point of.
    since: u64,
}

impl Trends {
    /// Whether the next points are due. If the clock was set back, they are.
    pub(super) fn is_due(&self, now: UnixMillis) -> bool {
        let passed = self.noted.map(|noted| now.0 - noted.0);
        // Ticks come a little early or late.
        passed.is_none_or(|passed| !(0..STEP.as_millis() as i64 - 500).contains(&passed))
    }

    /// Adds a point to each topic, and forgets topics that are gone.
    pub(super) fn note(&mut self, now: UnixMillis, counts: HashMap<Topic, Counts>) {
        self.noted = Some(now);
        let (round, at) = (self.rounds, (self.rounds % POINTS as u64) as usize);
        self.rounds += 1;
        self.topics.retain(|topic, _| counts.contains_key(topic));
        let mut room = TOPICS.saturating_sub(self.topics.len());
        for (topic, counts) in counts {
            let waiting = counts.scheduled.saturating_add(counts.leased);
            let point = u32::try_from(waiting).unwrap_or(u32::MAX);
            match self.topics.get_mut(&topic) {
                Some(trend) => trend.points[at] = point,
                None if room > 0 => {
                    room -= 1;
                    let mut points = [0; POINTS];
                    points[at] = point;
                    self.topics.insert(topic, Trend { points, since: round });
                }
                None => {}
            }
        }
    }

    /// The points of a topic, the oldest first; empty if it was not counted yet.
    pub fn of(&self, topic: &Topic) -> Vec<u32> {
        let Some(trend) = self.topics.get(topic) else { return Vec::new() };
        let first = trend.since.max(self.rounds.saturating_sub(POINTS as u64));
        (first..self.rounds).map(|round| trend.points[(round % POINTS as u64) as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Topic {
        name.parse().unwrap()
    }

    fn note(trends: &mut Trends, minute: i64, waiting: &[(&str, u64)]) {
        let counts = waiting.iter().map(|&(name, scheduled)| {
            (topic(name), Counts { scheduled, leased: 1, ..Counts::default() })
        });
        trends.note(UnixMillis(minute * 60_000), counts.collect());
    }

    #[test]
    fn a_trend_begins_with_its_topic_and_keeps_half_an_hour() {
        let mut trends = Trends::default();
        assert!(trends.is_due(UnixMillis(7)));
        note(&mut trends, 0, &[("a", 4)]);
        note(&mut trends, 1, &[("a", 5), ("b", u64::MAX)]);
        assert_eq!(trends.of(&topic("a")), [5, 6]);
        assert_eq!(trends.of(&topic("b")), [u32::MAX]);
        assert!(trends.of(&topic("c")).is_empty());
        for minute in 2..40 {
            note(&mut trends, minute, &[("a", minute as u64)]);
        }
        let last: Vec<u32> = (11..41).collect();
        assert_eq!(trends.of(&topic("a")), last);
        assert!(trends.of(&topic("b")).is_empty(), "a topic that is gone is forgotten");
    }

    #[test]
    fn points_are_a_minute_apart() {
        let mut trends = Trends::default();
        note(&mut trends, 10, &[]);
        let check = |ms: i64, expected| assert_eq!(trends.is_due(UnixMillis(ms)), expected, "{ms}");
        check(600_000, false);
        check(659_000, false);
        check(659_600, true);
        check(599_000, true);
    }

    #[test]
    fn the_trends_are_bounded() {
        let mut trends = Trends::default();
        let names = 0..2 * TOPICS;
        let counts = names.map(|at| (topic(&format!("t{at}")), Counts::default())).collect();
        trends.note(UnixMillis(0), counts);
        assert_eq!(trends.topics.len(), TOPICS);
        assert!(size_of::<Trend>() * TOPICS < 2 << 20);
    }
}
