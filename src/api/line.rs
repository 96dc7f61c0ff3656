//! One topic's line at work: claims for those who stand in it, and in between knows when to claim next.
//!
//! ```text
//! due ─▶ claim for the first few ─▶ hand out in order ─▶ look when the next is due ─▶ sleep until then, a hint, or a second
//! ```
//!
//! - As many are claimed for at once as were served the last time, doubled: one task costs one claim and one look, and a thousand
//!   tasks soon serve sixty-four at a time.
//! - The look ([`Store::next_pull`]) says when a task falls due or a lease runs out. It is repeated each second, whatever it said, for
//!   hints may be lost: that is all that idle waiters cost, however many they are.
//! - Moments of the store are turned into this process' monotonic time by the look that brought them, so that neither clock matters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Api;
use super::error::Error;
use super::taken::{Taken, Wish, lanes_in_turn, take};
use super::waiters::Line;
use crate::clock::UnixMillis;
use crate::store::{Delivery, Registered};
use crate::task::{Lane, Topic};

/// The time between two looks while nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most waiters that are claimed for at once.
const WIDEST: usize = 64;
/// The wait after claims that brought nothing though something is still said to be due (a server's clock is behind), doubling up to
/// the time between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Serves the line until nobody stands in it.
pub(super) async fn run(api: Arc<Api>, topic: Topic, line: Arc<Line>) {
    let mut serving = Serving { api, topic, line, width: 1, pause: FIRST_PAUSE, was_in_vain: false, looked: None };
    while !serving.api.waiters.is_over(&serving.topic, &serving.line) {
        if let Err(error) = serving.round().await {
            // Said to each at once: to those who would wait in vain as to those who would not know why nothing comes.
            serving.line.fail(&error);
        }
    }
}

struct Serving {
    api: Arc<Api>,
    topic: Topic,
    line: Arc<Line>,
    width: usize,
    pause: Duration,
    /// Whether the last claims brought nothing.
    was_in_vain: bool,
    looked: Option<Instant>,
}

impl Drop for Serving {
    /// After a panic nobody would be served any more: their answers are dropped, which tells them, and the next one begins a new line.
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.line.fail(&Error::Internal);
            self.api.waiters.is_over(&self.topic, &self.line);
        }
    }
}

impl Serving {
    /// Claims if there is reason, looks if it is time, and sleeps.
    async fn round(&mut self) -> Result<(), Error> {
        let Some(known) = self.api.waiters.find(&self.api, &self.topic).await? else {
            // Its first task makes it known, by a hint or in the registry.
            self.sleep(Instant::now() + LOOK_EVERY).await;
            return Ok(());
        };
        let mut lanes = lanes_in_turn(&self.api, &known);
        if self.line.due(&mut lanes, Instant::now()) {
            self.serve(&known, lanes).await?;
            if self.line.is_empty() {
                return Ok(());
            }
            self.look(&known).await?;
        } else if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            self.look(&known).await?;
        }
        let safety = self.looked.unwrap_or_else(Instant::now) + LOOK_EVERY;
        self.sleep(self.line.next().map_or(safety, |next| next.min(safety))).await;
        Ok(())
    }

    async fn sleep(&self, until: Instant) {
        tokio::select! {
            biased;
            () = self.line.news.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    /// Claims for the first in the line, all at the same time, each beginning with another lane.
    async fn serve(&mut self, topic: &Registered, lanes: Vec<Lane>) -> Result<(), Error> {
        let heads = self.line.heads(self.width);
        let count = heads.len();
        let claims = heads.iter().enumerate().map(async |(i, (_, wish))| {
            let _claim = self.api.waiters.claim().await;
            let mut lanes = lanes.clone();
            let first = i % lanes.len().max(1);
            lanes.rotate_left(first);
            take(self.api.clone(), topic, lanes, *wish).await
        });
        let (mut fruit, mut failed) = (VecDeque::new(), Ok(()));
        for ((_, wish), taken) in heads.iter().zip(join_all(claims).await) {
            match taken {
                Ok(taken) if taken.tasks.is_empty() => {}
                Ok(taken) => fruit.push_back((*wish, taken)),
                Err(error) => failed = Err(error),
            }
        }
        let served = fruit.len();
        self.hand_out(heads, fruit);
        self.width = if served == count { (self.width * 2).min(WIDEST) } else { 1 };
        self.was_in_vain = served == 0;
        failed
    }

    /// Whoever came first is served first, whichever of the claims it was that found something for such a wish.
    fn hand_out(&self, heads: Vec<(u64, Wish)>, mut fruit: VecDeque<(Wish, Taken)>) {
        for (ticket, wish) in heads {
            if let Some(place) = fruit.iter().position(|(whose, _)| *whose == wish)
                && let Some((_, taken)) = fruit.remove(place)
            {
                self.line.serve(ticket, taken);
            }
        }
    }

    /// Asks the store when the next task is there to be pulled.
    async fn look(&mut self, topic: &Registered) -> Result<(), Error> {
        let next = self.api.store.next_pull(topic.entry.lanes().collect()).await?;
        let now = Instant::now();
        self.looked = Some(now);
        self.api.waiters.saw(next.now);
        let is_due = |due: UnixMillis| due <= next.now;
        // What is due and was not given is not asked for at once again.
        let contradicts = std::mem::take(&mut self.was_in_vain) && next.lanes.iter().flatten().any(|due| is_due(*due));
        self.pause = if contradicts { (self.pause * 2).min(LOOK_EVERY) } else { FIRST_PAUSE };
        let wait = |due: UnixMillis| if contradicts && is_due(due) { self.pause } else { due.since(next.now) };
        let known = (0_u16..).zip(next.lanes).filter_map(|(shard, due)| Some((shard, now + wait(due?))));
        self.line.knows(known.collect());
        Ok(())
    }
}
