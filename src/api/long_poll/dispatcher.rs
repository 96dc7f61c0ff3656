//! The dispatcher of one topic's wait queue: it claims tasks for waiting pulls, and decides when.
//!
//! ```text
//! due ─▶ claim for the first pulls ─▶ deliver in order ─▶ ask when the next task is due ─▶ sleep
//! ```
//!
//! - The sleep ends when a task is due, with a hint, or with a new poll.
//! - The number of concurrent claims doubles while all of them return tasks, up to 64. So one task
//!   costs one claim and one poll.
//! - [`Delivery::next_pull`] says when a task is due or a lease expires. Hints may be lost, so a
//!   poll for all topics repeats it every second ([`crate::topic::Awaited`]). Idle waiters cost
//!   nothing else.
//! - Each poll converts the store's times to this process's monotonic clock, so a difference
//!   between the two clocks has no effect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::api::long_poll::claim::{Pulls, lanes_in_turn, take};
use crate::api::long_poll::delivery::{PullParams, PulledTasks};
use crate::api::long_poll::queue::{PullQueue, WaitingPull};
use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Topic};
use crate::store::{Delivery, NextDue, Registered};
use crate::topic::TopicOutlook;

/// The longest wait after claims without a task, and the time after which an unknown topic is
/// looked up again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The limit of concurrent claims for one topic.
const WIDEST: usize = 64;
/// The first wait after claims without a task though the store says that one is due (another
/// server's clock may be behind). It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Waits for tasks, for at most `wait`. `None` if none came, or if this instance drains. The caller
/// holds a place meanwhile.
///
/// # Errors
/// The store fails.
pub(crate) async fn wait(
    pulls: &Arc<Pulls>,
    topic: &Topic,
    params: PullParams,
    wait: Duration,
) -> Result<Option<PulledTasks>, Error> {
    let until = Instant::now() + wait;
    let (answer, mut answered) = oneshot::channel();
    let serve =
        |queue| drop(pulls.lease_return.pending.spawn(run(pulls.clone(), topic.clone(), queue)));
    let _in_queue = pulls.waiters.join(topic, WaitingPull { params, answer }, serve);
    let mut draining = pulls.draining.clone();
    let ended = tokio::select! {
        biased;
        ended = &mut answered => Some(ended),
        _ = draining.wait_for(|draining| *draining) => None,
        () = tokio::time::sleep_until(until) => None,
    };
    match ended {
        Some(ended) => ended.map_err(|_| Error::Internal)?.map(Some),
        // Tasks that arrived at the last moment are still delivered.
        None => {
            answered.close();
            answered.try_recv().map_or(Ok(None), |taken| taken.map(Some))
        }
    }
}

/// Serves the queue until it is empty.
async fn run(pulls: Arc<Pulls>, topic: Topic, queue: Arc<PullQueue>) {
    let looks = pulls.topics.awaited().follow(&topic);
    let mut serving = ServedTopic {
        pulls,
        topic,
        queue,
        looks,
        looked: Instant::now(),
        width: 1,
        pause: FIRST_PAUSE,
        found_nothing: false,
        is_new: true,
    };
    while !serving.pulls.waiters.is_over(&serving.topic, &serving.queue) {
        if let Err(error) = serving.round().await {
            // Every waiting pull gets the error. Otherwise its caller would wait without knowing
            // why no task comes.
            serving.queue.fail(&error);
        }
    }
}

struct ServedTopic {
    pulls: Arc<Pulls>,
    topic: Topic,
    queue: Arc<PullQueue>,
    /// The results of the poll that runs every second.
    looks: watch::Receiver<Option<TopicOutlook>>,
    /// When this dispatcher itself last polled.
    looked: Instant,
    width: usize,
    pause: Duration,
    /// Whether the last claims returned no task.
    found_nothing: bool,
    /// The topic has not been looked up yet.
    is_new: bool,
}

impl Drop for ServedTopic {
    /// After a panic, fails the waiting pulls and removes the queue, so that the next pull starts a
    /// new one.
    fn drop(&mut self) {
        if !self.queue.is_empty() {
            self.queue.fail(&Error::Internal);
            self.pulls.waiters.is_over(&self.topic, &self.queue);
        }
    }
}

