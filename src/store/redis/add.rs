//! Adding, with group commit: what arrives while a batch is under way goes together with the next one, with no added wait.
//!
//! Each server has a queue of its own, so that one that is silent holds up its own tasks and no others; a call whose tasks lie on several
//! servers gets each one's answer from its own. Two adders a queue take turns, so that one batch can be gathered while the other is with
//! Redis. Where replicas are waited for there is one adder: the wait blocks the connection, and the next batch grows meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::Inner;
use super::batch::{self, MOST_BYTES, Place};
use super::ids::{Drawn, Run, Wish};
use super::keys::Keys;
use crate::clock::UnixMillis;
use crate::store::{Added, Error, Hint, NewTask, Novelty, Result, TopicEntry};
use crate::task::Lane;

/// Requests that may wait for a batch; further ones wait to be let in.
const QUEUE: usize = 4_096;
/// The most requests gathered into one batch.
const MOST_REQUESTS: usize = 512;
/// How often an id that turned out to be taken is drawn anew.
const REDRAWS: usize = 3;

/// What one caller has for one server.
pub(super) struct Request {
    pub(super) tasks: Arc<[NewTask]>,
    pub(super) members: Vec<(usize, Drawn)>,
    pub(super) run: Run,
    /// Closed once the caller waits no more.
    answer: oneshot::Sender<Vec<Result<Kept>>>,
}

/// What became of a task.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    Added(Added),
    /// Its id is another task's, or may be by now: it has to be drawn anew.
    Taken,
}

/// The adders of all servers.
#[derive(Debug)]
pub(super) struct Adders {
    inner: Arc<Inner>,
    /// By the server's number.
    queues: std::sync::Mutex<HashMap<u64, mpsc::Sender<Request>>>,
}

impl Adders {
    /// None yet: the first task for a server starts its adders. They end when this is dropped.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, queues: std::sync::Mutex::default() }
    }

    /// Adds the tasks with whatever else waits. Nobody waits longer than the timeout, in the queue or for the answer.
    pub(super) async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let tasks: Arc<[NewTask]> = tasks.into();
        let deadline = Instant::now() + self.inner.timeout;
        let mut answers: Vec<Result<Added>> = vec![Err(Error::Unavailable("no free id was found".into())); tasks.len()];
        let mut open: Vec<usize> = (0..tasks.len()).collect();
        for _ in 0..=REDRAWS {
            open = self.add_once(&tasks, open, deadline, &mut answers).await;
            if open.is_empty() {
                break;
            }
        }
        hint(&self.inner, &tasks, &answers);
        answers
    }

    /// One try; answers those of `open` whose id was another task's.
    async fn add_once(
        &self,
        tasks: &Arc<[NewTask]>,
        open: Vec<usize>,
        deadline: Instant,
        answers: &mut [Result<Added>],
    ) -> Vec<usize> {
        let silent = || Error::Unavailable("Redis does not answer in time".into());
        let wishes: Vec<Wish> = open.iter().map(|&i| wish(&tasks[i])).collect();
        let drawn = tokio::time::timeout_at(deadline, self.inner.ids.draw(&wishes, &self.inner)).await;
        let (drawn, run) = match drawn.unwrap_or_else(|_| Err(silent())) {
            Ok(drawn) => drawn,
            Err(error) => {
                for i in open {
                    answers[i] = Err(error.clone());
                }
                return Vec::new();
            }
        };
        let mut servers: HashMap<u64, Vec<(usize, Drawn)>> = HashMap::new();
        for (i, drawn) in open.into_iter().zip(drawn) {
            let slot = Keys::slot_of(&tasks[i].topic.lane_of(drawn.own));
            servers.entry(self.inner.servers.number_of(slot)).or_default().push((i, drawn));
        }
        let adding = servers.into_iter().map(|(server, members)| {
            let (tasks, run, queue) = (tasks.clone(), run.clone(), self.queue(server));
            async move {
                let sent = async {
                    let (answer, answered) = oneshot::channel();
                    let request = Request { tasks, members: members.clone(), run, answer };
                    queue.send(request).await.ok()?;
                    answered.await.ok()
                };
                let kept = match tokio::time::timeout_at(deadline, sent).await {
                    Ok(Some(kept)) => kept,
                    Ok(None) => vec![Err(Error::Unavailable("the store is closed".into())); members.len()],
                    Err(_) => vec![Err(silent()); members.len()],
                };
                (members, kept)
            }
        });
        let mut taken = Vec::new();
        for (members, kept) in join_all(adding).await {
            for ((i, _), kept) in members.into_iter().zip(kept) {
                match kept {
                    Ok(Kept::Added(added)) => answers[i] = Ok(added),
                    Ok(Kept::Taken) => taken.push(i),
                    Err(error) => answers[i] = Err(error),
                }
            }
        }
        taken
    }

    /// The queue of a server. Those of servers that are gone end once they are empty.
    fn queue(&self, server: u64) -> mpsc::Sender<Request> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&server) {
            return queue.clone();
        }
        let there: HashSet<u64> = self.inner.servers.map().nodes().iter().map(|node| node.number).collect();
        queues.retain(|server, _| there.contains(server));
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

