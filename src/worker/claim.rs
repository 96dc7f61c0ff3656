//! Claiming: which destinations have free slots, and how many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::shared::Shared;
use super::topic;
use crate::callback::Caller;
use crate::clock::UnixMillis;
use crate::limits::{
    Availability, Permit, Permits, TopicPermit, TopicPermits, TopicWaiter, Waiter,
};
use crate::store::{Claim, Claimed, Delivery, Grant, MAX_OUTLOOK, Result, Want};
use crate::task::{Destination, Lane};

/// Slots in hand, by destination; and, of a topic that has limits of its own, as many of the
/// topic's.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_destination: BTreeMap<Destination, Permits>,
    of_topic: Option<TopicPermits>,
}

/// What one call needs.
#[derive(Debug)]
pub(super) struct CallPermits {
    pub(super) destination: Permit,
    pub(super) topic: Option<TopicPermit>,
}

impl Slots {
    /// What a call to the destination needs, if there is something left for it.
    pub(super) fn permits(&mut self, destination: &Destination) -> Option<CallPermits> {
        let destination = self.by_destination.get_mut(destination)?.split_one()?;
        let topic = match &mut self.of_topic {
            Some(permits) => Some(permits.split_one()?),
            None => None,
        };
        Some(CallPermits { destination, topic })
    }
}

/// What a lane's task claims with.
#[derive(Debug)]
pub(super) struct Claimer {
    lane: Lane,
    /// Destinations that had tasks lately: asked for without having been seen due, which saves a
    /// look.
    recent: Vec<Destination>,
    /// What has been seen of a list of due destinations that is longer than one outlook.
    seen: Vec<Destination>,
    /// The last one that got something: where not all can, the next claim begins after it, by name.
    last: Option<Destination>,
    /// Whether the store may keep the lane's lock for the next claim.
    keeps_lock: bool,
    /// Whether the next claim is to look and no more, which gives the lock back.
    looks_only: bool,
    /// The lane's positions in the wait queues of its due destinations.
    waiters: BTreeMap<Destination, Waiter>,
    /// Its position in the wait queue of its topic, if that has limits.
    topic_waiter: Option<TopicWaiter>,
}

/// Destinations that are asked for on suspicion.
const RECENT: usize = 4;

/// A claim that came back.
#[derive(Debug)]
pub(super) enum Taken {
    /// Another instance works the lane just now.
    Refused(Duration),
    /// Tasks, the slots to call them with, and from when their leases surely last.
    Granted { grant: Grant, slots: Slots, since: Instant },
}

impl Claimer {
    pub(super) fn new(lane: Lane) -> Self {
        Self {
            lane,
            recent: Vec::new(),
            seen: Vec::new(),
            last: None,
            keeps_lock: false,
            looks_only: false,
            waiters: BTreeMap::new(),
            topic_waiter: None,
        }
    }