impl ServedTopic {
    /// Claims if a task may be due, polls if needed, and sleeps.
    async fn round(&mut self) -> Result<(), Error> {
        let known = match self.pulls.topics.known_entry(&self.topic) {
            None if self.is_new => self.pulls.topics.find(&self.topic).await?,
            known => known,
        };
        self.is_new = false;
        let Some(known) = known else {
            // A hint or the poll reports the topic's first task.
            self.looks.mark_unchanged();
            self.sleep(Some(Instant::now() + LONGEST_PAUSE)).await;
            return Ok(());
        };
        let mut lanes = lanes_in_turn(&self.pulls, &known);
        if self.queue.due(&mut lanes, Instant::now()) {
            self.serve(&known, lanes).await?;
            if self.queue.is_empty() {
                return Ok(());
            }
            self.looked = Instant::now();
            let next =
                self.pulls.lease_return.store.next_pull(known.entry.lanes().collect()).await?;
            if self.found_nothing {
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
            self.take_in(Instant::now(), next);
        } else if self.looks.has_changed().unwrap_or(false) {
            let found = self.looks.borrow_and_update().clone();
            // This dispatcher's own poll may be newer.
            if let Some(TopicOutlook { at, next }) = found.filter(|found| found.at > self.looked) {
                self.take_in(at, next?);
            }
        }
        self.sleep(self.queue.next()).await;
        Ok(())
    }

    /// Sleeps until the given time, a change of the queue, or a new poll.
    async fn sleep(&mut self, until: Option<Instant>) {
        let wake = until.unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            () = self.queue.news.notified() => {}
            Ok(()) = self.looks.changed() => self.looks.mark_changed(),
            () = tokio::time::sleep_until(wake), if until.is_some() => {}
        }
    }

    /// Claims concurrently for the first pulls, each starting with another lane.
    async fn serve(&mut self, topic: &Registered, lanes: Vec<Lane>) -> Result<(), Error> {
        let heads = self.queue.heads(self.width);
        let count = heads.len();
        let claims = heads.iter().enumerate().map(async |(i, (_, params))| {
            let _claim = self.pulls.waiters.claim().await;
            let mut lanes = lanes.clone();
            let first = i % lanes.len().max(1);
            lanes.rotate_left(first);
            take(&self.pulls, topic, lanes, *params).await
        });
        let (mut results, mut failed) = (VecDeque::new(), Ok(()));
        for ((_, params), taken) in heads.iter().zip(join_all(claims).await) {
            match taken {
                Ok(taken) if taken.tasks.is_empty() => {}
                Ok(taken) => results.push_back((*params, taken)),
                Err(error) => failed = Err(error),
            }
        }
        let served = results.len();
        self.hand_out(heads, results);
        self.width = if served == count { (self.width * 2).min(WIDEST) } else { 1 };
        self.found_nothing = served == 0;
        if !self.found_nothing {
            self.pause = FIRST_PAUSE;
        }
        failed
    }

    /// Delivers in order of arrival, whichever claim returned the tasks. Tasks go only to a pull
    /// with the same parameters as the claim's.
    fn hand_out(
        &self,
        heads: Vec<(u64, PullParams)>,
        mut results: VecDeque<(PullParams, PulledTasks)>,
    ) {
        for (ticket, params) in heads {
            if let Some(place) = results.iter().position(|(whose, _)| *whose == params)
                && let Some((_, taken)) = results.remove(place)
            {
                self.queue.serve(ticket, taken);
            }
        }
    }

    /// Takes over the result of a poll.
    fn take_in(&mut self, at: Instant, next: NextDue) {
        self.pulls.waiters.saw(next.now, at);
        let is_due = |due: UnixMillis| due <= next.now;
        // A task that is due but was not returned is not claimed again at once.
        let wait = |due: UnixMillis| {
            if self.found_nothing && is_due(due) { self.pause } else { due.since(next.now) }
        };
        let known =
            (0_u16..).zip(next.lanes).filter_map(|(shard, due)| Some((shard, at + wait(due?))));
        self.queue.knows(known.collect());
    }
}
