//! The ends of leases, gathered and kept until the store has answered.
//!
//! What comes while a batch is with the store makes up the next one: nothing waits longer than the
//! batch before it takes, and batches grow under load. While the store is away the batch is kept
//! and tried again, and its lanes do not claim: the settles go first. Each server of the store has
//! batches of its own, so that one that is away keeps no other's settles waiting; and a lane that
//! alone is out of reach, its slot half-way to another node, has a queue of its own until it is
//! not.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::call::MARGIN;
use super::in_flight::{HeldTask, Lease};
use crate::callback::Caller;
use crate::store::{Delivery, Error, MAX_LEASE, Settle, Settled, Transition};
use crate::task::{Lane, TaskId};

/// How long a drain waits for the last settles.
pub(super) const LAST_FLUSH: Duration = Duration::from_secs(2);
/// The most settles of one batch.
const BATCH: usize = 512;
/// The wait after the store failed, doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The end of a task in hand. It stays in hand until the store has answered: a claim that hands it
/// to this instance once more in the meantime must not fire it.
///
/// What is given back is in hand no longer: nothing of it runs, and the store hands it to nobody
/// before it has it back. Kept in hand, it could be claimed between the store's word and ours, put
/// by and given back, over and over.
#[derive(Debug)]
pub(super) struct Ending {
    lane: Lane,
    id: TaskId,
    lease: Lease,
    holding: Option<HeldTask>,
    transition: Transition,
}

impl Ending {
    pub(super) fn of(lane: Lane, holding: HeldTask, transition: Transition) -> Self {
        let (id, mut lease) = (holding.id(), holding.lease());
        let mut holding = Some(holding);
        if transition == Transition::Release {
            // Of leases that followed one another only the newest can be given back.
            while let Some(newer) = holding.take().and_then(HeldTask::let_go) {
                lease = newer.lease();
                holding = Some(newer);
            }
        }
        Self { lane, id, lease, holding, transition }
    }

