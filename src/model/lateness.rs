//! Why a task is late: who delayed it, and for how long.
//!
//! ```text
//! due ─────────────────────────────────────────────▶ handed out
//!      breaker open, then a pause of the topic │ free │ claim
//!      operator                                │ delayd │ store
//! ```
//!
//! A [`LastDelay`] notes who delays tasks, and when that ended. When a task is handed out late, the
//! time until the last end belongs to its culprit ([`OfTopic::charge`]). `docs/METRICS.md` defines
//! the culprits.

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

/// The last delay of the tasks of a destination, a topic or a store: who caused it, and when it
/// ended; `None`: it has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastDelay(Option<(Culprit, Option<UnixMillis>)>);

impl LastDelay {
    /// Notes that this culprit delays the tasks at `now`; `None`: nobody does any more.
    pub fn set(&mut self, now: UnixMillis, culprit: Option<Culprit>) {
        match (culprit, &mut self.0) {
            (Some(culprit), last) => *last = Some((culprit, None)),
            (None, Some((_, end))) => {
                end.get_or_insert(now);
            }
            (None, None) => {}
        }
    }

    /// Notes a delay that has ended.
    pub fn ended(&mut self, at: UnixMillis, culprit: Culprit) {
        self.0 = Some((culprit, Some(at)));
    }

    /// Who delays the tasks now.
    pub fn current(self) -> Option<Culprit> {
        self.0.filter(|(_, end)| end.is_none()).map(|(culprit, _)| culprit)
    }
}

/// The delays of all lanes of a topic, as this instance has seen them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfTopic {
    /// When the store first answered. Of what was due before, nobody knows who delayed it.
    began: UnixMillis,
    /// The time that the store's clock skipped.
    jump: LastDelay,
    /// The topic's pause.
    pause: LastDelay,
    /// The time in which the store did not answer.
    store: LastDelay,
}