    /// Claims whatever of `due`, and of the recent destinations, has free slots. In the middle of a
    /// look it only goes on with that, for a claim would move what has not been seen into what is
    /// passed over.
    ///
    /// # Errors
    /// The store's; the reserved slots are free again then.
    pub(super) async fn take(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        due: &[Destination],
    ) -> Result<Taken> {
        let looks_only = std::mem::take(&mut self.looks_only) || self.is_looking();
        let (slots, more) = if looks_only { Default::default() } else { self.reserve(shared, due) };
        // Where something was taken, the lane goes to the end of the queue; elsewhere it keeps its
        // position.
        self.waiters.retain(|destination, _| !slots.by_destination.contains_key(destination));
        self.step_aside();
        let wants: Vec<Want> = self
            .in_turn(slots.by_destination.keys())
            .map(|destination| Want {
                destination: destination.clone(),
                slots: slots.by_destination[destination].len(),
            })
            .collect();
        let last = wants.last().map(|want| want.destination.clone());
        // Should the answer be lost, it may have been kept.
        self.keeps_lock = more && !wants.is_empty();
        let claim = Claim {
            lane: self.lane.clone(),
            wants,
            lease: shared.params.lease,
            holder: Some(shared.holder.clone()),
            more,
            skip: self.seen.len(),
            in_hand: 0,
            misfires: shared.parts.topics.misfires_of(&self.lane.topic),
        };
        let (since, asked) = (Instant::now(), shared.parts.clock.now());
        match shared.parts.store.claim(claim).await? {
            Claimed::Refused { retry_in } => {
                self.keeps_lock = false;
                Ok(Taken::Refused(retry_in))
            }
            Claimed::Granted(mut grant) => {
                shared.time.saw(grant.now, asked);
                // Behind the last one that has something, the bytes of a claim may have run out.
                self.last = grant
                    .tasks
                    .last()
                    .map(|task| task.destination.clone())
                    .or(last)
                    .or(self.last.take());
                self.keeps_lock &= !grant.outlook.due.is_empty();
                self.learn(&mut grant);
                Ok(Taken::Granted { grant, slots, since })
            }
        }
    }

