//! A queue of endings per server, flushed batch by batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::attempt::{BatchOutcome, Settling};
use super::ending::LeaseEnding;
use crate::model::task::Lane;
use crate::store::{Delivery, Error};

/// The most settles of one batch.
const BATCH: usize = 512;
/// The wait after the store failed, doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the queue of a server stays without endings. Servers of a cluster come and go with
/// their addresses, and a later ending gets a new queue.
const IDLE: Duration = Duration::from_secs(60);

/// Sorts endings by their servers, until the settler is finished and all endings are flushed.
pub(in crate::worker) async fn run(
    settling: Settling<impl Delivery>,
    mut endings: mpsc::UnboundedReceiver<LeaseEnding>,
) {
    let settling = Arc::new(settling);
    let mut servers: HashMap<u64, mpsc::UnboundedSender<LeaseEnding>> = HashMap::new();
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
            let ending = match servers.get(&server) {
                None => ending,
                Some(queue) => match queue.send(ending) {
                    Ok(()) => continue,
                    Err(refused) => refused.0,
                },
            };
            servers.retain(|_, queue| !queue.is_closed());
            while flushing.try_join_next().is_some() {}
            let (sender, receiver) = mpsc::unbounded_channel();
            let _ = sender.send(ending);
            flushing.spawn(run_server(settling.clone(), server, receiver));
            servers.insert(server, sender);
        }
    }
    drop(servers);
    while flushing.join_next().await.is_some() {}
}

/// Flushes the endings of one server, until its queue is closed and empty. Closes it after a while
/// without endings.
async fn run_server(
    settling: Arc<Settling<impl Delivery>>,
    server: u64,
    mut endings: mpsc::UnboundedReceiver<LeaseEnding>,
) {
    let mut stuck_lanes = StuckLanes::default();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let next = timeout(IDLE, endings.recv_many(&mut batch, BATCH)).await;
        let count = match next {
            Ok(count) => count,
            Err(_) => {
                endings.close();
                endings.recv_many(&mut batch, BATCH).await
            }
        };
        if count == 0 {
            break;
        }
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
    queues: HashMap<Lane, mpsc::UnboundedSender<LeaseEnding>>,
    flushing: JoinSet<()>,
}

impl StuckLanes {
    /// Adds the ending to the queue of its lane. Returns it if the lane has none.
    fn join(&mut self, ending: LeaseEnding) -> Option<LeaseEnding> {
        match self.queues.get(&ending.lane) {
            Some(queue) => queue.send(ending).err().map(|refused| refused.0),
            None => Some(ending),
        }
    }

    /// Adds the ending to the queue of its lane, which is created if there is none.
    fn put(&mut self, settling: &Arc<Settling<impl Delivery>>, ending: LeaseEnding) {
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
    mut endings: mpsc::UnboundedReceiver<LeaseEnding>,
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
        let BatchOutcome { answered, failed } = settling.attempt(batch).await;
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

fn take_along(endings: &mut mpsc::UnboundedReceiver<LeaseEnding>, batch: &mut Vec<LeaseEnding>) {
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
    mut batch: Vec<LeaseEnding>,
) -> Vec<LeaseEnding> {
    let mut pause = FIRST_PAUSE;
    let mut stuck = Vec::new();
    while !batch.is_empty() {
        let BatchOutcome { answered, failed } = settling.attempt(batch).await;
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

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::model::clock::Clock;
    use crate::store::embedded::{Embedded, Params};
    use crate::worker::settler::Settler;

    /// The queue of each server stayed for as long as the process ran. A cluster whose nodes get
    /// new addresses made more and more of them.
    #[tokio::test(start_paused = true)]
    async fn the_queue_of_a_server_without_endings_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delayd.db");
        let store = Embedded::open(Params { path, reserve: 0, clock: Clock::system() }).unwrap();
        let (settler, _endings) = Settler::new(Default::default());
        let settling = Settling {
            store: Arc::new(store),
            settler: Arc::new(settler),
            calls: TaskTracker::new(),
            stopping: CancellationToken::new(),
            tasks: Arc::default(),
        };
        let (sender, endings) = mpsc::unbounded_channel();
        let queue = tokio::spawn(run_server(Arc::new(settling), 7, endings));
        timeout(2 * IDLE, queue).await.expect("the queue stays").unwrap();
        assert!(sender.is_closed());
    }
}
