//! The delays of one lane. The lane notes a delay when it finds that it may not claim. When it
//! hands tasks out, it charges their lateness to the culprits.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::time::Duration;
use std::{iter, ptr};

use super::shared::Shared;
use crate::model::clock::UnixMillis;
use crate::model::culprit::Culprit;
use crate::model::lateness::{Lateness, OfTopic, Timeline, charge};
use crate::model::task::{Destination, Topic};
use crate::store::LeasedTask;

/// The timelines of one lane, by the store's clock.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// The topic's own limits.
    topic: Timeline,
    /// The destinations that have due tasks and no permits.
    destinations: BTreeMap<Destination, Timeline>,
    /// Failed claims, and settles that the lane's server does not answer.
    store: Timeline,
}

/// A store that answers a claim or a poll later than this delays tasks.
pub(super) const SLOW: Duration = Duration::from_millis(50);

/// When a claim was sent and answered, by the store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) asked: UnixMillis,
    pub(super) answered: UnixMillis,
}

impl Delays {
    /// From `now` on, this culprit keeps calls to the destination from beginning; `None`: nobody
    /// does.
    pub(super) fn blocked(
        &mut self,
        destination: &Destination,
        now: UnixMillis,
        by: Option<Culprit>,
    ) {
        if let Some(timeline) = self.destinations.get_mut(destination) {
            timeline.set(now, by);
        } else if by.is_some() {
            self.destinations.entry(destination.clone()).or_default().set(now, by);
        }
    }

    /// Who keeps calls to the destination from beginning.
    #[cfg(test)]
    pub(super) fn of_destination(&self, destination: &Destination) -> Option<Culprit> {
        self.destinations.get(destination).and_then(Timeline::current)
    }

    /// From `now` on, this culprit keeps all calls of the topic from beginning; `None`: nobody
    /// does.
    pub(super) fn topic_blocked(&mut self, now: UnixMillis, by: Option<Culprit>) {
        self.topic.set(now, by);
    }

    /// Notes that the store has not answered since this time: a claim that was sent then, or
    /// settles.
    pub(super) fn store_fails(&mut self, since: UnixMillis) {
        self.store.set(since, Some(Culprit::Store));
        // While claims fail, no permits are checked. What operators have set stays.
        for timeline in iter::once(&mut self.topic).chain(self.destinations.values_mut()) {
            if timeline.current() == Some(Culprit::Receiver) {
                timeline.set(since, None);
            }
        }
    }

    /// Notes that the store answered a claim that was sent at this time.
    pub(super) fn store_answers(&mut self, asked: UnixMillis, answered: UnixMillis) {
        // Nothing else is claimed meanwhile, also if this answer has no tasks.
        if answered.since(asked) >= SLOW {
            self.store.set(asked, Some(Culprit::Store));
        }
        self.store.set(answered, None);
    }

    /// Forgets a destination that has no due tasks any more.
    pub(super) fn forget(&mut self, destination: &Destination) {
        self.destinations.remove(destination);
    }

    /// How late the tasks of a claim are when the answer arrives, and who delayed them.
    pub(super) fn of_claim<'a, S, C>(
        &'a self,
        shared: &'a Shared<S, C>,
        topic: &'a Topic,
        claim: Answered,
    ) -> impl Fn(&LeasedTask) -> Lateness + use<'a, S, C> {
        let of_topic = OnceCell::new();
        let none = Timeline::default();
        // The tasks of a burst have one moment, and often one destination.
        let last: Cell<Option<(UnixMillis, Option<&Timeline>, Lateness)>> = Cell::default();
        move |task| {
            if task.due >= claim.answered {
                return Lateness::default();
            }
            let destination = self.destinations.get(&task.destination);
            if let Some((due, of, lateness)) = last.get()
                && (due, of.map(ptr::from_ref)) == (task.due, destination.map(ptr::from_ref))
                && task.held_until.is_none()
            {
                return lateness;
            }
            let OfTopic { jumps, pauses, store } =
                of_topic.get_or_init(|| shared.parts.metrics.lateness.delays.of(topic));
            let held = held(task.due, task.held_until);
            let of_destination = destination.unwrap_or(&none);
            let timelines = [jumps, pauses, &self.topic, of_destination, store, &self.store, &held];
            let mut lateness = charge(task.due, claim.asked, &timelines, Culprit::Delayd);
            let since = task.due.max(claim.asked);
            lateness.add(Culprit::Store, claim.answered.0 - since.0);
            if task.held_until.is_none() {
                last.set(Some((task.due, destination, lateness)));
            }
            lateness
        }
    }
}

/// The time for which the store held a task back.
fn held(due: UnixMillis, until: Option<UnixMillis>) -> Timeline {
    let mut held = Timeline::default();
    if let Some(until) = until.filter(|until| *until > due) {
        held.set(due, Some(Culprit::Store));
        held.set(until, None);
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_a_slow_disk_held_back_is_late_by_the_store() {
        let check = |until: Option<i64>, by_store: u64| {
            let held = held(UnixMillis(100), until.map(UnixMillis));
            let late = charge(UnixMillis(100), UnixMillis(400), &[&held], Culprit::Delayd);
            assert_eq!(late.part(Culprit::Store), Duration::from_millis(by_store));
            assert_eq!(late.part(Culprit::Delayd), Duration::from_millis(300 - by_store));
        };
        check(None, 0);
        check(Some(90), 0);
        check(Some(300), 200);
        check(Some(500), 300);
    }
}
