//! Adding, with group commit: what arrives while a batch is under way goes together with the next one, with no added wait.
//!
//! Two adders take turns, so that one batch can be gathered while the other is with Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::Inner;
use super::ids::script_call;
use super::record::write_options;
use super::script;
use crate::clock::UnixMillis;
use crate::store::{Added, Error, Hint, Moment, NewTask, Result};
use crate::task::{Lane, TaskId};

/// The most tasks of one script call: it stays under a few milliseconds.
const MOST_TASKS: usize = 256;
/// The most body bytes of one script call; a batch ends with the request that reaches them.
const MOST_BYTES: usize = 4 << 20;
/// Requests that may wait for a batch; further ones wait to be let in.
const QUEUE: usize = 4_096;
/// The most requests gathered into one batch.
const MOST_REQUESTS: usize = 512;
/// How often an id that turned out to be taken is drawn anew.
const REDRAWS: usize = 3;

/// One caller's tasks.
struct Request {
    tasks: Vec<NewTask>,
    answer: Caller,
}

/// Who waits for an answer; closed once they do not any more.
type Caller = oneshot::Sender<Vec<Result<Added>>>;

/// The way to the adders.
#[derive(Debug)]
pub(super) struct Adders(mpsc::Sender<Request>);

impl Adders {
    /// Starts two adders; they end when this is dropped.
    pub(super) fn start(inner: &Arc<Inner>) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..2 {
            tokio::spawn(run(inner.clone(), receiver.clone()));
        }
        Self(sender)
    }

    /// Adds the tasks with whatever else waits. Nobody waits longer than `timeout`, in the queue or for the answer.
    pub(super) async fn add(&self, tasks: Vec<NewTask>, timeout: Duration) -> Vec<Result<Added>> {
        let count = tasks.len();
        let (answer, answered) = oneshot::channel();
        let adding = async {
            self.0.send(Request { tasks, answer }).await.ok()?;
            answered.await.ok()
        };
        let failed = |why: &str| vec![Err(Error::Unavailable(why.into())); count];
        match tokio::time::timeout(timeout, adding).await {
            Ok(Some(answers)) => answers,
            Ok(None) => failed("the store is closed"),
            Err(_) => failed("Redis does not answer in time"),
        }
    }
}

async fn run(inner: Arc<Inner>, receiver: Arc<Mutex<mpsc::Receiver<Request>>>) {
    loop {
        // The lock is let go before the batch goes to Redis, so that the other adder gathers meanwhile.
        let gathered = {
            let mut requests = receiver.lock().await;
            gather(&mut requests).await
        };
        let Some(batch) = gathered else { return };
        let tasks: Vec<&NewTask> = batch.iter().flat_map(|request| &request.tasks).collect();
        let callers: Vec<&Caller> =
            batch.iter().flat_map(|request| request.tasks.iter().map(|_| &request.answer)).collect();
        let mut answers = add(&inner, &tasks, &callers).await.into_iter();
        for request in batch {
            let own = answers.by_ref().take(request.tasks.len()).collect();
            // A caller that has gone does not need its answer.
            let _ = request.answer.send(own);
        }
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
            bytes += request.tasks.iter().map(|task| task.content.len()).sum::<usize>();
            batch.push(request);
        }
        next = if batch.len() < MOST_REQUESTS && bytes < MOST_BYTES { requests.try_recv().ok() } else { None };
    }
    Some(batch)
}

async fn add(inner: &Inner, tasks: &[&NewTask], callers: &[&Caller]) -> Vec<Result<Added>> {
    let mut answers: Vec<Result<Added>> = vec![Err(Error::Unavailable("no free id was found".into())); tasks.len()];
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    for _ in 0..=REDRAWS {
        open = add_once(inner, tasks, callers, open, &mut answers).await;
        if open.is_empty() {
            break;
        }
    }
    hint(inner, tasks, &answers);
    answers
}

