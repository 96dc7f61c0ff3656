//! Adds tasks, with group commit: requests that arrive while a batch is under way form the next
//! batch, without extra delay.
//!
//! Each server has its own queue, so a silent server delays only its own tasks. A call whose tasks
//! lie on several servers gets each answer from its server.
//!
//! `queue` holds the requests, `batch` sends those of one queue, and `call` writes the arguments of
//! the scripts and reads their answers. `pacing` says when the next batch may be sent.
//!
//! While a server's breaker is not closed, its queue accepts no requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::queue::{KeptResult, Request};
use super::session::Session;
use super::transport::fault::silent;
use crate::model::task::Lane;
use crate::store::{Added, Error, NewTask, Result};

mod batch;
mod call;
mod pacing;
pub(super) mod queue;
#[cfg(test)]
mod testing;

/// How many requests may wait for a batch. Further requests wait to enter the queue.
const QUEUE: usize = 4_096;
/// How often a new id is drawn for a task whose id turned out to be taken.
const REDRAWS: usize = 3;

/// Tasks of a call, and their indexes in it.
#[derive(Default)]
struct Placed {
    /// The index of each task in the call.
    places: Vec<usize>,
    tasks: Vec<NewTask>,
}

/// The tasks of a call for one server.
struct ServerShare {
    server: u64,
    placed: Placed,
    picked: Vec<u16>,
}

/// The result of a share.
struct Tried {
    /// The index of each task in the call.
    places: Vec<usize>,
    /// The tasks; none if they were not answered.
    tasks: Vec<NewTask>,
    kept: Vec<Result<KeptResult>>,
}

impl Placed {
    fn push(&mut self, place: usize, task: NewTask) {
        self.places.push(place);
        self.tasks.push(task);
    }
}

impl Tried {
    fn failed(places: Vec<usize>, error: Error) -> Self {
        Self { tasks: Vec::new(), kept: vec![Err(error); places.len()], places }
    }

    /// Notes the known results. The other tasks stay open.
    fn note(self, answers: &mut [Option<Result<Added>>], open: &mut Placed) {
        let mut tasks = self.tasks.into_iter();
        for (place, kept) in self.places.into_iter().zip(self.kept) {
            match (kept, tasks.next()) {
                (Ok(KeptResult::Added(added)), _) => answers[place] = Some(Ok(added)),
                (Err(error), _) => answers[place] = Some(Err(error)),
                (Ok(KeptResult::Taken), task) => {
                    task.into_iter().for_each(|task| open.push(place, task))
                }
            }
        }
    }
}

impl Session {
    /// Adds the tasks, together with those of other callers. Takes at most the timeout, queue
    /// included.
    pub(crate) async fn add(self: &Arc<Self>, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let deadline = Instant::now() + self.timeout;
        let mut answers: Vec<Option<Result<Added>>> = vec![None; tasks.len()];
        let mut open = Placed { places: (0..tasks.len()).collect(), tasks };
        // Tasks whose id was taken are tried again.
        for _ in 0..=REDRAWS {
            let shares = self.share_out(std::mem::take(&mut open));
            self.send_all(shares, deadline)
                .await
                .into_iter()
                .for_each(|tried| tried.note(&mut answers, &mut open));
            if open.tasks.is_empty() {
                break;
            }
        }
        let none_free = || Err(Error::Unavailable("no free id was found".into()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(none_free)).collect()
    }

    /// Splits tasks by server. In a cluster the lane determines the server, so a task that may go
    /// to any lane gets one here.
    fn share_out(&self, placed: Placed) -> Vec<ServerShare> {
        let servers = &self.servers;
        if placed.tasks.is_empty() {
            return Vec::new();
        }
        if let Some(server) = servers.the_only() {
            return vec![ServerShare { server, placed, picked: Vec::new() }];
        }
        let mut shares: Vec<ServerShare> = Vec::with_capacity(1);
        for (place, task) in placed.places.into_iter().zip(placed.tasks) {
            let turn =
                || self.queues.turn.fetch_add(1, Ordering::Relaxed) % task.topic.shards.max(1);
            let shard = task.pinned_shard().unwrap_or_else(turn);
            let server = servers.number_of(&Lane { topic: task.topic.topic.clone(), shard });
            let known = shares.iter().position(|share| share.server == server);
            let at = known.unwrap_or_else(|| {
                shares.push(ServerShare { server, placed: Placed::default(), picked: Vec::new() });
                shares.len() - 1
            });
            shares[at].placed.push(place, task);
            shares[at].picked.push(shard);
        }
        shares
    }

    /// Sends each share to the queue of its server, and waits for the results.
    async fn send_all(
        self: &Arc<Self>,
        mut shares: Vec<ServerShare>,
        deadline: Instant,
    ) -> Vec<Tried> {
        match shares.pop() {
            Some(only) if shares.is_empty() => vec![self.send(only, deadline).await],
            last => {
                join_all(shares.into_iter().chain(last).map(|share| self.send(share, deadline)))
                    .await
            }
        }
    }

    async fn send(self: &Arc<Self>, share: ServerShare, deadline: Instant) -> Tried {
        let ServerShare { server, placed: Placed { places, tasks }, picked } = share;
        // A request in the queue would wait for batches that may still wait for the silent server.
        if let Some(refusal) = self.servers.refuses_adds(server) {
            return Tried::failed(places, refusal);
        }
        let queue = self.queue(server);
        let sent = async {
            let (request, answered) = Request::of(tasks, picked);
            queue.send(request).await.ok()?;
            answered.await.ok()
        };
        match tokio::time::timeout_at(deadline, sent).await {
            Ok(Some((tasks, kept))) => Tried { places, tasks, kept },
            Ok(None) => Tried::failed(places, Error::Unavailable("the store is closed".into())),
            Err(_) => Tried::failed(places, silent()),
        }
    }

    /// The queue of a server. The first task for it starts its dispatcher. Removes the queues of
    /// servers that are gone.
    fn queue(self: &Arc<Self>, server: u64) -> mpsc::Sender<Request> {
        let mut queues = self.queues.by_server();
        if let Some(queue) = queues.get(&server) {
            return queue.clone();
        }
        let map = self.servers.map();
        queues.retain(|server, _| map.nodes().iter().any(|node| node.number == *server));
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(batch::run(self.clone(), server, receiver));
        queues.insert(server, sender.clone());
        sender
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::testing::task;
    use super::*;
    use crate::store::redis::Params;
    use crate::store::redis::hints::HintSender;
    use crate::store::redis::transport::node::Purpose;

    /// The server accepts connections and never answers. The first batch waits for it, and all
    /// other requests wait for that batch.
    #[tokio::test]
    async fn an_open_breaker_refuses_before_the_queue() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/0", server.local_addr().unwrap());
        let params = Params { timeout: Duration::from_secs(60), ..Params::standalone(url) };
        let servers = Arc::new(params.servers(true).unwrap());
        let session = Arc::new(Session::new(params, servers.clone(), HintSender::new()));
        let adding = || {
            let session = session.clone();
            tokio::spawn(async move { session.add(vec![task()]).await.remove(0) })
        };
        let waits = adding();
        while !session.ids.is_drawing() {
            tokio::task::yield_now().await;
        }
        servers.map().nodes()[0].link(Purpose::Working).trip();
        let refused = tokio::time::timeout(Duration::from_secs(30), adding()).await;
        let refused = refused.expect("it waits for those before it").unwrap();
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        assert!(!waits.is_finished());
    }
}
