//! One topic's queue at work: claims for those who stand in it, and in between knows when to claim
//! next.
//!
//! ```text
//! due ─▶ claim for the first few ─▶ hand out in order ─▶ look when the next is due ─▶ sleep until then, a hint, or another look
//! ```
//!
//! - As many are claimed for at once as were served the last time, doubled: one task costs one
//!   claim and one look, and a thousand tasks soon serve sixty-four at a time.
//! - The look ([`Delivery::next_pull`]) says when a task falls due or a lease runs out. The look of
//!   each second repeats it ([`crate::topic::Awaited`]), whatever it said, for hints may be lost.
//!   Idle waiters cost nothing else, however many they are.
//! - Moments of the store are turned into this process' monotonic time by the look that brought
//!   them, so that neither clock matters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::api::long_poll::claim::{Pulls, lanes_in_turn, take};
use crate::api::long_poll::delivery::{PullParams, PulledTasks};
use crate::api::long_poll::queue::{WaitQueue, Waiter};
use crate::api::wire::error::Error;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Topic};
use crate::store::{Delivery, NextDue, Registered};
use crate::topic::Outlook;

/// The longest wait after claims that brought nothing; and the time after which a topic that nobody
/// knows is looked for again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The most waiters that are claimed for at once.
const WIDEST: usize = 64;
/// The wait after claims that brought nothing though something is still said to be due (a server's
/// clock is behind), doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Waits for what is wished for, no longer than `wait`; `None` if nothing came, or this instance
/// drains.
///
/// # Errors
/// If there is no place left, or the store fails.
pub(crate) async fn wait(
    pulls: &Arc<Pulls>,
    topic: &Topic,
    params: PullParams,
    wait: Duration,
) -> Result<Option<PulledTasks>, Error> {
    let until = Instant::now() + wait;
    let full = Error::Unavailable(
        "too many callers wait for tasks, so this one cannot: repeat it, or leave wait out",
    );
    let _place = pulls.waiters.place().ok_or(full)?;
    let (answer, mut answered) = oneshot::channel();
    let serve =
        |queue| drop(pulls.lease_return.pending.spawn(run(pulls.clone(), topic.clone(), queue)));
    let _in_queue = pulls.waiters.join(topic, Waiter { params, answer }, serve);
    let mut draining = pulls.draining.clone();
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

/// Serves the queue until nobody stands in it.
async fn run(pulls: Arc<Pulls>, topic: Topic, queue: Arc<WaitQueue>) {
    let looks = pulls.topics.awaited().follow(&topic);
    let mut serving = Serving {
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
            // Said to each at once: to those who would wait in vain as to those who would not know
            // why nothing comes.
            serving.queue.fail(&error);
        }
    }
}

struct Serving {
    pulls: Arc<Pulls>,
    topic: Topic,
    queue: Arc<WaitQueue>,
    /// What the look of each second finds.
    looks: watch::Receiver<Option<Outlook>>,
    /// When this queue has looked by itself.
    looked: Instant,
    width: usize,
    pause: Duration,
    /// Whether the last claims brought nothing.
    found_nothing: bool,
    /// The topic was not asked for yet.
    is_new: bool,
}

impl Drop for Serving {
    /// After a panic nobody would be served any more: their answers are dropped, which tells them,
    /// and the next one begins a new queue.
    fn drop(&mut self) {
        if !self.queue.is_empty() {
            self.queue.fail(&Error::Internal);
            self.pulls.waiters.is_over(&self.topic, &self.queue);
        }
    }
}

impl Serving {
    /// Claims if there is reason, looks if it is time, and sleeps.
    async fn round(&mut self) -> Result<(), Error> {
        let known = match self.pulls.topics.known_entry(&self.topic) {
            None if self.is_new => self.pulls.topics.find(&self.topic).await?,
            known => known,
        };
        self.is_new = false;
        let Some(known) = known else {
            // Its first task makes it known, by a hint or in the look of a second.
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
            // What this queue has found by itself since is newer.
            if let Some(Outlook { at, next }) = found.filter(|found| found.at > self.looked) {
                self.take_in(at, next?);
            }
        }
        self.sleep(self.queue.next()).await;
        Ok(())
    }

    /// Sleeps until then, until there is news, or another look.
    async fn sleep(&mut self, until: Option<Instant>) {
        tokio::select! {
            biased;
            () = self.queue.news.notified() => {}
            Ok(()) = self.looks.changed() => self.looks.mark_changed(),
            () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
        }
    }

    /// Claims for the first in the queue, all at the same time, each beginning with another lane.
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

    /// Whoever came first is served first, whichever of the claims it was that found something for
    /// such a params.
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

    /// What a look has found: when there is something to claim.
    fn take_in(&mut self, at: Instant, next: NextDue) {
        self.pulls.waiters.saw(next.now, at);
        let is_due = |due: UnixMillis| due <= next.now;
        // What is due and was not given is not asked for at once again.
        let wait = |due: UnixMillis| {
            if self.found_nothing && is_due(due) { self.pause } else { due.since(next.now) }
        };
        let known =
            (0_u16..).zip(next.lanes).filter_map(|(shard, due)| Some((shard, at + wait(due?))));
        self.queue.knows(known.collect());
    }
}
