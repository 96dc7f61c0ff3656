//! The permits of one lane: reserved before each claim, and waited for when there are none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::delays::Delays;
use super::shared::Shared;
use crate::callback::Caller;
use crate::limits::{
    Allowance, Availability, Permit, Permits, TopicPermit, TopicPermits, TopicWaiter, Waiter,
};
use crate::model::culprit::Culprit;
use crate::model::task::{Destination, Topic};
use crate::store::Delivery;

/// The permits of one claim: some of each destination and, if the topic has limits, as many of the
/// topic.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    by_destination: BTreeMap<Destination, Permits>,
    of_topic: Option<TopicPermits>,
}

/// The permits of one call.
#[derive(Debug)]
pub(super) struct CallPermits {
    pub(super) destination: Permit,
    pub(super) topic: Option<TopicPermit>,
}

impl Reserved {
    /// The permits of one call to the destination; `None` if none are left for it.
    pub(super) fn split_one(&mut self, destination: &Destination) -> Option<CallPermits> {
        let destination = self.by_destination.get_mut(destination)?.split_one()?;
        let topic = match &mut self.of_topic {
            Some(permits) => Some(permits.split_one()?),
            None => None,
        };
        Some(CallPermits { destination, topic })
    }

    /// The destinations that have permits, by name.
    pub(super) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.by_destination.keys()
    }

    /// How many permits the destination has.
    pub(super) fn count(&self, destination: &Destination) -> usize {
        self.by_destination.get(destination).map_or(0, Permits::len)
    }
}

/// A lane's positions in the wait queues of its due destinations and of its topic.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_destination: BTreeMap<Destination, Waiter>,
    /// `None` if the topic has no limits, or the lane has not waited for it yet.
    of_topic: Option<TopicWaiter>,
}

impl Waiters {
    /// Reserves permits for the due destinations, in their order, and then for the recent ones: at
    /// most `batch` in total, shared so that each due destination can get some. Also returns
    /// whether due destinations have more permits than that.
    ///
    /// The lane goes to the end of the queue of each destination that it got permits of. Elsewhere
    /// it keeps its position, and is not woken until the next [`Self::check`].
    pub(super) fn reserve(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        topic: &Topic,
        due: &[&Destination],
        recent: &[Destination],
        batch: usize,
        delays: &mut Delays,
    ) -> (Reserved, bool) {
        let (reserved, more) = self.take(shared, topic, due, recent, batch, delays);
        self.by_destination.retain(|name, _| !reserved.by_destination.contains_key(name));
        self.suspend();
        (reserved, more)
    }

    fn take(
        &self,
        shared: &Shared<impl Delivery, impl Caller>,
        topic: &Topic,
        due: &[&Destination],
        recent: &[Destination],
        batch: usize,
        delays: &mut Delays,
    ) -> (Reserved, bool) {
        let of_topic = self.take_of_topic(shared, topic, batch);
        let mut reserved = Reserved { of_topic, ..Reserved::default() };
        let mut left = reserved.of_topic.as_ref().map_or(batch, TopicPermits::len);
        let now = shared.time.store_now();
        // The tasks that follow those of this claim wait for the next free slot.
        delays.topic_blocked(now, blocks_topic(shared, topic, left < batch));
        if left == 0 {
            return (reserved, false);
        }
        let mut waiting = due.len();
        let mut more = false;
        for (i, destination) in due.iter().copied().chain(recent).enumerate() {
            let is_due = i < due.len();
            if left == 0 && (more || !is_due) {
                break;
            }
            let most = left.div_ceil(waiting.max(1));
            waiting = waiting.saturating_sub(1);
            if reserved.by_destination.contains_key(destination) {
                continue;
            }
            let Some(service) = shared.parts.services.get(destination.as_str()) else {
                if is_due {
                    delays.blocked(destination, now, Culprit::Operator);
                }
                continue;
            };
            let permits = match self.by_destination.get(destination) {
                Some(waiter) => waiter.reserve(service.allowance(), most),
                None => shared.parts.limits.reserve(destination, service.allowance(), most),
            };
            let by = shared.parts.limits.blocked_by(destination, service.allowance());
            more |= is_due && by.is_none();
            // What follows waits for the next free slot. Those that are free are promised to lanes
            // that have waited longer.
            let got_too_few = permits.len() < most;
            match by.or(got_too_few.then_some(Culprit::Receiver)) {
                Some(by) => delays.blocked(destination, now, by),
                None => delays.free(destination, now),
            }
            if !permits.is_empty() {
                left -= permits.len();
                reserved.by_destination.insert(destination.clone(), permits);
            }
        }
        (reserved, more)
    }

    /// Permits of the topic, at most a batch; `None` if the topic has no limits.
    fn take_of_topic(
        &self,
        shared: &Shared<impl Delivery, impl Caller>,
        topic: &Topic,
        batch: usize,
    ) -> Option<TopicPermits> {
        let allowance = Allowance::of_topic(&shared.policy_of(topic))?;
        Some(match &self.of_topic {
            Some(waiter) => waiter.reserve(allowance, batch),
            None => shared.parts.topic_limits.of(topic).reserve(allowance, batch),
        })
    }