impl OfTopic {
    /// Divides the time from `due` to `until`. Of these delays and `more`, the one that ended last
    /// is charged with the time until its end, and `otherwise` with the rest. What was due before
    /// this instance knew the store is charged to nobody known.
    pub fn charge(
        &self,
        due: UnixMillis,
        until: UnixMillis,
        more: &[LastDelay],
        otherwise: Culprit,
    ) -> Lateness {
        let mut lateness = Lateness::default();
        if due < self.began {
            lateness.add(Culprit::Unknown, until.0 - due.0);
            return lateness;
        }
        let (first, then) = ([self.jump, self.pause], more.iter().copied());
        let mut last = None;
        for LastDelay(delay) in first.into_iter().chain(then).chain([self.store]) {
            let Some((culprit, end)) = delay else { continue };
            let end = end.map_or(until, |end| end.min(until));
            // Of two that end together, the first counts.
            if end > last.map_or(due, |(_, end)| end) {
                last = Some((culprit, end));
            }
        }
        let (culprit, end) = last.unwrap_or((otherwise, due));
        lateness.add(culprit, end.0 - due.0);
        lateness.add(otherwise, until.0 - end.max(due).0);
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
pub struct Delays(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When the store first answered, or failed to.
    began: Option<UnixMillis>,
    jump: LastDelay,
    pauses: HashMap<Topic, LastDelay>,
    store: LastDelay,
}

impl Delays {
    /// Notes which topics are paused now. Forgets the topics that are gone.
    pub fn saw_pauses<'a>(
        &self,
        now: UnixMillis,
        topics: impl Iterator<Item = (&'a Topic, bool)> + Clone,
    ) {
        let mut known = self.known();
        let mut found = 0;
        for (topic, paused) in topics.clone() {
            match (paused, known.pauses.get_mut(topic)) {
                (true, None) => {
                    let pause = LastDelay(Some((Culprit::Operator, None)));
                    known.pauses.insert(topic.clone(), pause);
                }
                (true, Some(pause)) => pause.set(now, Some(Culprit::Operator)),
                (false, Some(pause)) => pause.set(now, None),
                (false, None) => continue,
            }
            found += 1;
        }
        if found < known.pauses.len() {
            let left: HashSet<&Topic> = topics.map(|(topic, _)| topic).collect();
            known.pauses.retain(|topic, _| left.contains(topic));
        }
    }

    /// Notes whether the store answers a request that was sent at this moment.
    pub fn saw_store(&self, asked: UnixMillis, answers: bool) {
        let mut known = self.known();
        known.began.get_or_insert(asked);
        known.store.set(asked, (!answers).then_some(Culprit::Store));
    }

    /// Notes that the store's clock was set forward, to this time.
    pub fn saw_jump(&self, to: UnixMillis) {
        self.known().jump.ended(to, Culprit::Clock);
    }

    /// The store's clock was set back: no time was skipped.
    pub fn saw_jump_back(&self) {
        self.known().jump = LastDelay::default();
    }

    /// What delays the tasks of the topic.
    pub fn of(&self, topic: &Topic) -> OfTopic {
        let known = self.known();
        let pause = known.pauses.get(topic).copied().unwrap_or_default();
        let began = known.began.unwrap_or(UnixMillis(i64::MAX));
        OfTopic { began, jump: known.jump, pause, store: known.store }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ended(at: i64, culprit: Culprit) -> LastDelay {
        LastDelay(Some((culprit, Some(UnixMillis(at)))))
    }

    fn parts(of: &OfTopic, due: i64, until: i64, more: &[LastDelay]) -> [u32; 7] {
        let lateness = of.charge(UnixMillis(due), UnixMillis(until), more, Culprit::Delayd);
        assert_eq!(lateness.total(), (until - due).max(0) as u32 * MS);
        lateness.0
    }

    #[test]
    fn the_delay_that_ended_last_is_charged_until_its_end() {
        let of = OfTopic { pause: ended(200, Culprit::Operator), ..OfTopic::default() };
        let check = |due: i64, until: i64, end: i64, expected: [u32; 7]| {
            let more = [ended(end, Culprit::Receiver)];
            assert_eq!(parts(&of, due, until, &more), expected, "{due} to {until}, {end}");
        };
        // delayd, receiver, operator, store, consumer, clock, unknown
        check(0, 500, 400, [100, 400, 0, 0, 0, 0, 0]);
        check(0, 500, 100, [300, 0, 200, 0, 0, 0, 0]);
        check(150, 500, 200, [300, 0, 50, 0, 0, 0, 0]);
        check(200, 500, 200, [300, 0, 0, 0, 0, 0, 0]);
        check(300, 500, 600, [0, 200, 0, 0, 0, 0, 0]);
        check(10, 10, 600, [0; 7]);
        check(20, 10, 600, [0; 7]);
        let (mut now, mut store) = (LastDelay::default(), of);
        now.set(UnixMillis(100), Some(Culprit::Receiver));
        assert_eq!(parts(&of, 0, 500, &[now]), [0, 500, 0, 0, 0, 0, 0], "it has not ended");
        store.store.set(UnixMillis(100), Some(Culprit::Store));
        assert_eq!(parts(&store, 0, 500, &[]), [0, 0, 0, 500, 0, 0, 0]);
    }

    #[test]
    fn a_delay_ends_once_and_another_follows_it() {
        let mut last = LastDelay::default();
        last.set(UnixMillis(5), None);
        assert_eq!(last, LastDelay::default());
        last.set(UnixMillis(10), Some(Culprit::Receiver));
        assert_eq!(last.current(), Some(Culprit::Receiver));
        last.set(UnixMillis(20), None);
        last.set(UnixMillis(30), None);
        assert_eq!(last, ended(20, Culprit::Receiver));
        last.set(UnixMillis(40), Some(Culprit::Operator));
        assert_eq!(last.current(), Some(Culprit::Operator));
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
        let delays = Delays::default();
        let parts = |due: i64| parts(&delays.of(&"t".parse().unwrap()), due, 9_000, &[]);
        assert_eq!(parts(1_000), [0, 0, 0, 0, 0, 0, 8_000], "the store was not asked yet");
        delays.saw_store(UnixMillis(3_000), false);
        delays.saw_store(UnixMillis(6_000), true);
        assert_eq!(parts(1_000), [0, 0, 0, 0, 0, 0, 8_000]);
        assert_eq!(parts(3_000), [3_000, 0, 0, 3_000, 0, 0, 0]);
    }

    #[test]
    fn a_deleted_topic_is_forgotten() {
        let delays = Delays::default();
        let [a, b]: [Topic; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        delays.saw_pauses(UnixMillis(10), [(&a, true), (&b, true)].into_iter());
        delays.saw_pauses(UnixMillis(20), [(&b, false)].into_iter());
        assert_eq!(delays.of(&a).pause, LastDelay::default());
        assert_eq!(delays.of(&b).pause, ended(20, Culprit::Operator));
    }
}
