//! Those who wait for a task to pull: a queue per topic, served in order of arrival.
//!
//! ```text
//! pull with `wait` ─▶ a place in the topic's queue ─▶ claimed for (`dispatcher`) ─▶ answer
//!                          │ hangs up                     ▲
//!                          └─▶ leaves                     │ a hint, the next due moment, a look each second
//! ```
//!
//! However many wait, the store is asked by the queue alone, and only when there is reason:
//! [`crate::api::long_poll::dispatcher`] has the times. What is added or put back, by this process
//! or another instance, comes as a hint.
//!
//! # Invariants
//!
//! - A waiter has a place, of which there are so many, and no request slot: those who wait cost the
//!   others nothing but their connections.
//! - A caller that leaves, whatever way, is out of the queue at once. A task that was claimed for it
//!   meanwhile is given back unspent.
//! - A queue lives while somebody stands in it. It ends, and another begins, under the lock of all
//!   queues.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, broadcast, oneshot};
use tokio::time::Instant;

use crate::api::long_poll::delivery::{PullParams, PulledTasks};
use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Topic};
use crate::store::Hint;

/// The most claims for waiters at a time, over all queues.
const CLAIMS: usize = 128;

/// Everyone who waits.
#[derive(Debug)]
pub(crate) struct Waiters {
    places: Semaphore,
    claims: Semaphore,
    queues: Mutex<HashMap<Topic, Arc<WaitQueue>>>,
    /// The store's time, and when it was that.
    store_time: Mutex<Option<(UnixMillis, Instant)>>,
}

/// Those who wait for one topic, and from when on there may be something for them.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    state: Mutex<State>,
    /// Somebody came or the last one left, or there was a hint.
    pub(crate) news: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    waiting: BTreeMap<u64, Waiter>,
    last_ticket: u64,
    /// From when on a claim has something to do, by shard, as the last look found it.
    known: BTreeMap<u16, Instant>,
    /// The same, as hints said since the last claim.
    pub(crate) hinted: BTreeMap<u16, Instant>,
    /// Nobody looked yet, or hints were lost: any lane may have something.
    may_be_anywhere: bool,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) params: PullParams,
    pub(crate) answer: oneshot::Sender<Result<PulledTasks, Error>>,
}

impl Waiters {
    /// Room for so many waiters. Hears of adds for as long as the store lives.
    pub(crate) fn new(places: usize, hints: broadcast::Receiver<Hint>) -> Arc<Self> {
        let waiters = Arc::new(Self {
            places: Semaphore::new(places),
            claims: Semaphore::new(CLAIMS),
            queues: Mutex::default(),
            store_time: Mutex::default(),
        });
        tokio::spawn(listen(waiters.clone(), hints));
        waiters
    }

    /// One of the claims that may run at a time.
    pub(crate) async fn claim(&self) -> SemaphorePermit<'_> {
        self.claims.acquire().await.expect("the semaphore is never closed")
    }

    /// The store's time was `now` at that moment.
    pub(crate) fn saw(&self, now: UnixMillis, at: Instant) {
        *self.store_time.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, at));
    }

    /// Whether nobody stands in the queue; then it is no more.
    pub(crate) fn is_over(&self, topic: &Topic, queue: &WaitQueue) -> bool {
        let mut queues = self.queues();
        let is_empty = queue.state().waiting.is_empty();
        if is_empty {
            queues.remove(topic);
        }
        is_empty
    }

    /// A place, if there is one left.
    pub(crate) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Joins the topic's queue. A queue that is made for it is given to `serve`.
    pub(crate) fn join(
        &self,
        topic: &Topic,
        waiter: Waiter,
        serve: impl FnOnce(Arc<WaitQueue>),
    ) -> Queued {
        let mut queues = self.queues();
        let queue = queues.entry(topic.clone()).or_insert_with(|| {
            let queue = Arc::new(WaitQueue::default());
            queue.state().may_be_anywhere = true;
            serve(queue.clone());
            queue
        });
        let mut state = queue.state();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.waiting.insert(ticket, waiter);
        drop(state);
        Queued { queue: queue.clone(), ticket }
    }

    fn hear(&self, hint: &Hint) {
        if !hint.is_pull {
            return;
        }
        let Some(queue) = self.queue_of(&hint.lane.topic) else { return };
        let store_time = *self.store_time.lock().unwrap_or_else(PoisonError::into_inner);
        let at = store_time.map_or_else(Instant::now, |(now, at)| at + hint.due.since(now));
        queue.add_hint(hint.lane.shard, at);
    }

    pub(crate) fn queue_of(&self, topic: &Topic) -> Option<Arc<WaitQueue>> {
        self.queues().get(topic).cloned()
    }

    pub(crate) fn queues(&self) -> MutexGuard<'_, HashMap<Topic, Arc<WaitQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter's place in the queue, left by dropping.