    fn settle(&self) -> Settle {
        Settle {
            lane: self.lane.clone(),
            id: self.id,
            receipt: self.lease.receipt.clone(),
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

    /// Whether a batch waits for the server to come back.
    pub(super) fn is_away(&self, server: u64) -> bool {
        self.away().contains(&server)
    }

    /// Returns once no batch is waiting for the server to come back.
    pub(super) async fn recovered(&self, server: u64) {
        loop {
            // Listened for first and looked at then: a return in between is heard.
            let back = self.back.notified();
            if !self.is_away(server) {
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

/// Sorts the settles by the server that they go to, until the settler is finished and all are
/// flushed.
pub(super) async fn run(
    shared: Arc<Shared<impl Delivery, impl Caller>>,
    mut settles: mpsc::UnboundedReceiver<Ending>,
) {
    let mut servers: HashMap<u64, mpsc::UnboundedSender<Ending>> = HashMap::new();
    let mut flushing = JoinSet::new();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let count = tokio::select! {
            biased;
            count = settles.recv_many(&mut batch, BATCH) => count,
            () = shared.settler.finished(), if !settles.is_closed() => {
                settles.close();
                continue;
            }
        };
        if count == 0 {
            break;
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
    shared: Arc<Shared<impl Delivery, impl Caller>>,
    server: u64,
    mut settles: mpsc::UnboundedReceiver<Ending>,
) {
    let mut beside = Beside::default();
    let mut batch = Vec::with_capacity(BATCH);
    while settles.recv_many(&mut batch, BATCH).await > 0 {
        // Calls whose answers are there already end first, and come along: a larger batch, and
        // nobody waits longer for it.
        tokio::task::yield_now().await;
        take_along(&mut settles, &mut batch);
        let batch = std::mem::take(&mut batch)
            .into_iter()
            .filter_map(|ending| beside.join(ending))
            .collect();
        for ending in flush(&shared, server, batch).await {
            beside.put(&shared, ending);
        }
    }
    drop(beside.lanes);
    while beside.flushing.join_next().await.is_some() {}
}

/// The lanes that are out of reach while their server is not: each one's settles are repeated by
/// themselves, and hold up no others.
#[derive(Default)]
struct Beside {
    lanes: HashMap<Lane, mpsc::UnboundedSender<Ending>>,
    flushing: JoinSet<()>,
}

impl Beside {
    /// Puts the settle with those of its lane, if that is out of reach; else gives it back.
    fn join(&mut self, ending: Ending) -> Option<Ending> {
        match self.lanes.get(&ending.lane) {
            Some(lane) => lane.send(ending).err().map(|refused| refused.0),
            None => Some(ending),
        }
    }

    fn put(&mut self, shared: &Arc<Shared<impl Delivery, impl Caller>>, ending: Ending) {
        let Some(ending) = self.join(ending) else { return };
        self.lanes.retain(|_, lane| !lane.is_closed());
        while self.flushing.try_join_next().is_some() {}
        let (sender, receiver) = mpsc::unbounded_channel();
        let lane = ending.lane.clone();
        let _ = sender.send(ending);
        self.flushing.spawn(run_lane(shared.clone(), lane.clone(), receiver));
        self.lanes.insert(lane, sender);
    }
}

/// Repeats the settles of one lane until none is left. The receiver is closed then: what comes
/// after goes with its server's.
async fn run_lane(
    shared: Arc<Shared<impl Delivery, impl Caller>>,
    lane: Lane,
    mut settles: mpsc::UnboundedReceiver<Ending>,
) {
    let mut batch = Vec::new();
    let mut pause = FIRST_PAUSE;
    let mut is_news = true;
    loop {
        take_along(&mut settles, &mut batch);
        if batch.is_empty() {
            settles.close();
            take_along(&mut settles, &mut batch);
            if batch.is_empty() {
                break;
            }
        }
        let Attempt { answered, failed } = attempt(&shared, batch).await;
        batch = Vec::with_capacity(failed.len());
        if let (Some((_, error)), true) = (failed.first(), is_news) {
            tracing::warn!(%lane, %error, settles = failed.len(), "The store takes no settles of lane {lane}; they are kept");
            is_news = false;
        }
        batch.extend(failed.into_iter().map(|(ending, _)| ending));
        if answered {
            pause = FIRST_PAUSE;
        } else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    if !is_news {
        tracing::info!(%lane, "The store takes settles of lane {lane} again");
    }
}

fn take_along(settles: &mut mpsc::UnboundedReceiver<Ending>, batch: &mut Vec<Ending>) {
    while batch.len() < BATCH
        && let Ok(ending) = settles.try_recv()
    {
        batch.push(ending);
    }
}

/// Flushes a batch, however long its server is away. Gives back what is out of reach for its own
/// lane's sake.
async fn flush(
    shared: &Arc<Shared<impl Delivery, impl Caller>>,
    server: u64,
    mut batch: Vec<Ending>,
) -> Vec<Ending> {
    let mut pause = FIRST_PAUSE;
    let mut stuck = Vec::new();
    while !batch.is_empty() {
        let Attempt { answered, failed } = attempt(shared, batch).await;
        batch = Vec::new();
        let mut trouble = None;
        for (ending, error) in failed {
            // It may have moved while this batch was under way; then it is another server's batch
            // that it waits in.
            let moved = shared.parts.store.server_of(&ending.lane) != server;
            let ending = if moved {
                shared.settler.sender.send(ending).err().map(|refused| refused.0)
            } else {
                Some(ending)
            };
            match ending {
                None => {}
                Some(ending)
                    if moved
                        || answered
                        || matches!(error, Error::Moving(_) | Error::Corrupt(_)) =>
                {
                    stuck.push(ending);
                }
                Some(ending) => {
                    batch.push(ending);
                    trouble = Some(error);
                }
            }
        }
        if let Some(error) = trouble {
            let is_news = shared.settler.away().insert(server);
            if is_news {
                tracing::warn!(%error, settles = batch.len(), "The store takes no settles; they are kept, and claims wait");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    shared.settler.is_back(server);
    stuck
}

/// What became of a batch.
struct Attempt {
    /// Whether anything of it was answered.
    answered: bool,
    failed: Vec<(Ending, Error)>,
}

/// Sends a batch once, and concludes what was answered.
async fn attempt(shared: &Arc<Shared<impl Delivery, impl Caller>>, batch: Vec<Ending>) -> Attempt {
    let is_one_lane = batch.iter().all(|ending| ending.lane == batch[0].lane);
    let answers = shared.parts.store.settle(batch.iter().map(Ending::settle).collect()).await;
    let mut attempt = Attempt { answered: false, failed: Vec::new() };
    let mut broken: Option<(Error, usize)> = None;
    for (ending, answer) in batch.into_iter().zip(answers) {
        match answer {
            Ok(settled) => {
                attempt.answered = true;
                conclude(shared, ending, settled);
            }
            // It has answered, if only this. Of several lanes one's trouble is not the others':
            // they are asked one by one.
            Err(error @ Error::Corrupt(_)) if is_one_lane => {
                attempt.answered = true;
                broken.get_or_insert((error, 0)).1 += 1;
            }
            Err(error) => attempt.failed.push((ending, error)),
        }
    }
    if let Some((error, settles)) = broken {
        tracing::error!(%error, settles, "The store could not take settles; those tasks come back when their leases run out");
    }
    attempt
}

fn conclude(shared: &Arc<Shared<impl Delivery, impl Caller>>, ending: Ending, answer: Settled) {
    let is_stale = matches!(answer, Settled::Stale { .. });
    let id = ending.id;
    match answer {
        // The store tells the lane what waits again.
        Settled::Done => {}
        Settled::Stale { state } if matches!(ending.transition, Transition::Keep { .. }) => {
            // Its word came before the answer that announced it.
            tracing::debug!(task.id = %id, lane = %ending.lane, state = state.as_str(),
                "The receiver of task {id} has ended it already: it is {}", state.as_str());
        }
        Settled::Stale { state } => {
            tracing::info!(task.id = %id, lane = %ending.lane, state = state.as_str(),
                "A late settle of task {id} changed nothing: it is {} by now", state.as_str());
        }
        Settled::Unknown => {
            tracing::info!(task.id = %id, lane = %ending.lane, "Task {id} is gone; its settle changed nothing")
        }
    }
    let Ending { lane, lease: Lease { attempt, .. }, holding, transition, .. } = ending;
    let Some(holding) = holding.and_then(HeldTask::let_go) else { return };
    // It was handed to us once more meanwhile, and has not been called for that.
    match transition {
        Transition::Retry { after, .. } if is_stale && holding.lease().attempt > attempt => {
            shared.calls.spawn(hold_back(shared.clone(), lane, holding, after));
        }
        _ => shared.settler.send(Ending::of(lane, holding, Transition::Release)),
    }
}

/// Gives a lease back when the wait that follows a failure is over. The failure itself could not be
/// settled, for by then its lease had gone to this one: given back at once, the task would be
/// called again at once. The attempts tell that it is the same revision, whose wait it is.
async fn hold_back(
    shared: Arc<Shared<impl Delivery, impl Caller>>,
    lane: Lane,
    holding: HeldTask,
    wait: Duration,
) {
    tokio::select! {
        biased;
        () = shared.stopping.cancelled() => {}
        () = keep(&shared, &lane, &holding, Instant::now() + wait) => {}
    }
    shared.settler.send(Ending::of(lane, holding, Transition::Release));
}

/// Returns at that moment, or when the lease cannot be kept for so long.
async fn keep(
    shared: &Shared<impl Delivery, impl Caller>,
    lane: &Lane,
    holding: &HeldTask,
    until: Instant,
) {
    loop {
        let Lease { receipt, until: end, .. } = holding.lease();
        let in_time = end.checked_sub(MARGIN).unwrap_or(end);
        tokio::time::sleep_until(until.min(in_time)).await;
        if until <= in_time {
            return;
        }
        let since = Instant::now();
        let span = (until.saturating_duration_since(since) + 2 * MARGIN).min(MAX_LEASE);
        match shared.parts.store.extend(lane, holding.id(), &receipt, span).await {
            Ok(Settled::Done) => holding.extended(since + span),
            // It is another's, or will be when it has run out.
            Ok(Settled::Stale { .. } | Settled::Unknown) | Err(_) => return,
        }
    }
}