    /// Whether there is a permit for one of the due destinations. If not, the lane waits in the
    /// queues of all of them, and of no others; `wake` is notified in its turn.
    pub(super) fn check(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        topic: &Topic,
        due: &[Destination],
        wake: &Arc<Notify>,
        delays: &mut Delays,
    ) -> Availability {
        if let Availability::Later(wait) = self.check_topic(shared, topic, wake) {
            delays.topic_blocked(shared.time.store_now(), blocks_topic(shared, topic, true));
            self.by_destination.values().for_each(Waiter::suspend);
            return Availability::Later(wait);
        }
        let now = shared.time.store_now();
        let mut least: Option<Duration> = None;
        let mut before = std::mem::take(&mut self.by_destination);
        for destination in due {
            let Some(service) = shared.parts.services.get(destination.as_str()) else {
                delays.blocked(destination, now, Culprit::Operator);
                continue;
            };
            let enqueue = || shared.parts.limits.enqueue(destination, wake.clone());
            let waiter = before.remove(destination).unwrap_or_else(enqueue);
            let availability = waiter.check(service.allowance());
            self.by_destination.insert(destination.clone(), waiter);
            match availability {
                // The claim that follows sees whether there are enough permits.
                Availability::Now => {
                    self.by_destination.append(&mut before);
                    return Availability::Now;
                }
                Availability::Later(wait) => {
                    let by = shared.parts.limits.blocked_by(destination, service.allowance());
                    // Free slots are promised to lanes that have waited longer.
                    delays.blocked(destination, now, by.unwrap_or(Culprit::Receiver));
                    least = least.into_iter().chain(wait).min();
                }
            }
        }
        delays.topic_blocked(now, None);
        self.of_topic.iter().for_each(TopicWaiter::suspend);
        Availability::Later(least)
    }

    fn check_topic(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        topic: &Topic,
        wake: &Arc<Notify>,
    ) -> Availability {
        let Some(allowance) = Allowance::of_topic(&shared.policy_of(topic)) else {
            self.of_topic = None;
            return Availability::Now;
        };
        let enqueue = || shared.parts.topic_limits.of(topic).enqueue(wake.clone());
        self.of_topic.get_or_insert_with(enqueue).check(allowance)
    }

    /// The lane keeps its positions, but is not woken until the next [`Self::check`]: it waits for
    /// something else meanwhile.
    pub(super) fn suspend(&self) {
        self.by_destination.values().for_each(Waiter::suspend);
        self.of_topic.iter().for_each(TopicWaiter::suspend);
    }
}

/// Who keeps the topic's calls from beginning. If it is `full` for this lane alone, free slots are
/// promised to others that have waited longer.
fn blocks_topic(
    shared: &Shared<impl Delivery, impl Caller>,
    topic: &Topic,
    full: bool,
) -> Option<Culprit> {
    let allowance = Allowance::of_topic(&shared.policy_of(topic))?;
    let by = shared.parts.topic_limits.of(topic).blocked_by(allowance);
    by.or(full.then_some(Culprit::Receiver))
}

/// Whether the topic, or one of the due destinations that operators do not hold, has no permit.
pub(super) fn are_lacking(
    shared: &Shared<impl Delivery, impl Caller>,
    topic: &Topic,
    due: &[Destination],
) -> bool {
    let Shared { parts, .. } = shared;
    let has_none = |destination: &Destination| {
        let service = parts.services.get(destination.as_str());
        service.is_none_or(|it| parts.limits.free(destination, it.allowance()) == 0)
            && !parts.limits.is_held(destination)
    };
    let topic_is_full = || blocks_topic(shared, topic, false).is_some();
    !due.is_empty() && (topic_is_full() || due.iter().any(has_none))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::testing::{Bench, lane};

    /// The tasks behind those of a claim were charged to delayd until the next check found no slot,
    /// and mostly it found one.
    #[tokio::test]
    async fn what_follows_the_last_permits_waits_for_receivers() {
        let bench = Bench::start(&[("s", 2)], |params| params.enabled = false);
        let (topic, s) = (lane().topic, "s".parse().unwrap());
        let (waiters, mut delays) = (Waiters::default(), Delays::default());
        let mut take = |most| {
            let shared = &bench.worker.shared;
            let (reserved, _) = waiters.take(shared, &topic, &[&s], &[], most, &mut delays);
            (reserved, delays.of_destination(&s))
        };
        let (one, by) = take(1);
        assert_eq!((one.count(&s), by), (1, None));
        let (two, by) = take(64);
        assert_eq!((two.count(&s), by), (1, Some(Culprit::Receiver)));
        drop((one, two));
        assert_eq!(take(1).1, None);
    }
}
