//! Why a task is late: who delayed it, and for how long.
//!
//! ```text
//! due ────────────────────────────────────────────────────▶ handed out
//!      │ breaker open 60 s, then a pause of 2 s │ free     │ claim
//!      │ receiver                               │ delayd   │ store
//! ```
//!
//! A [`LastDelay`] notes who delays tasks, and since when. When a task is handed out late, the time
//! from the first delay to the end of the last one belongs to the culprit of the longest
//! ([`TopicDelays::charge`]). `docs/METRICS.md` defines the culprits.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::UnixMillis;
use super::culprit::Culprit;
use super::task::Topic;

/// The parts of a task's lateness, one per culprit, in milliseconds. A part is at most 49 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness([u32; Culprit::ALL.len()]);

impl Lateness {
    /// The part of one culprit.
    pub fn part(&self, culprit: Culprit) -> Duration {
        Duration::from_millis(self.0[culprit as usize].into())
    }

    /// Charges more time to a culprit.
    pub fn add(&mut self, culprit: Culprit, ms: i64) {
        let part = &mut self.0[culprit as usize];
        *part = part.saturating_add(u32::try_from(ms.max(0)).unwrap_or(u32::MAX));
    }

    /// Adds all parts of another lateness.
    pub fn add_all(&mut self, other: &Self) {
        for (part, more) in self.0.iter_mut().zip(other.0) {
            *part = part.saturating_add(more);
        }
    }

    /// The sum of the parts.
    pub fn total(&self) -> Duration {
        Duration::from_millis(self.0.iter().map(|&part| u64::from(part)).sum())
    }

    /// The culprit of the largest part; delayd if no part is larger than its own.
    pub fn culprit(&self) -> Culprit {
        let largest = |best: Culprit, culprit: Culprit| {
            if self.0[culprit as usize] > self.0[best as usize] { culprit } else { best }
        };
        Culprit::ALL.into_iter().fold(Culprit::Delayd, largest)
    }

    /// The part that counts against the objective: that of delayd and the store.
    pub fn own(&self) -> Duration {
        self.part(Culprit::Delayd) + self.part(Culprit::Store)
    }
}

/// A delay that begins so soon after the last one continues it: slots become free one by one, and
/// the next claim takes them.
const CONTINUES: Duration = Duration::from_millis(250);

/// The last delay of the tasks of a destination, a topic or a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastDelay(Option<Delay>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delay {
    from: UnixMillis,
    /// `None`: it has not ended.
    to: Option<UnixMillis>,
    /// Who caused its last part, and since when.
    last: (Culprit, UnixMillis),
    /// Who caused the longest of the parts that have ended, and how long that was.
    longest: (Culprit, i64),
}

impl Delay {
    fn new(by: Culprit, from: UnixMillis) -> Self {
        Self { from, to: None, last: (by, from), longest: (by, 0) }
    }

    fn end(&mut self, at: UnixMillis) {
        if self.to.is_none() {
            self.longest = self.longest_until(at);
            self.to = Some(at);
        }
    }

    fn longest_until(&self, at: UnixMillis) -> (Culprit, i64) {
        let (by, since) = self.last;
        let is_last = self.to.is_none() && at.0 - since.0 > self.longest.1;
        if is_last { (by, at.0 - since.0) } else { self.longest }
    }
}

impl LastDelay {
    /// Notes that this culprit delays the tasks from `now` on; `None`: nobody does.
    pub fn set(&mut self, now: UnixMillis, by: Option<Culprit>) {
        match (by, &mut self.0) {
            (Some(by), Some(delay)) if delay.to.is_none_or(|to| now <= to + CONTINUES) => {
                if delay.to.is_some() || delay.last.0 != by {
                    delay.end(now);
                    (delay.to, delay.last) = (None, (by, now));
                }
                delay.from = delay.from.min(now);
            }
            (Some(by), delay) => *delay = Some(Delay::new(by, now)),
            (None, Some(delay)) => delay.end(now),
            (None, None) => {}
        }
    }

    /// Who delays the tasks now.
    pub fn current(self) -> Option<Culprit> {
        self.0.filter(|delay| delay.to.is_none()).map(|delay| delay.last.0)
    }
}

/// The delays of all lanes of a topic, as this instance has seen them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopicDelays {
    /// When this instance first asked the store. Of what was due before, nobody knows who delayed
    /// it.
    began: UnixMillis,
    /// The time that the store's clock skipped.
    jump: LastDelay,
    /// The topic's pause.
    pause: LastDelay,
    /// The time in which the store did not answer.
    store: LastDelay,
}