async fn run(inner: Arc<Inner>, receiver: Arc<Mutex<mpsc::Receiver<Request>>>) {
    loop {
        // The lock is let go before the batch goes to Redis, so that the other adder gathers meanwhile.
        let gathered = {
            let mut requests = receiver.lock().await;
            gather(&mut requests).await
        };
        let Some(batch) = gathered else { return };
        let (answers, emptied) = batch::add(&inner, &batch).await;
        let waits: HashSet<usize> = emptied.values().flatten().map(|&(request, _)| request).collect();
        let mut waiting = HashMap::new();
        for (r, (request, own)) in batch.into_iter().zip(answers).enumerate() {
            if waits.contains(&r) {
                waiting.insert(r, (request, own));
            } else {
                // A caller that has gone does not need its answer.
                let _ = request.answer.send(own);
            }
        }
        if !waiting.is_empty() {
            // The registry may lie with another server, which may be away: the next batch does not wait for it.
            tokio::spawn(answer_registered(inner.clone(), waiting, emptied));
        }
    }
}

/// The places of those tasks that found their lanes empty, by topic.
pub(super) type Emptied = HashMap<TopicEntry, Vec<Place>>;

/// The registry may have been lost (a failover) or never written by whoever emptied the lane last; whoever finds a lane empty writes it
/// again, before the caller hears that the task is kept.
async fn answer_registered(
    inner: Arc<Inner>,
    mut waiting: HashMap<usize, (Request, Vec<Result<Kept>>)>,
    emptied: Emptied,
) {
    let asserted = super::registry::assert_all(&inner, &emptied.keys().collect::<Vec<_>>()).await;
    for ((entry, places), asserted) in emptied.iter().zip(asserted) {
        let Err(error) = asserted else { continue };
        tracing::warn!(topic = %entry.topic, %error, "Could not write the topic registry again");
        for &(request, member) in places {
            if let Some((_, answers)) = waiting.get_mut(&request) {
                answers[member] = Err(error.clone());
            }
        }
    }
    for (request, own) in waiting.into_values() {
        let _ = request.answer.send(own);
    }
}

/// Waits for a request and takes along what waits behind it, as far as one pipeline should go. A caller that has been refused
/// meanwhile is left out: its task must not be stored after all. `None` once there will be no more.
async fn gather(requests: &mut mpsc::Receiver<Request>) -> Option<Vec<Request>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    let mut next = Some(requests.recv().await?);
    while let Some(request) = next {
        if !request.answer.is_closed() {
            bytes += request.members.iter().map(|&(i, _)| request.tasks[i].content.len()).sum::<usize>();
            batch.push(request);
        }
        next = if batch.len() < MOST_REQUESTS && bytes < MOST_BYTES { requests.try_recv().ok() } else { None };
    }
    Some(batch)
}

fn hint(inner: &Inner, tasks: &[NewTask], answers: &[Result<Added>]) {
    let mut earliest: HashMap<(Lane, bool), UnixMillis> = HashMap::new();
    for (task, answer) in tasks.iter().zip(answers) {
        if let Ok(added) = answer
            && added.novelty != Novelty::Duplicate
        {
            let whose = (task.topic.lane_of(added.id), task.destination.is_pull());
            let due = earliest.entry(whose).or_insert(added.due);
            *due = added.due.min(*due);
        }
    }
    for ((lane, is_pull), due) in earliest {
        inner.hints.tell(Hint { lane, due, is_pull });
    }
}
