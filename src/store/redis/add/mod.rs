//! Adding, with group commit: what arrives while a batch is under way goes together with the next
//! one, with no added wait.
//!
//! Each server has a queue of its own, so that one that is silent holds up its own tasks and no
//! others; a call whose tasks lie on several servers gets each one's answer from its own. Two
//! adders a queue take turns, so that one batch can be gathered while the other is with Redis.
//! Where replicas are waited for there is one adder: the wait blocks the connection, and the next
//! batch grows meanwhile.
//!
//! While a server's breaker is not closed, nobody is let into its queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use self::request::{Kept, Request};
use super::arguments::MOST_BYTES;
use super::session::Session;
use super::transport::fault::silent;
use crate::model::task::Lane;
use crate::store::{Added, Error, NewTask, Result};

mod batch;
mod call;
mod request;

/// Requests that may wait for a batch; further ones wait to be let in.
const QUEUE: usize = 4_096;
/// The most requests gathered into one batch.
const MOST_REQUESTS: usize = 512;
/// How often an id that turned out to be taken is drawn anew.
const REDRAWS: usize = 3;

/// The adders of all servers.
#[derive(Debug)]
pub(crate) struct Adders {
    session: Arc<Session>,
    /// By the server's number.
    queues: std::sync::Mutex<HashMap<u64, mpsc::Sender<Request>>>,
    /// The lane of the next task that may go to any.
    turn: AtomicU16,
}

/// Tasks of a call.
#[derive(Default)]
struct Placed {
    /// Where they stand in it.
    places: Vec<usize>,
    tasks: Vec<NewTask>,
}

/// What a call has for one server.
struct Share {
    server: u64,
    placed: Placed,
    picked: Vec<u16>,
}

/// What became of a share.
struct Tried {
    /// Its tasks' places in the call.
    places: Vec<usize>,
    /// The tasks themselves; none if they were not answered.
    tasks: Vec<NewTask>,
    kept: Vec<Result<Kept>>,
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

    /// Notes what is known by now. The others stay open.
    fn note(self, answers: &mut [Option<Result<Added>>], open: &mut Placed) {
        let mut tasks = self.tasks.into_iter();
        for (place, kept) in self.places.into_iter().zip(self.kept) {
            match (kept, tasks.next()) {
                (Ok(Kept::Added(added)), _) => answers[place] = Some(Ok(added)),
                (Err(error), _) => answers[place] = Some(Err(error)),
                (Ok(Kept::Taken), task) => task.into_iter().for_each(|task| open.push(place, task)),
            }
        }
    }
}

impl Adders {
    /// None yet: the first task for a server starts its adders. They end when this is dropped.
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, queues: std::sync::Mutex::default(), turn: AtomicU16::default() }
    }

    /// Adds the tasks with whatever else waits. Nobody waits longer than the timeout, in the queue
    /// or for the answer.
    pub(crate) async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let deadline = Instant::now() + self.session.timeout;
        let mut answers: Vec<Option<Result<Added>>> = vec![None; tasks.len()];
        let mut open = Placed { places: (0..tasks.len()).collect(), tasks };
        // Those whose id was another task's are tried anew.
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

    /// What goes to which server. In a cluster the lane says that, so a task that may go to any has
    /// one picked.
    fn share_out(&self, placed: Placed) -> Vec<Share> {
        let servers = &self.session.servers;
        if placed.tasks.is_empty() {
            return Vec::new();
        }
        if let Some(server) = servers.the_only() {
            return vec![Share { server, placed, picked: Vec::new() }];
        }
        let mut shares: Vec<Share> = Vec::with_capacity(1);
        for (place, task) in placed.places.into_iter().zip(placed.tasks) {
            let turn = || self.turn.fetch_add(1, Ordering::Relaxed) % task.topic.shards.max(1);
            let shard = task.pinned_shard().unwrap_or_else(turn);
            let server = servers.number_of(&Lane { topic: task.topic.topic.clone(), shard });
            let known = shares.iter().position(|share| share.server == server);
            let at = known.unwrap_or_else(|| {
                shares.push(Share { server, placed: Placed::default(), picked: Vec::new() });
                shares.len() - 1
            });
            shares[at].placed.push(place, task);
            shares[at].picked.push(shard);
        }
        shares
    }

    /// Sends each share to its server's adders, and hears what became of it.
    async fn send_all(&self, mut shares: Vec<Share>, deadline: Instant) -> Vec<Tried> {
        match shares.pop() {
            Some(only) if shares.is_empty() => vec![self.send(only, deadline).await],
            last => {
                join_all(shares.into_iter().chain(last).map(|share| self.send(share, deadline)))
                    .await
            }
        }
    }

    async fn send(&self, share: Share, deadline: Instant) -> Tried {
        let Share { server, placed: Placed { places, tasks }, picked } = share;
        // In the queue one would wait for adders that may still wait for the server's silence to
        // end.
        if let Some(refusal) = self.session.servers.refuses_adds(server) {
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

    /// The queue of a server. Those of servers that are gone end once they are empty.
    fn queue(&self, server: u64) -> mpsc::Sender<Request> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&server) {
            return queue.clone();
        }
        let map = self.session.servers.map();
        queues.retain(|server, _| map.nodes().iter().any(|node| node.number == *server));
        let (sender, receiver) = mpsc::channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        let adders = if self.session.wait_replicas > 0 { 1 } else { 2 };
        for _ in 0..adders {
            tokio::spawn(run(self.session.clone(), receiver.clone()));
        }
        queues.insert(server, sender.clone());
        sender
    }
}