/// One try; answers those of `open` whose id was another task's.
async fn add_once(
    inner: &Inner,
    tasks: &[&NewTask],
    callers: &[&Caller],
    open: Vec<usize>,
    answers: &mut [Result<Added>],
) -> Vec<usize> {
    let (ids, live) = match inner.ids.draw(open.len(), &inner.adding, &inner.keys, &inner.clock).await {
        Ok((ids, live)) => (ids.map(TaskId), live),
        Err(error) => {
            for i in open {
                answers[i] = Err(error.clone());
            }
            return Vec::new();
        }
    };
    let mut lanes: HashMap<Lane, Vec<(usize, TaskId)>> = HashMap::new();
    // Drawing may have taken a while, and who was refused meanwhile is left out.
    for (i, id) in open.into_iter().zip(ids).filter(|(i, _)| !callers[*i].is_closed()) {
        lanes.entry(tasks[i].topic.lane_of(id)).or_default().push((i, id));
    }
    let mut calls: Vec<Cmd> = Vec::new();
    let mut called: Vec<(Lane, Vec<(usize, TaskId)>)> = Vec::new();
    for (lane, members) in lanes {
        for chunk in chunks(members, tasks) {
            calls.push(call(inner, &lane, &chunk, tasks));
            called.push((lane.clone(), chunk));
        }
    }
    match inner.adding.run_pinned(&live, &calls).await {
        Ok(replies) => {
            let mut taken = Vec::new();
            for ((lane, members), reply) in called.into_iter().zip(replies) {
                taken.extend(read(inner, &lane, &members, tasks, reply, answers).await);
            }
            taken
        }
        Err(error) => {
            for (i, _) in called.into_iter().flat_map(|(_, members)| members) {
                answers[i] = Err(error.clone());
            }
            Vec::new()
        }
    }
}

/// Splits a lane's tasks into script calls of bounded length.
fn chunks(members: Vec<(usize, TaskId)>, tasks: &[&NewTask]) -> Vec<Vec<(usize, TaskId)>> {
    let mut chunks: Vec<Vec<(usize, TaskId)>> = Vec::new();
    let mut bytes = 0;
    for member in members {
        let length = tasks[member.0].content.len();
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < MOST_TASKS && bytes + length <= MOST_BYTES => {
                chunk.push(member);
                bytes += length;
            }
            _ => {
                chunks.push(vec![member]);
                bytes = length;
            }
        }
    }
    chunks
}

fn call(inner: &Inner, lane: &Lane, members: &[(usize, TaskId)], tasks: &[&NewTask]) -> Cmd {
    let mut call = script_call(&script::ADD, &inner.keys.of_script(lane), &inner.clock);
    call.arg(members.first().map_or(1, |&(i, _)| tasks[i].topic.shards));
    for &(i, id) in members {
        let task = tasks[i];
        call.arg(id.0)
            .arg(write_moment(task.moment))
            .arg(task.destination.as_str())
            .arg(write_options(&task.options))
            .arg(&task.content);
    }
    call
}

/// A moment as the scripts read it.
pub(super) fn write_moment(moment: Moment) -> String {
    match moment {
        Moment::At(at) => format!("@{}", at.0.max(0)),
        Moment::After(delay) => format!("+{}", delay.as_millis()),
    }
}

async fn read(
    inner: &Inner,
    lane: &Lane,
    members: &[(usize, TaskId)],
    tasks: &[&NewTask],
    reply: Result<Value>,
    answers: &mut [Result<Added>],
) -> Vec<usize> {
    let numbers = reply.and_then(|value| {
        Vec::<i64>::from_redis_value(value).map_err(|error| Error::Corrupt(format!("add.lua answered: {error}")))
    });
    let numbers = match numbers {
        Ok(numbers) if numbers.len() == members.len() + 1 => numbers,
        Ok(_) => return fail(members, &Error::Corrupt("add.lua answered too little".into()), answers),
        Err(error) => return fail(members, &error, answers),
    };
    // The registry may have been lost (a failover) or never written by whoever emptied the lane last; whoever finds a
    // lane empty writes it again, before the caller hears that the task is kept.
    if numbers[0] == 1
        && let Some(&(i, _)) = members.first()
        && let Err(error) = super::registry::assert(inner, &tasks[i].topic).await
    {
        tracing::warn!(%lane, %error, "Could not write the topic registry again");
        return fail(members, &error, answers);
    }
    let mut taken = Vec::new();
    for (&(i, id), &due) in members.iter().zip(&numbers[1..]) {
        if due < 0 {
            taken.push(i);
        } else {
            answers[i] = Ok(Added { id, due: UnixMillis(due) });
        }
    }
    taken
}

fn fail(members: &[(usize, TaskId)], error: &Error, answers: &mut [Result<Added>]) -> Vec<usize> {
    for &(i, _) in members {
        answers[i] = Err(error.clone());
    }
    Vec::new()
}

fn hint(inner: &Inner, tasks: &[&NewTask], answers: &[Result<Added>]) {
    let mut earliest: HashMap<Lane, UnixMillis> = HashMap::new();
    for (task, answer) in tasks.iter().zip(answers) {
        if let Ok(added) = answer
            && !task.destination.is_pull()
        {
            let due = earliest.entry(task.topic.lane_of(added.id)).or_insert(added.due);
            *due = added.due.min(*due);
        }
    }
    for (lane, due) in earliest {
        inner.hints.tell(Hint { lane, due });
    }
}
