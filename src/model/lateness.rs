//! Why a task is late: who delayed it, and for how long.
//!
//! ```text
//! due ──────────────────────────────────────────────────▶ handed out
//!      topic paused   │ breaker open      │ free │ claim
//!      operator       │ receiver          │ delayd │ store
//! ```
//!
//! A [`Timeline`] notes when a delay begins and ends. When a task is handed out late, [`charge`]
//! divides its wait among the culprits. `docs/METRICS.md` defines them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::UnixMillis;
use super::culprit::Culprit;
use super::task::Topic;

/// The most changes that a timeline remembers.
const MOST_CHANGES: usize = 16;

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

/// Who has delayed the tasks of a destination, a topic or a store, and from when on. It remembers
/// at most 16 changes: of more, the shortest spans are merged into their neighbours.
#[derive(Clone, Debug, Default)]
pub struct Timeline(VecDeque<(UnixMillis, Option<Culprit>)>);

impl Timeline {
    /// Notes that this culprit delays the tasks from `now` on; `None`: nobody does.
    pub fn set(&mut self, now: UnixMillis, culprit: Option<Culprit>) {
        // If the clock was set back, the changes after `now` have not happened.
        while self.0.back().is_some_and(|&(from, _)| from > now) {
            self.0.pop_back();
        }
        if self.current() == culprit {
            return;
        }
        if self.0.len() == MOST_CHANGES {
            self.forget_the_shortest();
        }
        self.0.push_back((now, culprit));
    }

    /// Merges the shortest span between two changes into its neighbours.
    fn forget_the_shortest(&mut self) {
        let span = |i: usize| self.0[i + 1].0.0 - self.0[i].0.0;
        let shortest = (1..self.0.len() - 1).min_by_key(|&i| span(i)).unwrap_or_default();
        if span(0) < span(shortest) {
            self.0.pop_front();
            return;
        }
        self.0.remove(shortest);
        if self.0[shortest].1 == self.0[shortest - 1].1 {
            self.0.remove(shortest);
        }
    }

    /// Who delays the tasks now.
    pub fn current(&self) -> Option<Culprit> {
        self.0.back().and_then(|&(_, culprit)| culprit)
    }

    /// Whether nobody has delayed anything.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the last change was at this moment or before.
    fn is_unchanged_since(&self, moment: UnixMillis) -> bool {
        self.0.back().is_none_or(|&(from, _)| from <= moment)
    }

    /// Who delayed the tasks at this moment.
    fn at(&self, moment: UnixMillis) -> Option<Culprit> {
        self.0.iter().rev().find(|(from, _)| *from <= moment).and_then(|&(_, culprit)| culprit)
    }
}

/// The delays of all lanes of a topic, as this instance has seen them.
#[derive(Clone, Debug, Default)]
pub struct OfTopic {
    /// The time that the store's clock skipped.
    pub jumps: Timeline,
    /// The topic's pauses.
    pub pauses: Timeline,
    /// The times in which the store did not answer, and the time before the first answer.
    pub store: Timeline,
}

/// The delays of many lanes: pauses of topics, outages of the store, and jumps of its clock.
#[derive(Debug, Default)]
pub struct Delays(Mutex<Known>);

#[derive(Debug)]
struct Known {
    jumps: Timeline,
    pauses: HashMap<Topic, Timeline>,
    store: Timeline,
}

impl Default for Known {
    /// What an instance knows when it starts: not who delayed the tasks before.
    fn default() -> Self {
        let store = Timeline(VecDeque::from([(UnixMillis(0), Some(Culprit::Unknown))]));
        Self { jumps: Timeline::default(), pauses: HashMap::new(), store }
    }
}