    /// Each once, beginning after the one that got something last. In the order of names: of the
    /// moments that they are due since, those of a flooded destination are always the first.
    fn in_turn<'a>(
        &self,
        names: impl Iterator<Item = &'a Destination>,
    ) -> impl Iterator<Item = &'a Destination> {
        let names: BTreeSet<&Destination> = names.collect();
        let mut names: Vec<&Destination> = names.into_iter().collect();
        let first = names.partition_point(|name| Some(*name) <= self.last.as_ref());
        names.rotate_left(first);
        names.into_iter()
    }

    /// Free slots for each wanted destination, together at most a batch, of which none takes so
    /// much that nothing is left for the others; and whether more slots are free than that.
    fn reserve(
        &self,
        shared: &Shared<impl Delivery, impl Caller>,
        due: &[Destination],
    ) -> (Slots, bool) {
        let mut slots = Slots { of_topic: self.reserve_of_topic(shared), ..Slots::default() };
        let mut left = slots.of_topic.as_ref().map_or(shared.params.claim_batch, TopicPermits::len);
        if left == 0 {
            return (slots, false);
        }
        let due: Vec<&Destination> = self.in_turn(due.iter()).collect();
        let mut waiting = due.len();
        let mut more = false;
        for (i, destination) in due.iter().copied().chain(&self.recent).enumerate() {
            let is_due = i < due.len();
            if left == 0 && (more || !is_due) {
                break;
            }
            let most = left.div_ceil(waiting.max(1));
            waiting = waiting.saturating_sub(1);
            if slots.by_destination.contains_key(destination) {
                continue;
            }
            let Some(service) = shared.parts.services.get(destination.as_str()) else { continue };
            let permits = match self.waiters.get(destination) {
                Some(waiter) => waiter.reserve(service.allowance(), most),
                None => shared.parts.limits.reserve(destination, service.allowance(), most),
            };
            if !permits.is_empty() {
                left -= permits.len();
                slots.by_destination.insert(destination.clone(), permits);
            }
            more |= is_due && shared.parts.limits.free(destination, service.allowance()) > 0;
        }
        (slots, more)
    }

    /// Free slots of the lane's topic, at most a batch; `None`: it has no limits.
    fn reserve_of_topic(
        &self,
        shared: &Shared<impl Delivery, impl Caller>,
    ) -> Option<TopicPermits> {
        let topic = &self.lane.topic;
        let (allowance, most) =
            (topic::allowance(&shared.policy_of(topic))?, shared.params.claim_batch);
        Some(match &self.topic_waiter {
            Some(waiter) => waiter.reserve(allowance, most),
            None => shared.topic_limits.of(topic).reserve(allowance, most),
        })
    }

    /// Whether the lane's lock may still be ours, so that another instance cannot claim.
    pub(super) fn keeps_lock(&self) -> bool {
        self.keeps_lock
    }

    /// The next claim looks and no more, and so gives the lock back.
    pub(super) fn give_lock_back(&mut self) {
        self.looks_only = true;
    }

    /// Asks for no destination on suspicion until one has been seen again.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
        self.seen.clear();
    }

    /// The lane is not woken for a slot until it looks for room again: it waits for something else
    /// meanwhile.
    pub(super) fn step_aside(&self) {
        self.waiters.values().for_each(Waiter::suspend);
        self.topic_waiter.iter().for_each(TopicWaiter::suspend);
    }

    /// Whether one of the due destinations could be claimed now. If not, the lane waits in the
    /// queues of all of them, and of no other; `wake` is notified in its turn.
    pub(super) fn room(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        due: &[Destination],
        wake: &Arc<Notify>,
    ) -> Room {
        if let Availability::Later(wait) = self.check_topic(shared, wake) {
            self.waiters.values().for_each(Waiter::suspend);
            return Room::None { wait };
        }
        let mut least: Option<Duration> = None;
        let mut before = std::mem::take(&mut self.waiters);
        for destination in due {
            let Some(service) = shared.parts.services.get(destination.as_str()) else { continue };
            let enqueue = || shared.parts.limits.enqueue(destination, wake.clone());
            let waiter = before.remove(destination).unwrap_or_else(enqueue);
            let availability = waiter.check(service.allowance());
            self.waiters.insert(destination.clone(), waiter);
            match availability {
                Availability::Now => {
                    self.waiters.append(&mut before);
                    return Room::Free;
                }
                Availability::Later(wait) => least = least.into_iter().chain(wait).min(),
            }
        }
        self.topic_waiter.iter().for_each(TopicWaiter::suspend);
        Room::None { wait: least }
    }

    /// Whether there is a slot of the lane's topic. If not, the lane waits for it.
    fn check_topic(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        wake: &Arc<Notify>,
    ) -> Availability {
        let topic = &self.lane.topic;
        let Some(allowance) = topic::allowance(&shared.policy_of(topic)) else {
            self.topic_waiter = None;
            return Availability::Now;
        };
        let enqueue = || shared.topic_limits.of(topic).enqueue(wake.clone());
        self.topic_waiter.get_or_insert_with(enqueue).check(allowance)
    }

    fn learn(&mut self, grant: &mut Grant) {
        for task in &grant.tasks {
            if !self.recent.contains(&task.destination) {
                self.recent.insert(0, task.destination.clone());
                self.recent.truncate(RECENT);
            }
        }
        // A full outlook may hide others behind it; the next one goes on there.
        let is_full = grant.outlook.due.len() == MAX_OUTLOOK;
        self.seen.append(&mut grant.outlook.due);
        if !is_full {
            grant.outlook.due = std::mem::take(&mut self.seen);
        }
    }

    /// Whether a full outlook was seen, so that the look is to be gone on with at once.
    pub(super) fn is_looking(&self) -> bool {
        !self.seen.is_empty()
    }
}

/// What stands between a lane and its due destinations.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// One of them could be claimed now.
    Free,
    /// None can, for now; after the wait, time alone (the end of a hold, a token, a breaker) may
    /// have freed something.
    None { wait: Option<Duration> },
}

/// Says which due destinations nobody knows: their tasks are held back, not killed.
pub(super) fn warn_of_unknown(
    shared: &Shared<impl Delivery, impl Caller>,
    lane: &Lane,
    due: &[Destination],
    now: UnixMillis,
    last: &mut UnixMillis,
) {
    const EVERY: Duration = Duration::from_secs(60);
    if now.since(*last) < EVERY {
        return;
    }
    for sn in
        due.iter().filter(|destination| shared.parts.services.get(destination.as_str()).is_none())
    {
        *last = now;
        tracing::warn!(%sn, %lane, "Tasks for {sn} are due but neither [services] nor callback.allow_hosts names it; they wait");
    }
}
