//! Adding, with group commit: what arrives while a batch is under way goes together with the next one, with no added wait.
//!
//! Each server has a queue of its own, so that one that is silent holds up its own tasks and no others; a call whose tasks lie on several
//! servers gets each one's answer from its own. Two adders a queue take turns, so that one batch can be gathered while the other is with
//! Redis. Where replicas are waited for there is one adder: the wait blocks the connection, and the next batch grows meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::Inner;
use super::batch::{self, Batch, MOST_BYTES};
use super::ids::{Drawn, Run, Wish};
use crate::store::{Added, Error, NewTask, Result};

/// Requests that may wait for a batch; further ones wait to be let in.
const QUEUE: usize = 4_096;
/// The most requests gathered into one batch.
const MOST_REQUESTS: usize = 512;
/// How often an id that turned out to be taken is drawn anew.
const REDRAWS: usize = 3;

/// A task, and the ids that were drawn for it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) task: NewTask,
    pub(super) drawn: Drawn,
}

/// What one caller has for one server.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) members: Vec<Member>,
    pub(super) run: Run,
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
}

/// A task in its caller's place.
type Placed = (usize, NewTask);

/// What a call has for one server.
struct Share {
    server: u64,
    places: Vec<usize>,
    members: Vec<Member>,
}

impl Adders {
    /// None yet: the first task for a server starts its adders. They end when this is dropped.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, queues: std::sync::Mutex::default() }
    }

    /// Adds the tasks with whatever else waits. Nobody waits longer than the timeout, in the queue or for the answer.
    pub(super) async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let deadline = Instant::now() + self.inner.timeout;
        let mut answers: Vec<Result<Added>> = vec![Err(Error::Unavailable("no free id was found".into())); tasks.len()];
        let mut open: Vec<Placed> = tasks.into_iter().enumerate().collect();
        for _ in 0..=REDRAWS {
            open = self.add_once(open, deadline, &mut answers).await;
            if open.is_empty() {
                break;
            }
        }
        answers
    }

    /// One try; gives back those whose id was another task's.
    async fn add_once(&self, open: Vec<Placed>, deadline: Instant, answers: &mut [Result<Added>]) -> Vec<Placed> {
        let wishes: Vec<Wish> = open.iter().map(|(_, task)| wish(task)).collect();
        let drawn = tokio::time::timeout_at(deadline, self.inner.ids.draw(&wishes, &self.inner)).await;
        let (drawn, run) = match drawn.unwrap_or_else(|_| Err(silent())) {
            Ok(drawn) => drawn,
            Err(error) => {
                open.iter().for_each(|&(place, _)| answers[place] = Err(error.clone()));
                return Vec::new();
            }
        };
        let mut taken = Vec::new();
        for (places, members, kept) in self.send_all(self.share_out(open, drawn), &run, deadline).await {
            let mut members = members.into_iter();
            for (place, kept) in places.into_iter().zip(kept) {
                let member = members.next();
                match kept {
                    Ok(Kept::Added(added)) => answers[place] = Ok(added),
                    Ok(Kept::Taken) => taken.extend(member.map(|member| (place, member.task))),
                    Err(error) => answers[place] = Err(error),
                }
            }
        }
        taken
    }

    /// What goes to which server.
    fn share_out(&self, open: Vec<Placed>, drawn: Vec<Drawn>) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::with_capacity(1);
        for ((place, task), drawn) in open.into_iter().zip(drawn) {
            let server = self.inner.servers.number_of(&task.topic.lane_of(drawn.own));
            let share = match shares.iter_mut().find(|share| share.server == server) {
                Some(share) => share,
                None => shares.push_mut(Share { server, places: Vec::new(), members: Vec::new() }),
            };
            share.places.push(place);
            share.members.push(Member { task, drawn });
        }
        shares
    }

    /// Sends each share to its server's adders, and hears what became of it.
    async fn send_all(
        &self,
        mut shares: Vec<Share>,
        run: &Run,
        deadline: Instant,
    ) -> Vec<(Vec<usize>, Vec<Member>, Vec<Result<Kept>>)> {
        match shares.pop() {
            Some(only) if shares.is_empty() => vec![self.send(only, run, deadline).await],
            last => join_all(shares.into_iter().chain(last).map(|share| self.send(share, run, deadline))).await,
        }
    }

    async fn send(&self, share: Share, run: &Run, deadline: Instant) -> (Vec<usize>, Vec<Member>, Vec<Result<Kept>>) {
        let Share { server, places, members } = share;
        let queue = self.queue(server);
        let sent = async {
            let (answer, answered) = oneshot::channel();
            queue.send(Request { members, run: run.clone(), answer }).await.ok()?;
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

/// What a task asks of its ids.
fn wish(task: &NewTask) -> Wish {
    Wish { shards: task.topic.shards, shard: task.pinned_shard(), has_call: task.options.on_dead.is_some() }
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
        if !request.answer.is_closed() {
            bytes += request.members.iter().map(|member| member.task.content.len()).sum::<usize>();
            batch.push(request);
        }
        next = if batch.len() < MOST_REQUESTS && bytes < MOST_BYTES { requests.try_recv().ok() } else { None };
    }
    Some(batch)
}
