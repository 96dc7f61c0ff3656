//! Adding, with group commit: what arrives while a batch is under way goes together with the next one, with no added wait.
//!
//! Each server has a queue of its own, so that one that is silent holds up its own tasks and no others; a call whose tasks lie on several
//! servers gets each one's answer from its own. Two adders a queue take turns, so that one batch can be gathered while the other is with
//! Redis. Where replicas are waited for there is one adder: the wait blocks the connection, and the next batch grows meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::Inner;
use super::batch::{self, Batch, MOST_BYTES};
use crate::store::{Added, Error, NewTask, Result};
use crate::task::Lane;

/// Requests that may wait for a batch; further ones wait to be let in.
const QUEUE: usize = 4_096;
/// The most requests gathered into one batch.
const MOST_REQUESTS: usize = 512;
/// How often an id that turned out to be taken is drawn anew.
const REDRAWS: usize = 3;

/// A task, and the lane that was picked for it where it goes by one that is not the only one of its topic.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) task: NewTask,
    pub(super) shard: Option<u16>,
}

/// What one caller has for one server.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) members: Vec<Member>,
    /// Closed once the caller waits no more.
    answer: oneshot::Sender<Answer>,
}

/// What became of each member, and the members themselves: some may have to be sent again.
type Answer = (Vec<Member>, Vec<Result<Kept>>);

/// What became of a task.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    Added(Added),
    /// Its id is another task's, or may be by now: it has to be drawn anew.
    Taken,
}

impl Request {
    /// Whether the caller has been refused meanwhile: then its tasks must not be stored after all.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, kept: Vec<Result<Kept>>) {
        // A caller that has gone does not need its answer.
        let _ = self.answer.send((self.members, kept));
    }
}

/// The adders of all servers.
#[derive(Debug)]
pub(super) struct Adders {
    inner: Arc<Inner>,
    /// By the server's number.
    queues: std::sync::Mutex<HashMap<u64, mpsc::Sender<Request>>>,
    /// The lane of the next task that may go to any.
    turn: AtomicU16,
}

/// What a call has for one server.
struct Share {
    server: u64,
    /// The tasks' places in the call.
    places: Vec<usize>,
    members: Vec<Member>,
}

impl Adders {
    /// None yet: the first task for a server starts its adders. They end when this is dropped.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, queues: std::sync::Mutex::default(), turn: AtomicU16::default() }
    }

    /// Adds the tasks with whatever else waits. Nobody waits longer than the timeout, in the queue or for the answer.
    pub(super) async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let deadline = Instant::now() + self.inner.timeout;
        let mut answers: Vec<Option<Result<Added>>> = vec![None; tasks.len()];
        let mut places: Vec<usize> = (0..tasks.len()).collect();
        let mut open: Vec<Member> = tasks.into_iter().map(|task| self.member(task)).collect();
        // Those whose id was another task's are tried anew.
        for _ in 0..=REDRAWS {
            let shares = self.share_out(std::mem::take(&mut places), std::mem::take(&mut open));
            for (tried, members, kept) in self.send_all(shares, deadline).await {
                let mut members = members.into_iter();
                for (place, kept) in tried.into_iter().zip(kept) {
                    let member = members.next();
                    match kept {
                        Ok(Kept::Added(added)) => answers[place] = Some(Ok(added)),
                        Err(error) => answers[place] = Some(Err(error)),
                        Ok(Kept::Taken) => {
                            places.push(place);
                            open.extend(member);
                        }
                    }
                }
            }
            if open.is_empty() {
                break;
            }
        }
        let none_free = || Err(Error::Unavailable("no free id was found".into()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(none_free)).collect()
    }

    /// In a cluster the lane says which server is asked, so a task that may go to any has to have one picked.
    fn member(&self, task: NewTask) -> Member {
        let shards = task.topic.shards;
        let pick = || self.turn.fetch_add(1, Ordering::Relaxed) % shards;
        let is_free = self.inner.servers.is_cluster() && shards > 1;
        let shard = task.pinned_shard().or_else(|| is_free.then(pick));
        Member { task, shard }
    }

    /// What goes to which server.
    fn share_out(&self, places: Vec<usize>, members: Vec<Member>) -> Vec<Share> {
        let server_of = |Member { task, shard }: &Member| {
            let lane = Lane { topic: task.topic.topic.clone(), shard: shard.unwrap_or_default() };
            self.inner.servers.number_of(&lane)
        };
        if let Some(first) = members.first()
            && (members.len() == 1 || !self.inner.servers.is_cluster())
        {
            return vec![Share { server: server_of(first), places, members }];
        }
        let mut shares: Vec<Share> = Vec::new();
        for (place, member) in places.into_iter().zip(members) {
            let server = server_of(&member);
            let known = shares.iter().position(|share| share.server == server);
            let at = known.unwrap_or_else(|| {
                shares.push(Share { server, places: Vec::new(), members: Vec::new() });
                shares.len() - 1
            });
            shares[at].places.push(place);
            shares[at].members.push(member);
        }
        shares
    }

    /// Sends each share to its server's adders, and hears what became of it.
    async fn send_all(
        &self,
        mut shares: Vec<Share>,
        deadline: Instant,
    ) -> Vec<(Vec<usize>, Vec<Member>, Vec<Result<Kept>>)> {
        match shares.pop() {
            Some(only) if shares.is_empty() => vec![self.send(only, deadline).await],
            last => join_all(shares.into_iter().chain(last).map(|share| self.send(share, deadline))).await,
        }
    }

    async fn send(&self, share: Share, deadline: Instant) -> (Vec<usize>, Vec<Member>, Vec<Result<Kept>>) {
        let Share { server, places, members } = share;
        let queue = self.queue(server);
        let sent = async {
            let (answer, answered) = oneshot::channel();
            queue.send(Request { members, answer }).await.ok()?;
            answered.await.ok()
        };
        let failed = |error: Error| (Vec::new(), vec![Err(error); places.len()]);
        let (members, kept) = match tokio::time::timeout_at(deadline, sent).await {
            Ok(Some(answer)) => answer,
            Ok(None) => failed(Error::Unavailable("the store is closed".into())),
            Err(_) => failed(silent()),
        };
        (places, members, kept)
    }

    /// The queue of a server. Those of servers that are gone end once they are empty.
    fn queue(&self, server: u64) -> mpsc::Sender<Request> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&server) {
            return queue.clone();
        }
        let map = self.inner.servers.map();
        queues.retain(|server, _| map.nodes().iter().any(|node| node.number == *server));
        let (sender, receiver) = mpsc::channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        let adders = if self.inner.wait_replicas > 0 { 1 } else { 2 };
        for _ in 0..adders {
            tokio::spawn(run(self.inner.clone(), receiver.clone()));
        }
        queues.insert(server, sender.clone());
        sender
    }
}