impl Delays {
    /// Notes which topics are paused now, and since when. Forgets the topics that are gone.
    pub fn saw_pauses<'a>(
        &self,
        now: UnixMillis,
        topics: impl Iterator<Item = (&'a Topic, Option<UnixMillis>)> + Clone,
    ) {
        let mut known = self.known();
        let mut found = 0;
        for (topic, paused) in topics.clone() {
            // The clock may have been set back since the pause.
            let paused = paused.map(|since| since.min(now));
            match (paused, known.pauses.get_mut(topic)) {
                (Some(since), None) => {
                    let mut pauses = Timeline::default();
                    pauses.set(since, Some(Culprit::Operator));
                    known.pauses.insert(topic.clone(), pauses);
                }
                (Some(since), Some(pauses)) => pauses.set(since, Some(Culprit::Operator)),
                (None, Some(pauses)) => pauses.set(now, None),
                (None, None) => continue,
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
        self.known().store.set(asked, (!answers).then_some(Culprit::Store));
    }

    /// Notes that the store's clock was set forward, from one time to the other.
    pub fn saw_jump(&self, from: UnixMillis, to: UnixMillis) {
        let mut known = self.known();
        known.jumps.set(from, Some(Culprit::Clock));
        known.jumps.set(to, None);
    }

    /// The store's clock was set back, to this moment.
    pub fn saw_jump_back(&self, to: UnixMillis) {
        self.known().jumps.set(to, None);
    }

    /// What delays the tasks of the topic.
    pub fn of(&self, topic: &Topic) -> OfTopic {
        let known = self.known();
        let pauses = known.pauses.get(topic).cloned().unwrap_or_default();
        OfTopic { jumps: known.jumps.clone(), pauses, store: known.store.clone() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Divides the time from `due` to `until` among the culprits. If several timelines name a culprit
/// for the same time, the first of them counts. If none does, the time is charged to `otherwise`.
pub fn charge(
    due: UnixMillis,
    until: UnixMillis,
    timelines: &[&Timeline],
    otherwise: Culprit,
) -> Lateness {
    let mut lateness = Lateness::default();
    if due >= until {
        return lateness;
    }
    // Most tasks are due after all changes.
    if timelines.iter().all(|timeline| timeline.is_unchanged_since(due)) {
        let culprit = timelines.iter().find_map(|timeline| timeline.current());
        lateness.add(culprit.unwrap_or(otherwise), until.0 - due.0);
        return lateness;
    }
    let changes = timelines.iter().flat_map(|timeline| timeline.0.iter().map(|&(at, _)| at));
    let mut bounds: Vec<UnixMillis> = changes.filter(|at| due < *at && *at < until).collect();
    bounds.sort_unstable();
    let mut from = due;
    for to in bounds.into_iter().chain([until]) {
        let culprit = timelines.iter().find_map(|timeline| timeline.at(from));
        lateness.add(culprit.unwrap_or(otherwise), to.0 - from.0);
        from = to;
    }
    lateness
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn timeline(changes: &[(i64, Option<Culprit>)]) -> Timeline {
        let mut timeline = Timeline::default();
        for &(at, culprit) in changes {
            timeline.set(UnixMillis(at), culprit);
        }
        timeline
    }

    #[test]
    fn each_millisecond_is_charged_to_the_first_timeline_that_names_a_culprit() {
        let pauses = timeline(&[(100, Some(Culprit::Operator)), (200, None)]);
        let destination = timeline(&[(150, Some(Culprit::Receiver)), (400, None)]);
        let jumps = timeline(&[(300, Some(Culprit::Clock)), (310, None)]);
        let store = timeline(&[(390, Some(Culprit::Store)), (450, None)]);
        let check = |due: i64, until: i64, parts: [u32; 7]| {
            let timelines = [&jumps, &pauses, &destination, &store];
            let lateness = charge(UnixMillis(due), UnixMillis(until), &timelines, Culprit::Delayd);
            assert_eq!(lateness.0, parts, "{due} to {until}");
            assert_eq!(lateness.total(), (until - due).max(0) as u32 * MS);
        };
        // delayd, receiver, operator, store, consumer, clock, unknown
        check(0, 500, [150, 190, 100, 50, 0, 10, 0]);
        check(120, 160, [0, 0, 40, 0, 0, 0, 0]);
        check(199, 201, [0, 1, 1, 0, 0, 0, 0]);
        check(410, 420, [0, 0, 0, 10, 0, 0, 0]);
        check(460, 470, [10, 0, 0, 0, 0, 0, 0]);
        check(10, 10, [0; 7]);
        check(20, 10, [0; 7]);
    }

    #[test]
    fn the_culprit_is_that_of_the_largest_part() {
        let lateness = |parts| Lateness(parts);
        assert_eq!(lateness([0; 7]).culprit(), Culprit::Delayd);
        assert_eq!(lateness([5, 5, 0, 5, 0, 0, 0]).culprit(), Culprit::Delayd);
        assert_eq!(lateness([5, 0, 6, 5, 0, 0, 0]).culprit(), Culprit::Operator);
        assert_eq!(lateness([5, 9, 9, 7, 9, 9, 9]).own(), 12 * MS);
    }

    #[test]
    fn a_timeline_is_bounded_and_keeps_its_beginning() {
        let mut timeline = Timeline::default();
        for n in 0..1_000 {
            let culprit = if n % 2 == 0 { Some(Culprit::Receiver) } else { None };
            timeline.set(UnixMillis(10 * n), culprit);
            timeline.set(UnixMillis(10 * n + 5), culprit);
        }
        assert!(timeline.0.len() <= MOST_CHANGES);
        assert_eq!(timeline.at(UnixMillis(0)), Some(Culprit::Receiver));
        assert_eq!(timeline.at(UnixMillis(9_985)), Some(Culprit::Receiver));
        assert_eq!(timeline.current(), None);
    }

    /// 64,114 s of a receiver's outage were charged to delayd after a restart.
    #[test]
    fn what_was_due_before_the_start_is_not_charged_to_delayd() {
        let delays = Delays::default();
        let parts = |delays: &Delays| {
            let store = delays.of(&"t".parse().unwrap()).store;
            charge(UnixMillis(1_000), UnixMillis(9_000), &[&store], Culprit::Delayd)
        };
        assert_eq!(parts(&delays).part(Culprit::Unknown), 8_000 * MS);
        delays.saw_store(UnixMillis(5_000), true);
        assert_eq!(parts(&delays).part(Culprit::Unknown), 4_000 * MS);
        assert_eq!(parts(&delays).own(), 4_000 * MS);
        let delays = Delays::default();
        delays.saw_store(UnixMillis(3_000), false);
        delays.saw_store(UnixMillis(6_000), true);
        assert_eq!(parts(&delays).part(Culprit::Unknown), 2_000 * MS);
        assert_eq!(parts(&delays).part(Culprit::Store), 3_000 * MS);
    }

    #[test]
    fn a_deleted_topic_is_forgotten() {
        let delays = Delays::default();
        let [a, b]: [Topic; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let paused = Some(UnixMillis(5));
        delays.saw_pauses(UnixMillis(10), [(&a, paused), (&b, paused)].into_iter());
        delays.saw_pauses(UnixMillis(20), [(&b, None)].into_iter());
        assert!(delays.of(&a).pauses.is_empty());
        assert!(!delays.of(&b).pauses.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_adds_no_time() {
        let timeline = timeline(&[(100, Some(Culprit::Store)), (50, None)]);
        let lateness = charge(UnixMillis(0), UnixMillis(200), &[&timeline], Culprit::Delayd);
        assert_eq!(lateness.total(), 200 * MS);
        assert_eq!(lateness.part(Culprit::Store), Duration::ZERO);
    }

    #[test]
    fn what_follows_a_clock_that_was_set_back_is_charged() {
        let blocked = Some(Culprit::Receiver);
        let timeline = timeline(&[(1_000, blocked), (1_100, None), (50, blocked)]);
        let lateness = charge(UnixMillis(0), UnixMillis(200), &[&timeline], Culprit::Delayd);
        assert_eq!(lateness.part(Culprit::Receiver), 150 * MS);
        assert_eq!(lateness.part(Culprit::Delayd), 50 * MS);
    }
}
