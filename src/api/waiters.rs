//! Those who wait for a task to pull: a line per topic, served in order of arrival.
//!
//! ```text
//! pull with `wait` ─▶ a place in the topic's line ─▶ claimed for (`line`) ─▶ answer
//!                          │ hangs up                     ▲
//!                          └─▶ leaves                     │ a hint, the next due moment, a look each second
//! ```
//!
//! However many wait, the store is asked by the line alone, and only when there is reason: [`super::line`] has the times. What is
//! added or put back, by this process or another instance, comes as a hint.
//!
//! # Invariants
//!
//! - A waiter has a place, of which there are so many, and no request slot: those who wait cost the others nothing but their connections.
//! - Whoever leaves, whatever way, is out of the line at once. A task claimed for him meanwhile is given back unspent.
//! - A line lives while somebody stands in it. It ends, and another begins, under the lock of all lines.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, broadcast, oneshot};
use tokio::time::Instant;

use super::Api;
use super::error::Error;
use super::line;
use super::taken::{Taken, Wish};
use crate::clock::UnixMillis;
use crate::store::{Hint, Registered};
use crate::task::{Lane, Topic};

/// The most claims for waiters at a time, over all lines.
const CLAIMS: usize = 128;
/// The time between two looks at the registry for a topic that nobody knows.
const REFRESH: Duration = Duration::from_secs(1);

/// Everyone who waits.
#[derive(Debug)]
pub(super) struct Waiters {
    places: Semaphore,
    claims: Semaphore,
    lines: Mutex<HashMap<Topic, Arc<Line>>>,
    /// The store's time, and when it was that.
    store_time: Mutex<Option<(UnixMillis, Instant)>>,
    refreshed: tokio::sync::Mutex<Option<Instant>>,
}

/// Those who wait for one topic, and from when on there may be something for them.
#[derive(Debug, Default)]
pub(super) struct Line {
    state: Mutex<State>,
    /// Somebody came or the last one left, or there was a hint.
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: BTreeMap<u64, Waiter>,
    last_ticket: u64,
    /// From when on a claim has something to do, by shard, as the last look found it.
    known: BTreeMap<u16, Instant>,
    /// The same, as hints said since the last claim.
    heard: BTreeMap<u16, Instant>,
    /// Nobody looked yet, or hints were lost: any lane may have something.
    may_be_anywhere: bool,
}

#[derive(Debug)]
struct Waiter {
    wish: Wish,
    answer: oneshot::Sender<Result<Taken, Error>>,
}

impl Waiters {
    /// Room for so many waiters. Hears of adds for as long as the store lives.
    pub(super) fn new(places: usize, hints: broadcast::Receiver<Hint>) -> Arc<Self> {
        let waiters = Arc::new(Self {
            places: Semaphore::new(places),
            claims: Semaphore::new(CLAIMS),
            lines: Mutex::default(),
            store_time: Mutex::default(),
            refreshed: tokio::sync::Mutex::default(),
        });
        tokio::spawn(listen(waiters.clone(), hints));
        waiters
    }

    /// One of the claims that may run at a time.
    pub(super) async fn claim(&self) -> SemaphorePermit<'_> {
        self.claims.acquire().await.expect("the semaphore is never closed")
    }

    /// The store's time was `now` just now.
    pub(super) fn saw(&self, now: UnixMillis) {
        *self.store_time.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Instant::now()));
    }

    /// The topic's entry, if there is one by now. However many lines ask, the registry is read no more than once a second.
    pub(super) async fn find(&self, api: &Api, topic: &Topic) -> Result<Option<Registered>, Error> {
        if let Some(known) = api.topics.known_entry(topic) {
            return Ok(Some(known));
        }
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_none_or(|last| last.elapsed() >= REFRESH) {
            api.topics.refresh().await?;
            *refreshed = Some(Instant::now());
        }
        Ok(api.topics.known_entry(topic))
    }

    /// Whether nobody stands in the line; then it is no more.
    pub(super) fn is_over(&self, topic: &Topic, line: &Line) -> bool {
        let mut lines = self.lines();
        let is_empty = line.state().queue.is_empty();
        if is_empty {
            lines.remove(topic);
        }
        is_empty
    }

    fn hear(&self, hint: &Hint) {
        if !hint.is_pull {
            return;
        }
        let Some(line) = self.line_of(&hint.lane.topic) else { return };
        let store_time = *self.store_time.lock().unwrap_or_else(PoisonError::into_inner);
        let at = store_time.map_or_else(Instant::now, |(now, at)| at + hint.due.since(now));
        line.hears(hint.lane.shard, at);
    }

    fn line_of(&self, topic: &Topic) -> Option<Arc<Line>> {
        self.lines().get(topic).cloned()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Topic, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the topic's line, which is made if there is none.
    fn join(&self, api: &Arc<Api>, topic: &Topic, waiter: Waiter) -> Standing {
        let mut lines = self.lines();
        let line = lines.entry(topic.clone()).or_insert_with(|| {
            let line = Arc::new(Line::default());
            line.state().may_be_anywhere = true;
            api.pending.spawn(line::run(api.clone(), topic.clone(), line.clone()));
            line
        });
        let mut state = line.state();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.queue.insert(ticket, waiter);
        drop(state);
        Standing { line: line.clone(), ticket }
    }
}

