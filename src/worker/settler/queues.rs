//! A queue of endings per server, flushed batch by batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::attempt::{Attempt, Settling};
use super::ending::Ending;
use crate::model::task::Lane;
use crate::store::{Delivery, Error};

/// The most settles of one batch.
const BATCH: usize = 512;
/// The wait after the store failed, doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Sorts endings by their servers, until the settler is finished and all endings are flushed.
pub(in crate::worker) async fn run(
    settling: Settling<impl Delivery>,
    mut endings: mpsc::UnboundedReceiver<Ending>,
) {
    let settling = Arc::new(settling);
    let mut servers: HashMap<u64, mpsc::UnboundedSender<Ending>> = HashMap::new();
    let mut flushing = JoinSet::new();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let count = tokio::select! {
            biased;
            count = endings.recv_many(&mut batch, BATCH) => count,
            () = settling.settler.finished(), if !endings.is_closed() => {
                endings.close();
                continue;
            }
        };
        if count == 0 {
            break;
        }
        for ending in batch.drain(..) {
            let server = settling.store.server_of(&ending.lane);
            let sender = servers.entry(server).or_insert_with(|| {
                let (sender, receiver) = mpsc::unbounded_channel();
                flushing.spawn(run_server(settling.clone(), server, receiver));
                sender
            });
            // The receiver lives as long as its sender.
            let _ = sender.send(ending);
        }
    }
    drop(servers);
    while flushing.join_next().await.is_some() {}
}

/// Flushes the endings of one server, until its queue is closed and empty.
async fn run_server(
    settling: Arc<Settling<impl Delivery>>,
    server: u64,
    mut endings: mpsc::UnboundedReceiver<Ending>,
) {
    let mut stuck_lanes = StuckLanes::default();
    let mut batch = Vec::with_capacity(BATCH);
    while endings.recv_many(&mut batch, BATCH).await > 0 {
        // Calls whose responses have arrived end first, and join the batch. It is larger, and
        // nothing waits longer.
        tokio::task::yield_now().await;
        take_along(&mut endings, &mut batch);
        let batch = std::mem::take(&mut batch)
            .into_iter()
            .filter_map(|ending| stuck_lanes.join(ending))
            .collect();
        for ending in flush(&settling, server, batch).await {
            stuck_lanes.put(&settling, ending);
        }
    }
    drop(stuck_lanes.queues);
    while stuck_lanes.flushing.join_next().await.is_some() {}
}

/// Lanes that are out of reach while their server is not. Each repeats its endings in a queue of
/// its own, so that the other lanes do not wait for it.
#[derive(Default)]
struct StuckLanes {
    queues: HashMap<Lane, mpsc::UnboundedSender<Ending>>,
    flushing: JoinSet<()>,
}

impl StuckLanes {
    /// Adds the ending to the queue of its lane. Returns it if the lane has none.
    fn join(&mut self, ending: Ending) -> Option<Ending> {
        match self.queues.get(&ending.lane) {
            Some(queue) => queue.send(ending).err().map(|refused| refused.0),
            None => Some(ending),
        }
    }

    /// Adds the ending to the queue of its lane, which is created if there is none.
    fn put(&mut self, settling: &Arc<Settling<impl Delivery>>, ending: Ending) {
        let Some(ending) = self.join(ending) else { return };
        self.queues.retain(|_, queue| !queue.is_closed());
        while self.flushing.try_join_next().is_some() {}
        let (sender, receiver) = mpsc::unbounded_channel();
        let lane = ending.lane.clone();
        let _ = sender.send(ending);
        self.flushing.spawn(run_lane(settling.clone(), lane.clone(), receiver));
        self.queues.insert(lane, sender);
    }
}

/// Repeats the endings of one lane until none is left, and closes its queue. Later endings go to
/// the queue of the server again.
async fn run_lane(
    settling: Arc<Settling<impl Delivery>>,
    lane: Lane,
    mut endings: mpsc::UnboundedReceiver<Ending>,
) {
    let mut batch = Vec::new();
    let mut pause = FIRST_PAUSE;
    let mut is_news = true;
    loop {
        take_along(&mut endings, &mut batch);
        if batch.is_empty() {
            endings.close();
            take_along(&mut endings, &mut batch);
            if batch.is_empty() {
                break;
            }
        }
        let Attempt { answered, failed } = settling.attempt(batch).await;
        batch = Vec::with_capacity(failed.len());
        if let (Some((_, error)), true) = (failed.first(), is_news) {
            tracing::warn!(
                %lane, %error, settles = failed.len(),
                "The store takes no settles of lane {lane}; they are kept"
            );
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

fn take_along(endings: &mut mpsc::UnboundedReceiver<Ending>, batch: &mut Vec<Ending>) {
    while batch.len() < BATCH
        && let Ok(ending) = endings.try_recv()
    {
        batch.push(ending);
    }
}

/// Repeats a batch for as long as its server is away. Returns the endings whose lanes alone are out
/// of reach.
async fn flush(
    settling: &Arc<Settling<impl Delivery>>,
    server: u64,
    mut batch: Vec<Ending>,
) -> Vec<Ending> {
    let mut pause = FIRST_PAUSE;
    let mut stuck = Vec::new();
    while !batch.is_empty() {
        let Attempt { answered, failed } = settling.attempt(batch).await;
        batch = Vec::new();
        let mut trouble = None;
        for (ending, error) in failed {
            // The lane may have moved to another server while this batch was on its way. Then the
            // ending goes to the queue of that server.
            let moved = settling.store.server_of(&ending.lane) != server;
            let ending = if moved { settling.settler.queue(ending) } else { Some(ending) };
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
            if settling.settler.is_gone(server) {
                tracing::warn!(
                    %error, settles = batch.len(),
                    "The store takes no settles; they are kept, and claims wait"
                );
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    settling.settler.is_back(server);
    stuck
}
