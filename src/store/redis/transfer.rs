//! A task's way to another store, and from one: lend, adopt.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};

use super::Inner;
use super::answer::{corrupt, text};
use super::batch::chunks;
use super::ids::script_call;
use super::record::write_options;
use super::settle::shorten;
use super::{namesakes, registry, script, survey};
use crate::clock::UnixMillis;
use crate::store::{Adopted, Adoptee, Hint, MAX_LEASE, Result, Standing, TopicEntry};
use crate::task::{Lane, Receipt, State, TaskId};

/// The most ids of one script call.
const MOST: usize = 256;

pub(super) async fn lend(
    inner: &Inner,
    lane: &Lane,
    ids: &[TaskId],
    receipt: &Receipt,
    lease: Duration,
) -> Result<Vec<bool>> {
    let mut lent = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(MOST) {
        let mut call = script_call(&script::LEND, &inner.keys.of_script(lane), &inner.clock);
        call.arg(receipt.as_str()).arg(lease.min(MAX_LEASE).as_millis() as u64);
        for id in chunk {
            call.arg(id.0);
        }
        let answer = Vec::<bool>::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
        if answer.len() != chunk.len() {
            return Err(corrupt("too few tasks"));
        }
        lent.extend(answer);
    }
    Ok(lent)
}

/// The counter is raised before anything is kept: an id that was adopted is never drawn, nor that of a call for a dead.
pub(super) async fn adopt(inner: &Inner, tasks: &[Adoptee]) -> Vec<Result<Adopted>> {
    let highest = tasks.iter().map(|task| task.highest_id().0).max().unwrap_or(0);
    if let Err(error) = survey::raise_counter(inner, highest).await {
        return vec![Err(error); tasks.len()];
    }
    inner.ids.drop_blocks().await;
    // An id that comes twice in one batch, for two topics, is the first one's.
    let mut first: HashMap<TaskId, &TopicEntry> = HashMap::new();
    let is_first = |&place: &usize| *first.entry(tasks[place].id).or_insert(&tasks[place].topic) == &tasks[place].topic;
    let (places, others): (Vec<usize>, Vec<usize>) = (0..tasks.len()).partition(is_first);
    let mut answers = vec![Ok(Adopted::Taken); tasks.len()];
    keep(inner, tasks, places, &mut answers).await;
    if !others.is_empty() {
        keep(inner, tasks, others, &mut answers).await;
    }
    answers
}

/// Keeps the tasks at these places, and writes their answers there.
async fn keep(inner: &Inner, tasks: &[Adoptee], places: Vec<usize>, answers: &mut [Result<Adopted>]) {
    let taken = match namesakes::taken(inner, tasks, &places).await {
        Ok(taken) => taken,
        Err(error) => return places.into_iter().for_each(|place| answers[place] = Err(error.clone())),
    };
    let mut calls: Vec<Cmd> = Vec::new();
    let mut called = Vec::new();
    for (lane, places) in by_lane(tasks, places) {
        for chunk in chunks(places, |&place| tasks[place].content.len()) {
            calls.push(call(inner, &lane, &chunk, tasks, &taken));
            called.push((lane.clone(), chunk));
        }
    }
    for ((lane, places), reply) in called.into_iter().zip(inner.adding.run_repeatable(&calls).await) {
        let adopted = match reply.and_then(|reply| read(reply, places.len())) {
            Ok((was_empty, adopted)) => match registered(inner, was_empty, &tasks[places[0]].topic).await {
                Ok(()) => adopted.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); places.len()],
            },
            Err(error) => vec![Err(error); places.len()],
        };
        hint(inner, &lane, tasks, &places, &adopted);
        places.into_iter().zip(adopted).for_each(|(place, adopted)| answers[place] = adopted);
    }
}

/// Where the tasks of each lane stand among the others.
fn by_lane(tasks: &[Adoptee], places: Vec<usize>) -> HashMap<Lane, Vec<usize>> {
    let mut lanes: HashMap<Lane, Vec<usize>> = HashMap::new();
    for place in places {
        let task = &tasks[place];
        lanes.entry(task.topic.lane_of(task.id)).or_default().push(place);
    }
    lanes
}

fn call(inner: &Inner, lane: &Lane, places: &[usize], tasks: &[Adoptee], taken: &HashSet<TaskId>) -> Cmd {
    let mut call = script_call(&script::ADOPT, &inner.keys.of_script(lane), &inner.clock);
    call.arg(tasks[places[0]].topic.shards);
    for &place in places {
        let task = &tasks[place];
        let (state, moment) = match task.standing {
            Standing::Waiting { due } => (State::Scheduled, due),
            Standing::Ended { state, finished } => (state, finished),
        };
        // Of another lane, nobody would look for it here.
        let key = task.options.key.as_deref().filter(|key| Lane::shard_of_key(key, task.topic.shards) == lane.shard);
        let expires = task.options.expires_after.map(|after| after.0.as_millis().to_string());
        call.arg(task.id.0)
            .arg(task.created.0)
            .arg(task.due.0)
            .arg(task.destination.as_str())
            .arg(&*write_options(&task.options))
            .arg(&task.content)
            .arg(state.as_str())
            .arg(moment.0)
            .arg(task.attempts)
            .arg(shorten(&task.outcome))
            .arg(key.unwrap_or_default())
            .arg(task.key_set.map(|set| set.0.to_string()).unwrap_or_default())
            .arg(expires.unwrap_or_default())
            .arg(if taken.contains(&task.id) { "1" } else { "" });
    }
    call
}

fn read(reply: Value, count: usize) -> Result<(bool, Vec<Adopted>)> {
    let mut fields = Vec::<Value>::from_redis_value(reply).map_err(corrupt)?.into_iter();
    let was_empty = fields.next() == Some(Value::Int(1));
    let adopted = fields
        .map(|word| match text(word)?.as_str() {
            "new" => Ok(Adopted::New),
            "known" => Ok(Adopted::Known),
            "own" => Ok(Adopted::Own),
            "taken" => Ok(Adopted::Taken),
            "superseded" => Ok(Adopted::Superseded),
            "ended" => Ok(Adopted::Ended),
            "cancelling" => Ok(Adopted::Cancelling),
            _ => Err(corrupt("an adoption that is none")),
        })
        .collect::<Result<Vec<_>>>()?;
    if adopted.len() == count { Ok((was_empty, adopted)) } else { Err(corrupt("too few tasks")) }
}

/// Whoever finds a lane empty writes its topic's entry again, before anybody hears that a task is kept.
async fn registered(inner: &Inner, was_empty: bool, entry: &TopicEntry) -> Result<()> {
    if was_empty {
        registry::assert(inner, entry).await?;
    }
    Ok(())
}

fn hint(inner: &Inner, lane: &Lane, tasks: &[Adoptee], places: &[usize], adopted: &[Result<Adopted>]) {
    let mut earliest: HashMap<bool, UnixMillis> = HashMap::new();
    for (&place, adopted) in places.iter().zip(adopted) {
        let task = &tasks[place];
        if let (Ok(Adopted::New), Standing::Waiting { due }) = (adopted, task.standing) {
            let first = earliest.entry(task.destination.is_pull()).or_insert(due);
            *first = due.min(*first);
        }
    }
    for (is_pull, due) in earliest {
        inner.hints.tell(Hint { lane: lane.clone(), due, is_pull });
    }
}
