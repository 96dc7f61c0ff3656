//! The ends of leases, gathered and kept until the store has answered.
//!
//! What comes while a batch is with the store makes up the next one: nothing waits longer than the batch before it takes,
//! and batches grow under load. While the store is away the batch is kept and tried again, and its lanes do not claim: the
//! settles go first. Each server of the store has batches of its own, so that one that is away keeps no other's settles waiting.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::held::Holding;
use crate::callback::Caller;
use crate::store::{Error, Hint, Settle, Settled, Store, Transition};
use crate::task::Lane;

/// How long a drain waits for the last settles.
pub(super) const LAST_FLUSH: Duration = Duration::from_secs(2);
/// The most settles of one batch.
const BATCH: usize = 512;
/// The wait after the store failed, doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The end of a task in hand. It stays in hand until the store has answered: a claim that hands it to this instance once more in
/// the meantime must not fire it.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) lane: Lane,
    pub(super) holding: Holding,
    pub(super) transition: Transition,
}

impl Ending {
    fn settle(&self) -> Settle {
        Settle {
            lane: self.lane.clone(),
            id: self.holding.id(),
            receipt: self.holding.lease().receipt,
            transition: self.transition.clone(),
        }
    }
}

/// Where settles are sent. What is in it is bounded by the calls in flight.
#[derive(Debug)]
pub(super) struct Settler {
    sender: mpsc::UnboundedSender<Ending>,
    /// The servers that take no settles just now.
    away: Mutex<HashSet<u64>>,
    back: Notify,
    finished: CancellationToken,
}

impl Settler {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Ending>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (away, back, finished) = (Mutex::default(), Notify::new(), CancellationToken::new());
        (Self { sender, away, back, finished }, receiver)
    }

    /// Ends a lease as soon as may be.
    pub(super) fn send(&self, ending: Ending) {
        // Nobody receives after the last flush; the lease then runs out.
        let _ = self.sender.send(ending);
    }

    fn away(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once no batch is waiting for the server to come back.
    pub(super) async fn recovered(&self, server: u64) {
        loop {
            // Listened for first and looked at then: a return in between is heard.
            let back = self.back.notified();
            if !self.away().contains(&server) {
                return;
            }
            back.await;
        }
    }

    /// The server has answered: claims may go on.
    fn is_back(&self, server: u64) {
        let was_away = self.away().remove(&server);
        if was_away {
            self.back.notify_waiters();
            tracing::info!("The store takes settles again");
        }
    }

    /// No more settles will come: what is there is flushed, and calls still running are cut off.
    pub(super) fn finish(&self) {
        self.finished.cancel();
    }

    /// Returns once [`Settler::finish`] was called.
    pub(super) async fn finished(&self) {
        self.finished.cancelled().await;
    }
}

/// Sorts the settles by the server that they go to, until the settler is finished and all are flushed.
pub(super) async fn run(shared: Arc<Shared<impl Store, impl Caller>>, mut settles: mpsc::UnboundedReceiver<Ending>) {
    let mut servers: HashMap<u64, mpsc::UnboundedSender<Ending>> = HashMap::new();
    let mut flushing = JoinSet::new();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            _ = settles.recv_many(&mut batch, BATCH) => {}
            () = shared.settler.finished() => break,
        }
        for ending in batch.drain(..) {
            let server = shared.parts.store.server_of(&ending.lane);
            let sender = servers.entry(server).or_insert_with(|| {
                let (sender, receiver) = mpsc::unbounded_channel();
                flushing.spawn(run_server(shared.clone(), server, receiver));
                sender
            });
            // The receiver lives until its sender goes.
            let _ = sender.send(ending);
        }
    }
    drop(servers);
    while flushing.join_next().await.is_some() {}
}

/// Flushes batch after batch of one server's settles until there will be no more.
async fn run_server(
    shared: Arc<Shared<impl Store, impl Caller>>,
    server: u64,
    mut settles: mpsc::UnboundedReceiver<Ending>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while settles.recv_many(&mut batch, BATCH).await > 0 {
        flush(&shared, server, std::mem::take(&mut batch)).await;
    }
}

async fn flush(shared: &Arc<Shared<impl Store, impl Caller>>, server: u64, batch: Vec<Ending>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let settles: Vec<Settle> = batch.iter().map(Ending::settle).collect();
        match shared.parts.store.settle(settles).await {
            Ok(answers) => {
                shared.settler.is_back(server);
                for (ending, answer) in batch.into_iter().zip(answers) {
                    conclude(shared, ending, answer);
                }
                return;
            }
            Err(Error::Corrupt(_)) if batch.iter().any(|ending| ending.lane != batch[0].lane) => {
                // One lane's trouble is not the others'.
                let first = batch[0].lane.clone();
                let (one, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|ending| ending.lane == first);
                Box::pin(flush(shared, server, one)).await;
                return Box::pin(flush(shared, server, others)).await;
            }
            Err(error @ Error::Corrupt(_)) => {
                // It has answered, if only this: the other lanes must not wait for it any longer.
                shared.settler.is_back(server);
                tracing::error!(%error, settles = batch.len(), "The store could not take settles; those tasks come back when their leases run out");
                return;
            }
            Err(error) => {
                let is_news = shared.settler.away().insert(server);
                if is_news {
                    tracing::warn!(%error, settles = batch.len(), "The store takes no settles; they are kept, and claims wait");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn conclude(shared: &Shared<impl Store, impl Caller>, ending: Ending, answer: Settled) {
    let id = ending.holding.id();
    match answer {
        Settled::Done => put_back(shared, &ending),
        Settled::Stale { state } => {
            tracing::info!(task.id = %id, lane = %ending.lane, state = state.as_str(),
                "A late settle of task {id} changed nothing: it is {} by now", state.as_str());
        }
        Settled::Unknown => {
            tracing::info!(task.id = %id, lane = %ending.lane, "Task {id} is gone; its settle changed nothing")
        }
    }
    let Ending { lane, holding, .. } = ending;
    if let Some(holding) = holding.let_go() {
        // It was handed to us once more meanwhile, and has not been called for that.
        shared.settler.send(Ending { lane, holding, transition: Transition::Release });
    }
}

/// A task that waits again may be what its lane has to wake for next.
fn put_back(shared: &Shared<impl Store, impl Caller>, ending: &Ending) {
    let after = match &ending.transition {
        Transition::Retry { after, .. } => *after,
        Transition::Release => Duration::ZERO,
        Transition::Delivered { .. } | Transition::Dead { .. } => return,
    };
    // Nobody listens where this instance does not work, or not any more.
    let _ = shared.put_back.send(Hint { lane: ending.lane.clone(), due: shared.time.store_now() + after });
}
