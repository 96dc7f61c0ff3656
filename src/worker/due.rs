//! The due destinations of one lane: those that may have permits, and those that wait for one.
//!
//! ```text
//! named by a claim ─▶ ready ── no permit ──▶ waiting
//!                      ▲ │                      │
//!                      │ └─ reserved, claimed   │
//!                      └── its turn, its time ──┘
//! ```
//!
//! Callers may name thousands of hosts, and all may be blocked. So a claim and a wake-up look at
//! the ready ones only. A waiting one becomes ready when it is its turn in its wait queue, when its
//! timer ends, or when a claim names it again and it has permits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::delays::Delays;
use super::permits::Reserved;
use super::shared::Shared;
use super::wake_ups::WakeUps;
use crate::callback::CallClient;
use crate::limits::{Allowance, Availability, Permits, Waiter};
use crate::model::culprit::Culprit;
use crate::model::task::{Destination, Topic};
use crate::store::Delivery;

/// What is known of the due destinations of one lane.
#[derive(Debug)]
pub(super) struct DueDestinations {
    topic: Topic,
    known: BTreeMap<Destination, KnownDestination>,
    /// Those that may have permits. All others wait.
    ready: BTreeSet<Destination>,
    /// When time may have freed a permit. A destination may have several, or wait no more.
    timers: BTreeSet<(Instant, Destination)>,
    /// Those that were woken, and have neither got permits nor waited again since.
    woken: BTreeSet<Destination>,
    /// Those that are not configured.
    unknown: BTreeSet<Destination>,
    /// The lane's position in the wait queue of the topic. `None` if the topic has no limits, or
    /// the lane has not waited for it yet.
    of_topic: Option<Waiter<Topic>>,
    /// Notified when it is the lane's turn in one of the queues.
    wake: Arc<Notify>,
    wake_ups: Arc<WakeUps>,
    /// The number of the scan in progress, or of the last one.
    scan: u64,
}

/// A due destination.
#[derive(Debug, Default)]
struct KnownDestination {
    /// The lane's position in its wait queue. `None` if the lane has not waited for it since it
    /// last got permits.
    waiter: Option<Waiter<Destination>>,
    /// The last scan that it was named in.
    scan: u64,
}

impl DueDestinations {
    /// None are known yet. `wake` is notified when it is the lane's turn in a wait queue.
    pub(super) fn new(topic: Topic, wake: Arc<Notify>) -> Self {
        Self {
            topic,
            known: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            woken: BTreeSet::new(),
            unknown: BTreeSet::new(),
            of_topic: None,
            wake_ups: WakeUps::new(Arc::clone(&wake)),
            wake,
            scan: 0,
        }
    }

    /// Whether none is due.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether the destination is due.
    pub(super) fn contains(&self, destination: &Destination) -> bool {
        self.known.contains_key(destination)
    }

    /// The due destinations, by name.
    pub(super) fn names(&self) -> impl Iterator<Item = &Destination> {
        self.known.keys()
    }