/// A waiter's place in the line, left by dropping.
struct Standing {
    line: Arc<Line>,
    ticket: u64,
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut state = self.line.state();
        let left = state.queue.remove(&self.ticket).is_some();
        if left && state.queue.is_empty() {
            self.line.news.notify_one();
        }
    }
}

/// Waits for what is wished for, no longer than `wait`; `None` if nothing came, or this instance drains.
///
/// # Errors
/// If there is no place left, or the store fails.
pub(super) async fn wait(api: &Arc<Api>, topic: &Topic, wish: Wish, wait: Duration) -> Result<Option<Taken>, Error> {
    let until = Instant::now() + wait;
    let full = Error::Unavailable("too many callers wait for tasks, so this one cannot: repeat it, or leave wait out");
    let _place = api.waiters.places.try_acquire().map_err(|_| full)?;
    let (answer, mut answered) = oneshot::channel();
    let _standing = api.waiters.join(api, topic, Waiter { wish, answer });
    let mut draining = api.draining.clone();
    let ended = tokio::select! {
        biased;
        ended = &mut answered => Some(ended),
        _ = draining.wait_for(|draining| *draining) => None,
        () = tokio::time::sleep_until(until) => None,
    };
    match ended {
        Some(ended) => ended.map_err(|_| Error::Internal)?.map(Some),
        // What came in the very last moment is not turned away.
        None => {
            answered.close();
            answered.try_recv().map_or(Ok(None), |taken| taken.map(Some))
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim of the lane has something to do from then on.
    fn hears(&self, shard: u16, at: Instant) {
        let mut state = self.state();
        let first = state.heard.entry(shard).or_insert(at);
        *first = at.min(*first);
        self.news.notify_one();
    }

    fn lost_hints(&self) {
        self.state().may_be_anywhere = true;
        self.news.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().queue.is_empty()
    }

    /// The first in the line, and what they wish for.
    pub(super) fn heads(&self, most: usize) -> Vec<(u64, Wish)> {
        self.state().queue.iter().take(most).map(|(ticket, waiter)| (*ticket, waiter.wish)).collect()
    }

    /// Whether any of the lanes may have something now: of those the hints are used up.
    pub(super) fn due(&self, lanes: &mut Vec<Lane>, now: Instant) -> bool {
        let mut state = self.state();
        if std::mem::take(&mut state.may_be_anywhere) {
            state.heard.clear();
            return true;
        }
        let State { known, heard, .. } = &mut *state;
        lanes.retain(|lane| {
            let is_due = |moments: &BTreeMap<u16, Instant>| moments.get(&lane.shard).is_some_and(|at| *at <= now);
            let (is_known, is_heard) = (is_due(known), is_due(heard));
            if is_heard {
                heard.remove(&lane.shard);
            }
            is_known || is_heard
        });
        !lanes.is_empty()
    }

    /// When next to claim, if anything is known to come.
    pub(super) fn next(&self) -> Option<Instant> {
        let state = self.state();
        let anywhere = state.may_be_anywhere.then(Instant::now);
        anywhere.into_iter().chain(state.known.values().chain(state.heard.values()).copied().min()).min()
    }

    /// What a look has found, in the place of the one before. Hints that came since the claims stand.
    pub(super) fn knows(&self, known: BTreeMap<u16, Instant>) {
        self.state().known = known;
    }

    /// Gives a waiter what was claimed for him. If he has left, it goes back.
    pub(super) fn serve(&self, ticket: u64, taken: Taken) {
        let waiter = self.state().queue.remove(&ticket);
        if let Some(waiter) = waiter {
            // Given back, if he left just now.
            let _ = waiter.answer.send(Ok(taken));
        }
    }

    /// Tells everyone that it cannot be said what is due.
    pub(super) fn fail(&self, error: &Error) {
        let queue = std::mem::take(&mut self.state().queue);
        for waiter in queue.into_values() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}

/// Hears the store's hints until the store is gone.
async fn listen(waiters: Arc<Waiters>, mut hints: broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(hint) => waiters.hear(&hint),
            Err(RecvError::Lagged(_)) => waiters.lines().values().for_each(|line| line.lost_hints()),
            Err(RecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::super::taken::take;
    use super::super::testing::{edge_with_store, edge_without_store};
    use super::*;
    use crate::store::{Delivery, Intake, Moment, NewTask};
    use crate::task::{Destination, Options, TaskId};

    const WISH: Wish = Wish { slots: 1, lease: Some(Duration::from_secs(60)) };
    const LONG: Duration = Duration::from_secs(30);

    fn topic() -> Topic {
        "t".parse().unwrap()
    }

    async fn add(api: &Api) -> TaskId {
        let topic = api.topics.ensure(&topic()).await.unwrap().entry;
        let (destination, moment, options) = (Destination::pull(), Moment::After(Duration::ZERO), Options::default());
        let content = "{}".into();
        let task = NewTask { topic, destination, moment, options, content, idempotency: None, quota: None };
        api.store.add(vec![task]).await.remove(0).unwrap().id
    }

    fn id_of(taken: Result<Option<Taken>, Error>) -> TaskId {
        let taken = taken.unwrap().expect("a task");
        taken.held.written();
        taken.tasks[0].task_id.unwrap()
    }

    #[tokio::test]
    async fn who_came_first_is_served_first() {
        let (api, _draining, _folder) = edge_with_store();
        let (api, topic) = (Arc::new(api), topic());
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(wait(&api, &topic, WISH, LONG))).collect();
        for waiting in &mut waiting {
            assert!(poll!(waiting).is_pending());
        }
        drop(waiting.remove(1));
        for waiting in waiting {
            let id = add(&api).await;
            assert_eq!(id_of(waiting.await), id, "another was before him");
        }
    }

    #[tokio::test]
    async fn what_came_for_someone_who_left_goes_to_the_next_unspent() {
        let (api, _draining, _folder) = edge_with_store();
        let (api, topic) = (Arc::new(api), topic());
        let id = add(&api).await;
        let mut first = Box::pin(wait(&api, &topic, WISH, LONG));
        assert!(poll!(&mut first).is_pending());
        let line = api.waiters.line_of(&topic).unwrap();
        while !line.is_empty() {
            tokio::task::yield_now().await;
        }
        // It is claimed and on its way to him.
        drop(first);
        let taken = wait(&api, &topic, WISH, LONG).await.unwrap().expect("the task");
        assert_eq!((taken.tasks[0].task_id, taken.tasks[0].attempt), (Some(id), Some(1)));
    }

    /// Only the first task's lane was told of, and the others waited for the next look.
    #[tokio::test]
    async fn what_is_given_back_is_told_of_in_each_lane() {
        let (api, _draining, _folder) = edge_with_store();
        let (api, topic) = (Arc::new(api), topic());
        let known = api.topics.ensure_with(&topic, 3).await.unwrap();
        for _ in 0..3 {
            add(&api).await;
        }
        let lanes: Vec<Lane> = known.entry.lanes().collect();
        let taken = take(api.clone(), &known, lanes, Wish { slots: 3, ..WISH }).await.unwrap();
        let mut shards: Vec<u16> = taken.tasks.iter().map(|task| (task.task_id.unwrap().0 % 3) as u16).collect();
        shards.sort_unstable();
        shards.dedup();
        assert!(shards.len() > 1, "all tasks are in one lane");
        // A line of which nobody uses the hints up.
        let line = Arc::new(Line::default());
        api.waiters.lines().insert(topic.clone(), line.clone());
        drop(taken);
        api.pending.close();
        api.pending.wait().await;
        let told = async {
            while line.state().heard.keys().copied().collect::<Vec<_>>() != shards {
                line.news.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("a hint for each lane");
    }

    #[tokio::test]
    async fn a_line_is_gone_with_the_last_who_stood_in_it() {
        let (api, _draining, _folder) = edge_with_store();
        let (api, topic) = (Arc::new(api), topic());
        let mut waiting = Box::pin(wait(&api, &topic, WISH, LONG));
        assert!(poll!(&mut waiting).is_pending());
        drop(waiting);
        while api.waiters.line_of(&topic).is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(wait(&api, &topic, WISH, Duration::from_millis(50)).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn there_are_so_many_places_and_no_more() {
        let (mut api, _draining, _folder) = edge_with_store();
        api.waiters = Waiters::new(1, api.store.hints());
        let (api, topic) = (Arc::new(api), topic());
        let mut waiting = Box::pin(wait(&api, &topic, WISH, LONG));
        assert!(poll!(&mut waiting).is_pending());
        let refused = wait(&api, &topic, WISH, LONG).await.unwrap_err();
        assert_eq!((refused.dm_error(), refused.is_unavailable()), (2003, true));
        drop(waiting);
        assert!(poll!(Box::pin(wait(&api, &topic, WISH, LONG))).is_pending());
    }

    #[tokio::test]
    async fn a_drain_and_a_failing_store_end_all_waits() {
        let (api, draining, _folder) = edge_with_store();
        let (api, topic) = (Arc::new(api), topic());
        let mut waiting = Box::pin(wait(&api, &topic, WISH, LONG));
        assert!(poll!(&mut waiting).is_pending());
        draining.send_replace(true);
        assert!(waiting.await.unwrap().is_none());
        let (api, _draining) = edge_without_store().await;
        let api = Arc::new(api);
        assert!(wait(&api, &topic, WISH, LONG).await.unwrap_err().is_unavailable());
    }
}