pub(crate) struct Queued {
    queue: Arc<WaitQueue>,
    ticket: u64,
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let left = state.waiting.remove(&self.ticket).is_some();
        if left && state.waiting.is_empty() {
            self.queue.news.notify_one();
        }
    }
}

impl WaitQueue {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim of the lane has something to do from then on.
    fn add_hint(&self, shard: u16, at: Instant) {
        let mut state = self.state();
        let first = state.hinted.entry(shard).or_insert(at);
        *first = at.min(*first);
        self.news.notify_one();
    }

    fn lost_hints(&self) {
        self.state().may_be_anywhere = true;
        self.news.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().waiting.is_empty()
    }

    /// The first in the queue, and what they params for.
    pub(crate) fn heads(&self, most: usize) -> Vec<(u64, PullParams)> {
        self.state()
            .waiting
            .iter()
            .take(most)
            .map(|(ticket, waiter)| (*ticket, waiter.params))
            .collect()
    }

    /// Whether any of the lanes may have something now: of those the hints are used up.
    pub(crate) fn due(&self, lanes: &mut Vec<Lane>, now: Instant) -> bool {
        let mut state = self.state();
        if std::mem::take(&mut state.may_be_anywhere) {
            state.hinted.clear();
            return true;
        }
        let State { known, hinted, .. } = &mut *state;
        lanes.retain(|lane| {
            let is_due = |moments: &BTreeMap<u16, Instant>| {
                moments.get(&lane.shard).is_some_and(|at| *at <= now)
            };
            let (is_known, is_heard) = (is_due(known), is_due(hinted));
            if is_heard {
                hinted.remove(&lane.shard);
            }
            is_known || is_heard
        });
        !lanes.is_empty()
    }

    /// When next to claim, if anything is known to come.
    pub(crate) fn next(&self) -> Option<Instant> {
        let state = self.state();
        let anywhere = state.may_be_anywhere.then(Instant::now);
        anywhere
            .into_iter()
            .chain(state.known.values().chain(state.hinted.values()).copied().min())
            .min()
    }

    /// What a look has found, in the place of the one before. Hints that came since the claims
    /// stand.
    pub(crate) fn knows(&self, known: BTreeMap<u16, Instant>) {
        self.state().known = known;
    }

    /// Gives a waiter what was claimed for it. If the waiter has left, it goes back.
    pub(crate) fn serve(&self, ticket: u64, taken: PulledTasks) {
        let waiter = self.state().waiting.remove(&ticket);
        if let Some(waiter) = waiter {
            // Given back, if the waiter left just now.
            let _ = waiter.answer.send(Ok(taken));
        }
    }

    /// Tells everyone that it cannot be said what is due.
    pub(crate) fn fail(&self, error: &Error) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for waiter in waiting.into_values() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}

/// Hears the store's hints until the store is gone.
async fn listen(waiters: Arc<Waiters>, mut hints: broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(hint) => waiters.hear(&hint),
            Err(RecvError::Lagged(_)) => {
                waiters.queues().values().for_each(|queue| queue.lost_hints())
            }
            Err(RecvError::Closed) => return,
        }
    }
}