impl TopicDelays {
    /// Divides the time from `due` to `until`. Of these delays and `more`, the longest one is
    /// charged with the time from the beginning of the first to the end of the last, and
    /// `otherwise` with the rest. What was due before this instance asked the store is charged to
    /// nobody known.
    pub fn charge(
        &self,
        due: UnixMillis,
        until: UnixMillis,
        more: &[LastDelay],
        otherwise: Culprit,
    ) -> Lateness {
        let mut lateness = Lateness::default();
        let late = (until.0 - due.0).max(0);
        if due < self.began {
            lateness.add(Culprit::Unknown, late);
            return lateness;
        }
        let (mut first, mut last, mut longest, mut culprit) = (i64::MAX, 0, 0, otherwise);
        let all = [self.jump, self.pause].into_iter().chain(more.iter().copied());
        for delay in all.chain([self.store]).filter_map(|delay| delay.0) {
            let from = delay.from.max(due).0;
            let to = delay.to.map_or(until, |to| to.min(until)).0;
            if from < to {
                (first, last) = (first.min(from), last.max(to));
                // Of two that are as long, the first counts.
                if to - from > longest {
                    (longest, culprit) = (to - from, delay.longest_until(until).0);
                }
            }
        }
        let delayed = if longest > 0 { last - first } else { 0 };
        lateness.add(culprit, delayed);
        lateness.add(otherwise, late - delayed);
        lateness
    }

    /// Whether the store delays the topic's tasks now.
    #[cfg(test)]
    pub(crate) fn is_delayed_by_the_store(&self) -> bool {
        self.store.current() == Some(Culprit::Store)
    }
}

/// The delays of many lanes: pauses of topics, outages of the store, and jumps of its clock.
#[derive(Debug, Default)]
pub struct TopicsDelays(Mutex<KnownDelay>);

#[derive(Debug, Default)]
struct KnownDelay {
    /// See [`TopicDelays::began`].
    began: Option<UnixMillis>,
    jump: LastDelay,
    pauses: HashMap<Topic, LastDelay>,
    store: LastDelay,
}

impl TopicsDelays {
    /// Notes which topics are paused now, and since when. Forgets the topics that are gone.
    pub fn saw_pauses<'a>(
        &self,
        now: UnixMillis,
        topics: impl Iterator<Item = (&'a Topic, Option<UnixMillis>)> + Clone,
    ) {
        let mut known = self.known();
        let mut found = 0;
        for (topic, paused) in topics.clone() {
            match (paused, known.pauses.get_mut(topic)) {
                (Some(since), None) => {
                    let pause = known.pauses.entry(topic.clone()).or_default();
                    pause.set(since.min(now), Some(Culprit::Operator));
                }
                (Some(_), Some(pause)) => pause.set(now, Some(Culprit::Operator)),
                (None, Some(pause)) => pause.set(now, None),
                (None, None) => continue,
            }
            found += 1;
        }
        if found < known.pauses.len() {
            let left: HashSet<&Topic> = topics.map(|(topic, _)| topic).collect();
            known.pauses.retain(|topic, _| left.contains(topic));
        }
    }

    /// Notes that this instance asks the store from this moment on. Only the first call counts.
    pub fn begins(&self, asked: UnixMillis) {
        self.known().began.get_or_insert(asked);
    }

    /// Notes whether the store answers a request that was sent at this moment.
    pub fn saw_store(&self, asked: UnixMillis, answers: bool) {
        self.known().store.set(asked, (!answers).then_some(Culprit::Store));
    }

    /// Notes that the store's clock was set forward, from one time to the other.
    pub fn saw_jump(&self, from: UnixMillis, to: UnixMillis) {
        let jump = &mut self.known().jump;
        *jump = LastDelay::default();
        jump.set(from, Some(Culprit::Clock));
        jump.set(to, None);
    }

    /// The store's clock was set back: no time was skipped.
    pub fn saw_jump_back(&self) {
        self.known().jump = LastDelay::default();
    }

    /// What delays the tasks of the topic.
    pub fn of(&self, topic: &Topic) -> TopicDelays {
        let known = self.known();
        let pause = known.pauses.get(topic).copied().unwrap_or_default();
        let began = known.began.unwrap_or(UnixMillis(i64::MAX));
        TopicDelays { began, jump: known.jump, pause, store: known.store }
    }