    /// The due destinations that are not configured, by name.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &Destination> {
        self.unknown.iter()
    }

    /// A claim has named the destination as due.
    pub(super) fn named(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        destination: Destination,
        delays: &mut Delays,
    ) {
        let scan = self.scan;
        if let Some(known) = self.known.get_mut(&destination) {
            known.scan = scan;
            if self.ready.contains(&destination) {
                return;
            }
            // No queue tells of changed settings, nor that an operator holds it now.
            let by = blocked_by(shared, &destination);
            let is_unknown = shared.parts.services.allowance_of(&destination).is_none();
            if by.is_some() && (known.waiter.is_some() || is_unknown) {
                delays.blocked(&destination, shared.time.store_now(), by);
            } else {
                self.unknown.remove(&destination);
                self.ready.insert(destination);
            }
        } else {
            self.known.insert(
                destination.clone(),
                KnownDestination { scan, ..KnownDestination::default() },
            );
            self.ready.insert(destination);
        }
    }

    /// The destination is not due any more.
    pub(super) fn remove(&mut self, destination: &Destination) -> bool {
        self.ready.remove(destination);
        self.woken.remove(destination);
        self.unknown.remove(destination);
        self.known.remove(destination).is_some()
    }

    /// A scan of all due destinations begins.
    pub(super) fn scan_begins(&mut self) {
        self.scan += 1;
    }

    /// The scan has ended. Removes and returns those that were not named since it began.
    pub(super) fn scan_ends(&mut self) -> Vec<Destination> {
        let gone = self.known.iter().filter(|(_, known)| known.scan != self.scan);
        let gone: Vec<Destination> = gone.map(|(name, _)| name.clone()).collect();
        for name in &gone {
            self.remove(name);
        }
        gone
    }

    /// Reserves permits for the ready destinations, by name after `last`, and then for the recent
    /// ones: at most `batch` in total, shared so that each ready destination can get some. Also
    /// returns whether ready destinations have more permits than that.
    ///
    /// The lane goes to the end of the queue of its topic, and of each destination, that it got
    /// permits of. Elsewhere it keeps its position, and declines its turns until the next
    /// [`Self::check`].
    pub(super) fn reserve(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        last: Option<&Destination>,
        recent: &[Destination],
        batch: usize,
        delays: &mut Delays,
    ) -> (Reserved, bool) {
        self.take_turns(false);
        let reserved = self.take(shared, last, recent, batch, delays);
        self.suspend();
        reserved
    }

    fn take(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        last: Option<&Destination>,
        recent: &[Destination],
        batch: usize,
        delays: &mut Delays,
    ) -> (Reserved, bool) {
        let of_topic = self.take_of_topic(shared, batch);
        let mut left = of_topic.as_ref().map_or(batch, Permits::len);
        let mut reserved = Reserved::of_topic(of_topic);
        let now = shared.time.store_now();
        // The tasks that follow those of this claim wait for the next free slot.
        delays.topic_blocked(now, self.topic_blocked_by(shared, left < batch));
        if left == 0 {
            return (reserved, false);
        }
        let mut unserved = self.ready.len();
        let mut more = false;
        // All get something in turn. By due moment, those of a flooded one would always be first.
        let mut ready = std::mem::take(&mut self.ready);
        let behind = last.map_or(Unbounded, Excluded);
        let up_to = last.into_iter().flat_map(|last| ready.range::<Destination, _>(..=last));
        let mut waiting = Vec::new();
        for destination in ready.range::<Destination, _>((behind, Unbounded)).chain(up_to) {
            if left == 0 && more {
                break;
            }
            let most = left.div_ceil(unserved);
            unserved -= 1;
            let Some(allowance) = shared.parts.services.allowance_of(destination) else {
                self.check_one(shared, destination, delays);
                waiting.push(destination.clone());
                continue;
            };
            let Some(known) = self.known.get_mut(destination) else { continue };
            let permits = match &known.waiter {
                Some(waiter) => waiter.reserve(allowance, most),
                None => shared.parts.limits.reserve(destination, allowance, most),
            };
            let by = shared.parts.limits.blocked_by(destination, allowance);
            more |= by.is_none();
            delays.blocked(destination, now, by.or(promised(permits.len() < most)));
            if !permits.is_empty() {
                known.waiter = None;
                self.woken.remove(destination);
                left -= permits.len();
                reserved.add(destination.clone(), permits);
            } else if most > 0 && !self.check_one(shared, destination, delays) {
                waiting.push(destination.clone());
            }
        }
        for destination in &waiting {
            ready.remove(destination);
        }
        self.ready = ready;
        for destination in recent {
            if left == 0 {
                break;
            }
            let is_asked = self.contains(destination) || reserved.contains(destination);
            if let Some(allowance) =
                shared.parts.services.allowance_of(destination).filter(|_| !is_asked)
            {
                let permits = shared.parts.limits.reserve(destination, allowance, left);
                let by = shared.parts.limits.blocked_by(destination, allowance);
                delays.blocked(destination, now, by.or(promised(permits.len() < left)));
                if !permits.is_empty() {
                    left -= permits.len();
                    reserved.add(destination.clone(), permits);
                }
            }
        }
        if reserved.destinations().next().is_some() {
            self.of_topic = None;
        }
        (reserved, more)
    }

    /// Permits of the topic, at most a batch; `None` if the topic has no limits.
    fn take_of_topic(
        &self,
        shared: &Shared<impl Delivery, impl CallClient>,
        batch: usize,
    ) -> Option<Permits<Topic>> {
        let allowance = Allowance::of_topic(&shared.policy_of(&self.topic))?;
        Some(match &self.of_topic {
            Some(waiter) => waiter.reserve(allowance, batch),
            None => shared.parts.topic_limits.reserve(&self.topic, allowance, batch),
        })
    }

    /// Whether there is a permit for one of the due destinations. If not, the lane waits in the
    /// queues of all of them, and of no others; it is notified in its turn.
    pub(super) fn check(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        delays: &mut Delays,
    ) -> Availability {
        if let Availability::Later(wait) = self.check_topic(shared) {
            let by = self.topic_blocked_by(shared, true);
            delays.topic_blocked(shared.time.store_now(), by);
            self.take_turns(false);
            self.suspend_destinations();
            // The lane keeps timers for others, too.
            return Availability::Later(wait.into_iter().chain(self.first_timer()).min());
        }
        self.take_turns(true);
        while let Some(destination) = self.ready.first().cloned() {
            if self.check_one(shared, &destination, delays) {
                return Availability::Now;
            }
            self.ready.remove(&destination);
        }
        delays.topic_blocked(shared.time.store_now(), None);
        self.of_topic.iter().for_each(Waiter::suspend);
        Availability::Later(self.first_timer())
    }

    /// How long until the first timer ends.
    fn first_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }

    /// Whether there is a permit for a ready destination. If not, it waits, and is not ready any
    /// more.
    fn check_one(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        destination: &Destination,
        delays: &mut Delays,
    ) -> bool {
        let (limits, now) = (&shared.parts.limits, shared.time.store_now());
        let Some(known) = self.known.get_mut(destination) else { return false };
        let Some(allowance) = shared.parts.services.allowance_of(destination) else {
            // It waits until a claim names it again and it is configured.
            known.waiter = None;
            self.woken.remove(destination);
            self.unknown.insert(destination.clone());
            delays.blocked(destination, now, Some(Culprit::Operator));
            return false;
        };
        let enqueue = || limits.enqueue(destination, self.wake_ups.of(destination));
        match known.waiter.get_or_insert_with(enqueue).check(allowance) {
            // The claim that follows sees whether there are enough permits.
            Availability::Now => true,
            Availability::Later(wait) => {
                self.woken.remove(destination);
                self.timers.extend(wait.map(|wait| (Instant::now() + wait, destination.clone())));
                let by = limits.blocked_by(destination, allowance).or(promised(true));
                delays.blocked(destination, now, by);
                false
            }
        }
    }

    /// Those are ready whose turn it was, or whose timer has ended. From now on, the lane takes its
    /// turns, or declines them.
    fn take_turns(&mut self, listens: bool) {
        for destination in self.wake_ups.listen(listens) {
            // It may not be due any more.
            if self.contains(&destination) {
                self.ready.insert(destination.clone());
                self.woken.insert(destination);
            }
        }
        let now = Instant::now();
        while let Some((at, destination)) = self.timers.pop_first() {
            if at > now {
                self.timers.insert((at, destination));
                break;
            }
            if self.contains(&destination) {
                self.ready.insert(destination.clone());
                // If the lane has no use for it, the next in the queue gets the timer.
                self.woken.insert(destination);
            }
        }
    }

    /// Who keeps the topic's calls from beginning. If it is `full` for this lane alone, free slots
    /// are promised to others that have waited longer.
    fn topic_blocked_by(
        &self,
        shared: &Shared<impl Delivery, impl CallClient>,
        full: bool,
    ) -> Option<Culprit> {
        let allowance = Allowance::of_topic(&shared.policy_of(&self.topic))?;
        shared.parts.topic_limits.blocked_by(&self.topic, allowance).or(promised(full))
    }

    fn check_topic(&mut self, shared: &Shared<impl Delivery, impl CallClient>) -> Availability {
        let Some(allowance) = Allowance::of_topic(&shared.policy_of(&self.topic)) else {
            self.of_topic = None;
            return Availability::Now;
        };
        let enqueue = || shared.parts.topic_limits.enqueue(&self.topic, Arc::clone(&self.wake));
        self.of_topic.get_or_insert_with(enqueue).check(allowance)
    }

    /// The lane keeps its positions, but declines its turns until the next [`Self::check`]: it
    /// waits for something else meanwhile.
    pub(super) fn suspend(&mut self) {
        self.take_turns(false);
        self.suspend_destinations();
        self.of_topic.iter().for_each(Waiter::suspend);
    }

    /// Gives up the turns that were not used. The destinations stay ready.
    fn suspend_destinations(&mut self) {
        for destination in std::mem::take(&mut self.woken) {
            let waiter = self.known.get(&destination).and_then(|known| known.waiter.as_ref());
            waiter.into_iter().for_each(Waiter::suspend);
        }
    }
}

/// Who has the free slots if this lane gets too few: lanes that have waited longer, whose calls
/// receivers keep waiting.
fn promised(got_too_few: bool) -> Option<Culprit> {
    got_too_few.then_some(Culprit::Receiver)
}

/// Who keeps calls to the destination from beginning now; `None` if one may begin.
fn blocked_by(
    shared: &Shared<impl Delivery, impl CallClient>,
    destination: &Destination,
) -> Option<Culprit> {
    match shared.parts.services.allowance_of(destination) {
        Some(allowance) => shared.parts.limits.blocked_by(destination, allowance),
        None => Some(Culprit::Operator),
    }
}

#[cfg(test)]
#[path = "due_tests.rs"]
mod tests;