fn silent() -> Error {
    Error::Unavailable("Redis does not answer in time".into())
}

async fn run(inner: Arc<Inner>, receiver: Arc<Mutex<mpsc::Receiver<Request>>>) {
    loop {
        // The lock is let go before the batch goes to Redis, so that the other adder gathers meanwhile.
        let gathered = {
            let mut requests = receiver.lock().await;
            gather(&mut requests).await
        };
        let Some(requests) = gathered else { return };
        let batch = batch::add(&inner, requests).await;
        if batch.emptied.is_empty() {
            batch.answer();
        } else {
            // The registry may lie with another server, which may be away: the next batch does not wait for it.
            tokio::spawn(answer_registered(inner.clone(), batch));
        }
    }
}

/// The registry may have been lost (a failover) or never written by whoever emptied the lane last; whoever finds a lane empty writes it
/// again, before the caller hears that the task is kept. The others' callers do not wait for that.
async fn answer_registered(inner: Arc<Inner>, mut batch: Batch) {
    let emptied = std::mem::take(&mut batch.emptied);
    let mut waiting = batch.answer_but(emptied.values().flatten());
    let asserted = super::registry::assert_all(&inner, &emptied.keys().collect::<Vec<_>>()).await;
    for ((entry, places), asserted) in emptied.iter().zip(asserted) {
        let Err(error) = asserted else { continue };
        tracing::warn!(topic = %entry.topic, %error, "Could not write the topic registry again");
        places.iter().for_each(|&place| waiting.note(place, Err(error.clone())));
    }
    waiting.answer();
}

/// Waits for a request and takes along what waits behind it, as far as one pipeline should go. A caller that has been refused
/// meanwhile is left out: its task must not be stored after all. `None` once there will be no more.
async fn gather(requests: &mut mpsc::Receiver<Request>) -> Option<Vec<Request>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    let mut next = Some(requests.recv().await?);
    // Whoever is about to ask comes along; where nobody is, this takes no time.
    tokio::task::yield_now().await;
    while let Some(request) = next {
        if !request.is_abandoned() {
            bytes += request.members.iter().map(|member| member.task.content.len()).sum::<usize>();
            batch.push(request);
        }
        next = if batch.len() < MOST_REQUESTS && bytes < MOST_BYTES { requests.try_recv().ok() } else { None };
    }
    Some(batch)
}