    fn known(&self) -> MutexGuard<'_, KnownDelay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn delay(by: Culprit, from: i64, to: i64) -> LastDelay {
        let mut delay = LastDelay::default();
        delay.set(UnixMillis(from), Some(by));
        delay.set(UnixMillis(to), None);
        delay
    }

    fn parts(of: &TopicDelays, due: i64, until: i64, more: &[LastDelay]) -> [u32; 7] {
        let lateness = of.charge(UnixMillis(due), UnixMillis(until), more, Culprit::Delayd);
        assert_eq!(lateness.total(), (until - due).max(0) as u32 * MS);
        lateness.0
    }

    #[test]
    fn the_longest_delay_is_charged_from_the_first_to_the_last() {
        let of =
            TopicDelays { pause: delay(Culprit::Operator, 100, 200), ..TopicDelays::default() };
        let check = |(due, until): (i64, i64), (from, to): (i64, i64), expected: [u32; 7]| {
            let more = [delay(Culprit::Receiver, from, to)];
            assert_eq!(parts(&of, due, until, &more), expected, "{due} to {until}, {from} to {to}");
        };
        // delayd, receiver, operator, store, consumer, clock, unknown
        check((0, 500), (190, 400), [200, 300, 0, 0, 0, 0, 0]);
        check((0, 500), (200, 201), [399, 0, 101, 0, 0, 0, 0]);
        check((150, 500), (200, 250), [250, 0, 100, 0, 0, 0, 0]);
        check((200, 500), (100, 200), [300, 0, 0, 0, 0, 0, 0]);
        check((300, 500), (400, 600), [100, 100, 0, 0, 0, 0, 0]);
        // What lies between two delays belongs to the longest, too.
        check((0, 500), (400, 410), [190, 0, 310, 0, 0, 0, 0]);
        check((10, 10), (0, 600), [0; 7]);
        check((20, 10), (0, 600), [0; 7]);
        let mut now = LastDelay::default();
        now.set(UnixMillis(100), Some(Culprit::Store));
        let of = TopicDelays { store: now, ..TopicDelays::default() };
        assert_eq!(parts(&of, 0, 500, &[]), [100, 0, 0, 400, 0, 0, 0], "it has not ended");
    }

    #[test]
    fn a_delay_that_begins_again_soon_goes_on() {
        let mut last = LastDelay::default();
        let mut set = |now: i64, by| {
            last.set(UnixMillis(now), by);
            last
        };
        assert_eq!(set(5, None), LastDelay::default());
        assert_eq!(set(10, Some(Culprit::Receiver)).current(), Some(Culprit::Receiver));
        set(20, None);
        assert_eq!(set(30, None), delay(Culprit::Receiver, 10, 20), "it ends once");
        set(270, Some(Culprit::Operator));
        set(300, Some(Culprit::Receiver));
        let end = set(305, None);
        let of = TopicDelays::default();
        // The longest part is the operator's, although it was neither the first nor the last.
        assert_eq!(parts(&of, 0, 305, &[end]), [10, 0, 295, 0, 0, 0, 0]);
        set(556, Some(Culprit::Receiver));
        assert_eq!(set(600, None), delay(Culprit::Receiver, 556, 600));
        set(50, Some(Culprit::Receiver));
        assert_eq!(parts(&of, 0, 90, &[set(90, None)])[1], 40, "the clock was set back");
    }

    #[test]
    fn the_culprit_is_that_of_the_largest_part() {
        let lateness = |parts| Lateness(parts);
        assert_eq!(lateness([0; 7]).culprit(), Culprit::Delayd);
        assert_eq!(lateness([5, 5, 0, 5, 0, 0, 0]).culprit(), Culprit::Delayd);
        assert_eq!(lateness([5, 0, 6, 5, 0, 0, 0]).culprit(), Culprit::Operator);
        assert_eq!(lateness([5, 9, 9, 7, 9, 9, 9]).own(), 12 * MS);
    }

    /// 64,114 s of a receiver's outage were charged to delayd after a restart.
    #[test]
    fn what_was_due_before_the_start_is_not_charged_to_delayd() {
        let delays = TopicsDelays::default();
        let parts = |due: i64| parts(&delays.of(&"t".parse().unwrap()), due, 9_000, &[]);
        assert_eq!(parts(1_000), [0, 0, 0, 0, 0, 0, 8_000], "the store was not asked yet");
        delays.begins(UnixMillis(3_000));
        delays.begins(UnixMillis(4_000));
        delays.saw_store(UnixMillis(3_000), false);
        delays.saw_store(UnixMillis(6_000), true);
        assert_eq!(parts(1_000), [0, 0, 0, 0, 0, 0, 8_000]);
        assert_eq!(parts(3_000), [3_000, 0, 0, 3_000, 0, 0, 0]);
    }

    #[test]
    fn a_deleted_topic_is_forgotten() {
        let delays = TopicsDelays::default();
        let [a, b]: [Topic; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let paused = Some(UnixMillis(5));
        delays.saw_pauses(UnixMillis(10), [(&a, paused), (&b, paused)].into_iter());
        delays.saw_pauses(UnixMillis(20), [(&b, None)].into_iter());
        assert_eq!(delays.of(&a).pause, LastDelay::default());
        assert_eq!(delays.of(&b).pause, delay(Culprit::Operator, 5, 20));
    }
}
