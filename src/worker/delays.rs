//! The delays of one lane. The lane notes a delay when it finds that it may not claim. When it
//! hands tasks out, it charges their lateness to the culprits.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::shared::Shared;
use crate::model::clock::UnixMillis;
use crate::model::culprit::Culprit;
use crate::model::lateness::{LastDelay, Lateness};
use crate::model::task::{Destination, Topic};
use crate::store::LeasedTask;

/// The last delays of one lane, by the store's clock.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// The topic's own limits.
    topic: LastDelay,
    /// The destinations that have due tasks and no permits.
    destinations: BTreeMap<Destination, LastDelay>,
    /// Failed claims, and settles that the lane's server does not answer.
    store: LastDelay,
}

/// A store that answers a claim or a poll later than this delays tasks.
pub(super) const SLOW: Duration = Duration::from_millis(50);

/// When a claim was sent and answered, by the store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimTimes {
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
        if let Some(last) = self.destinations.get_mut(destination) {
            last.set(now, by);
        } else if by.is_some() {
            self.destinations.entry(destination.clone()).or_default().set(now, by);
        }
    }

    /// Who keeps calls to the destination from beginning.
    #[cfg(test)]
    pub(super) fn of_destination(&self, destination: &Destination) -> Option<Culprit> {
        self.destinations.get(destination).and_then(|last| last.current())
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
        claim: ClaimTimes,
    ) -> impl Fn(&LeasedTask) -> Lateness + use<'a, S, C> {
        let of_topic = OnceCell::new();
        move |task| {
            if task.due >= claim.answered {
                return Lateness::default();
            }
            let of_topic = of_topic.get_or_init(|| shared.parts.metrics.lateness.delays.of(topic));
            let of_destination = self.destinations.get(&task.destination).copied();
            let held = held(task.due, task.held_until);
            let delays = [self.topic, of_destination.unwrap_or_default(), self.store, held];
            let mut lateness = of_topic.charge(task.due, claim.asked, &delays, Culprit::Delayd);
            let since = task.due.max(claim.asked);
            lateness.add(Culprit::Store, claim.answered.0 - since.0);
            lateness
        }
    }
}

/// The time for which the store held a task back.
fn held(due: UnixMillis, until: Option<UnixMillis>) -> LastDelay {
    let mut held = LastDelay::default();
    if let Some(until) = until {
        held.set(due, Some(Culprit::Store));
        held.set(until, None);
    }
    held
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::lateness::TopicDelays;

    #[test]
    fn a_task_that_a_slow_disk_held_back_is_late_by_the_store() {
        let check = |until: Option<i64>, by_store: u64| {
            let held = held(UnixMillis(100), until.map(UnixMillis));
            let of_topic = TopicDelays::default();
            let late = of_topic.charge(UnixMillis(100), UnixMillis(400), &[held], Culprit::Delayd);
            assert_eq!(late.part(Culprit::Store), Duration::from_millis(by_store));
            assert_eq!(late.part(Culprit::Delayd), Duration::from_millis(300 - by_store));
        };
        check(None, 0);
        check(Some(90), 0);
        check(Some(300), 200);
        check(Some(500), 300);
    }
}