async fn run(session: Arc<Session>, receiver: Arc<Mutex<mpsc::Receiver<Request>>>) {
    loop {
        // The lock is let go before the batch goes to Redis, so that the other adder gathers
        // meanwhile.
        let gathered = {
            let mut requests = receiver.lock().await;
            gather(&mut requests).await
        };
        let Some(requests) = gathered else { return };
        let mut batch = batch::add(&session, requests).await;
        if batch.refused.is_empty() {
            batch.answer();
        } else {
            // The registry may lie with another server, which may be away: neither the next batch
            // nor the others of this one wait for it.
            batch.answer_others();
            let session = session.clone();
            tokio::spawn(async move { batch.open_lanes(&session).await });
        }
    }
}

/// Waits for a request and takes along what waits behind it, as far as one pipeline should go. A
/// caller that has been refused meanwhile is left out: its task must not be stored after all.
/// `None` once there will be no more.
async fn gather(requests: &mut mpsc::Receiver<Request>) -> Option<Vec<Request>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    // Of requests that are all abandoned there is no batch: it would draw ids for nobody, while
    // others wait for theirs.
    while batch.is_empty() {
        let mut next = Some(requests.recv().await?);
        // Whoever is about to ask comes along; where nobody is, this takes no time.
        tokio::task::yield_now().await;
        while let Some(request) = next {
            if !request.is_abandoned() {
                bytes += request.tasks.iter().map(|task| task.content.len()).sum::<usize>();
                batch.push(request);
            }
            next = if batch.len() < MOST_REQUESTS && bytes < MOST_BYTES {
                requests.try_recv().ok()
            } else {
                None
            };
        }
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::request::Answer;
    use super::*;
    use crate::store::redis::Params;
    use crate::store::redis::hints::Hints;
    use crate::store::redis::transport::node::Purpose;
    use crate::store::{Moment, TopicEntry};

    fn task() -> NewTask {
        NewTask {
            topic: TopicEntry { topic: "t".parse().unwrap(), shards: 1 },
            destination: "sn".parse().unwrap(),
            moment: Moment::After(Duration::ZERO),
            options: Default::default(),
            content: "{}".into(),
            idempotency: None,
            quota: None,
        }
    }

    /// What a caller asks, and his end of it.
    fn request(tasks: usize) -> (Request, oneshot::Receiver<Answer>) {
        Request::of(vec![task(); tasks], Vec::new())
    }

    /// The server takes connections and says nothing; the first batch waits for it, and everyone
    /// else for that batch.
    #[tokio::test]
    async fn an_open_breaker_refuses_before_the_queue() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/0", server.local_addr().unwrap());
        let params = Params { timeout: Duration::from_secs(60), ..Params::standalone(url) };
        let servers = Arc::new(params.servers().unwrap());
        let session = Arc::new(Session::new(params, servers.clone(), Hints::new(false).0));
        let adders = Arc::new(Adders::new(session.clone()));
        let adding = || {
            let adders = adders.clone();
            tokio::spawn(async move { adders.add(vec![task()]).await.remove(0) })
        };
        let waits = adding();
        while session.ids.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        servers.map().nodes()[0].link(Purpose::Working).trip();
        let refused = tokio::time::timeout(Duration::from_secs(30), adding()).await;
        let refused = refused.expect("it waits for those before it").unwrap();
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        assert!(!waits.is_finished());
    }

    #[tokio::test]
    async fn there_is_no_batch_of_those_who_have_gone() {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        for _ in 0..3 {
            sender.try_send(request(1).0).unwrap();
        }
        let (stays, _answered) = request(2);
        let (gathered, ()) = tokio::join!(gather(&mut receiver), async {
            // The three have been met by now.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            sender.try_send(stays).unwrap();
        });
        assert_eq!(
            gathered.unwrap().iter().map(|request| request.tasks.len()).collect::<Vec<_>>(),
            [2]
        );
        sender.try_send(request(1).0).unwrap();
        drop(sender);
        assert!(gather(&mut receiver).await.is_none());
    }
}
