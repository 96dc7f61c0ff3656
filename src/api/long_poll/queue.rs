//! The wait queues of pulls: one per topic, in order of arrival.
//!
//! ```text
//! pull with `wait` ─▶ wait queue of the topic ─▶ `dispatcher` claims ─▶ answer
//!                          │ disconnects
//!                          └─▶ removed
//! ```
//!
//! Only the dispatcher asks the store, so the number of waiting pulls does not matter. It is woken
//! by hints, which report tasks that any instance adds or returns.
//!
//! # Invariants
//!
//! - A waiting pull holds a place ([`waits`](crate::api::state::Api::waits)), but no request slot.
//!   It costs other requests nothing but its connection.
//! - A pull that ends in any way is removed at once. A task that was claimed for it returns to the
//!   store, and the attempt does not count.
//! - A queue exists while a pull waits in it. It is created and removed under the lock of all
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

/// The limit of concurrent claims for waiting pulls, over all queues.
const CLAIMS: usize = 128;

/// All waiting pulls.
#[derive(Debug)]
pub(crate) struct Waiters {
    claims: Semaphore,
    queues: Mutex<HashMap<Topic, Arc<PullQueue>>>,
    /// The store's time, and when it was read.
    store_time: Mutex<Option<(UnixMillis, Instant)>>,
}

/// The waiting pulls of one topic, and when a claim may return tasks.
#[derive(Debug, Default)]
pub(crate) struct PullQueue {
    state: Mutex<QueueState>,
    /// Notified by a new pull, by the end of the last one, and by hints.
    pub(crate) news: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct QueueState {
    waiting: BTreeMap<u64, WaitingPull>,
    last_ticket: u64,
    /// By shard, from when a claim may return tasks, according to the last poll.
    known: BTreeMap<u16, Instant>,
    /// The same, according to hints since the last claim.
    pub(crate) hinted: BTreeMap<u16, Instant>,
    /// Any lane may have tasks: there was no poll yet, or hints were lost.
    may_be_anywhere: bool,
}

#[derive(Debug)]
pub(crate) struct WaitingPull {
    pub(crate) params: PullParams,
    pub(crate) answer: oneshot::Sender<Result<PulledTasks, Error>>,
}

impl Waiters {
    /// Receives hints as long as the store exists.
    pub(crate) fn new(hints: broadcast::Receiver<Hint>) -> Arc<Self> {
        let waiters = Arc::new(Self {
            claims: Semaphore::new(CLAIMS),
            queues: Mutex::default(),
            store_time: Mutex::default(),
        });
        tokio::spawn(listen(waiters.clone(), hints));
        waiters
    }

    /// Waits for a permit to claim.
    pub(crate) async fn claim(&self) -> SemaphorePermit<'_> {
        self.claims.acquire().await.expect("the semaphore is never closed")
    }

    /// Records the store's time.
    pub(crate) fn saw(&self, now: UnixMillis, at: Instant) {
        *self.store_time.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, at));
    }

    /// Removes the queue if it is empty, and returns whether it was.
    pub(crate) fn is_over(&self, topic: &Topic, queue: &PullQueue) -> bool {
        let mut queues = self.queues();
        let is_empty = queue.state().waiting.is_empty();
        if is_empty {
            queues.remove(topic);
        }
        is_empty
    }

    /// Joins the topic's queue. A new queue is passed to `serve`.
    pub(crate) fn join(
        &self,
        topic: &Topic,
        waiter: WaitingPull,
        serve: impl FnOnce(Arc<PullQueue>),
    ) -> Queued {
        let mut queues = self.queues();
        let queue = queues.entry(topic.clone()).or_insert_with(|| {
            let queue = Arc::new(PullQueue::default());
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

    pub(crate) fn queue_of(&self, topic: &Topic) -> Option<Arc<PullQueue>> {
        self.queues().get(topic).cloned()
    }

    pub(crate) fn queues(&self) -> MutexGuard<'_, HashMap<Topic, Arc<PullQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a queue. Dropping it leaves the queue.
pub(crate) struct Queued {
    queue: Arc<PullQueue>,
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

impl PullQueue {
    pub(crate) fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a claim may return tasks from then on.
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

    /// The first waiting pulls.
    pub(crate) fn heads(&self, most: usize) -> Vec<(u64, PullParams)> {
        self.state()
            .waiting
            .iter()
            .take(most)
            .map(|(ticket, waiter)| (*ticket, waiter.params))
            .collect()
    }

    /// Whether any lane may have tasks now. Keeps only those lanes, and uses up their hints.
    pub(crate) fn due(&self, lanes: &mut Vec<Lane>, now: Instant) -> bool {
        let mut state = self.state();
        if std::mem::take(&mut state.may_be_anywhere) {
            state.hinted.clear();
            return true;
        }
        let QueueState { known, hinted, .. } = &mut *state;
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

    /// When the next claim may return tasks, if that is known.
    pub(crate) fn next(&self) -> Option<Instant> {
        let state = self.state();
        let anywhere = state.may_be_anywhere.then(Instant::now);
        anywhere
            .into_iter()
            .chain(state.known.values().chain(state.hinted.values()).copied().min())
            .min()
    }

    /// Replaces the result of the poll. Hints since the last claim remain.
    pub(crate) fn knows(&self, known: BTreeMap<u16, Instant>) {
        self.state().known = known;
    }

    /// Passes claimed tasks to a waiting pull.
    pub(crate) fn serve(&self, ticket: u64, taken: PulledTasks) {
        let waiter = self.state().waiting.remove(&ticket);
        if let Some(waiter) = waiter {
            // If the pull has just ended, this drops the tasks and so returns them.
            let _ = waiter.answer.send(Ok(taken));
        }
    }

    /// Fails all waiting pulls.
    pub(crate) fn fail(&self, error: &Error) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for waiter in waiting.into_values() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}

/// Receives the store's hints until the store is closed.
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
