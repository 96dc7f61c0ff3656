//! Migration of tasks from one store to another: lend and adopt.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};

use super::answer::{corrupt, text};
use super::arguments::chunks;
use super::ids::counter;
use super::record::write_options;
use super::registry::opening::{self, LaneRefusal};
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt, State, TaskId};
use crate::store::{
    Adopted, AdoptedStanding, Adoptee, Error, Hint, MAX_LEASE, Result, TopicEntry, kept_outcome,
};

mod taken_ids;

/// The most ids of one script call.
const MOST: usize = 256;

impl Session {
    pub(crate) async fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Vec<bool>> {
        let mut lent = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(MOST) {
            let mut call = self.lane_call(&script::LEND, lane);
            call.arg(receipt.as_str()).arg(lease.min(MAX_LEASE).as_millis() as u64);
            for id in chunk {
                call.arg(id.0);
            }
            let answer = Vec::<bool>::from_redis_value(self.confirming.run_one(call).await?)
                .map_err(corrupt)?;
            if answer.len() != chunk.len() {
                return Err(corrupt("too few tasks"));
            }
            lent.extend(answer);
        }
        Ok(lent)
    }
}

/// The result of an adoption.
pub(crate) struct Adoption {
    /// One answer per task, in order.
    pub(crate) answers: Vec<Result<Adopted>>,
    /// See [`opening::Confirmed::contradicted`].
    pub(crate) contradicted: Vec<TopicEntry>,
}

impl Adoption {
    /// Adopts tasks. The counter is raised first, so the ids of adopted tasks and of their
    /// dead-letter calls are never drawn.
    pub(crate) async fn of(session: &Session, tasks: &[Adoptee]) -> Self {
        // The answer of tasks that are refused in every attempt.
        let answers = vec![Err(Error::StaleEntry); tasks.len()];
        let mut adoption = Self { answers, contradicted: Vec::new() };
        let highest = tasks.iter().map(|task| task.highest_id().0).max().unwrap_or(0);
        if let Err(error) = counter::raise(session, highest).await {
            adoption.answers.fill(Err(error));
            return adoption;
        }
        session.ids.drop_all();
        // If two topics of one batch have the same id, the first one gets it.
        let mut first: HashMap<TaskId, &TopicEntry> = HashMap::new();
        let is_first = |&place: &usize| {
            *first.entry(tasks[place].id).or_insert(&tasks[place].topic) == &tasks[place].topic
        };
        let (places, others): (Vec<usize>, Vec<usize>) = (0..tasks.len()).partition(is_first);
        keep(session, tasks, places, &mut adoption).await;
        if !others.is_empty() {
            keep(session, tasks, others, &mut adoption).await;
        }
        adoption
    }
}

/// Adopts the tasks at these indexes, and writes their answers.
async fn keep(
    session: &Session,
    tasks: &[Adoptee],
    places: Vec<usize>,
    Adoption { answers, contradicted }: &mut Adoption,
) {
    let taken = match taken_ids::taken(session, tasks, &places).await {
        Ok(taken) => taken,
        Err(error) => {
            return places.into_iter().for_each(|place| answers[place] = Err(error.clone()));
        }
    };
    let mut calls = Vec::new();
    for (lane, places) in by_lane(tasks, places) {
        let chunks = chunks(places, |&place| tasks[place].content.len()).into_iter();
        calls.extend(chunks.map(|places| AdoptCall { lane: lane.clone(), places, token: None }));
    }
    for _ in 0..=opening::ATTEMPTS {
        let refused = send(session, tasks, &taken, std::mem::take(&mut calls), answers).await;
        if refused.is_empty() {
            break;
        }
        let entries = refused.iter().map(|(call, refusal)| (&tasks[call.places[0]].topic, refusal));
        let mut confirmed = opening::confirm(session, entries).await;
        contradicted.append(&mut confirmed.contradicted);
        for (call, refusal) in refused {
            match (&confirmed.entries[&tasks[call.places[0]].topic], refusal) {
                (Ok(()), LaneRefusal::Closed(token)) => {
                    calls.push(AdoptCall { token: Some(token), ..call })
                }
                (Ok(()), LaneRefusal::Stale) => {}
                (Err(error), _) => {
                    call.places.iter().for_each(|&place| answers[place] = Err(error.clone()))
                }
            }
        }
    }
}

/// Tasks of one lane that one call adopts.
struct AdoptCall {
    lane: Lane,
    places: Vec<usize>,
    /// The token that opens the lane.
    token: Option<String>,
}

/// Sends calls, and writes the answers of their tasks. Returns the calls that their lanes refused.
async fn send(
    session: &Session,
    tasks: &[Adoptee],
    taken: &HashSet<TaskId>,
    calls: Vec<AdoptCall>,
    answers: &mut [Result<Adopted>],
) -> Vec<(AdoptCall, LaneRefusal)> {
    let commands: Vec<Cmd> =
        calls.iter().map(|call| command(session, call, tasks, taken)).collect();
    let mut refused = Vec::new();
    for (call, reply) in calls.into_iter().zip(session.beside_adds.run_repeatable(&commands).await)
    {
        let adopted = match reply.and_then(|reply| read(reply, call.places.len())) {
            Ok(Ok(adopted)) => adopted.into_iter().map(Ok).collect(),
            Ok(Err(refusal)) => {
                refused.push((call, refusal));
                continue;
            }
            Err(error) => vec![Err(error); call.places.len()],
        };
        hint(session, &call.lane, tasks, &call.places, &adopted);
        call.places.into_iter().zip(adopted).for_each(|(place, adopted)| answers[place] = adopted);
    }
    refused
}

/// The indexes of the tasks of each lane.
fn by_lane(tasks: &[Adoptee], places: Vec<usize>) -> HashMap<Lane, Vec<usize>> {
    let mut lanes: HashMap<Lane, Vec<usize>> = HashMap::new();
    for place in places {
        let task = &tasks[place];
        lanes.entry(task.topic.lane_of(task.id)).or_default().push(place);
    }
    lanes
}

fn command(
    session: &Session,
    AdoptCall { lane, places, token }: &AdoptCall,
    tasks: &[Adoptee],
    taken: &HashSet<TaskId>,
) -> Cmd {
    let mut call = session.lane_call(&script::ADOPT, lane);
    call.arg(opening::argument(tasks[places[0]].topic.shards, token.as_deref()));
    for &place in places {
        let task = &tasks[place];
        let (state, moment) = match task.standing {
            AdoptedStanding::Waiting { due } => (State::Scheduled, due),
            AdoptedStanding::Ended { state, finished } => (state, finished),
        };
        // A key of another lane would not be found here.
        let key = task
            .options
            .key
            .as_deref()
            .filter(|key| Lane::shard_of_key(key, task.topic.shards) == lane.shard);
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
            .arg(kept_outcome(&task.outcome))
            .arg(key.unwrap_or_default())
            .arg(task.key_set.map(|set| set.0.to_string()).unwrap_or_default())
            .arg(expires.unwrap_or_default())
            .arg(if taken.contains(&task.id) { "1" } else { "" })
            .arg(if task.lent { "1" } else { "" });
    }
    call
}

fn read(reply: Value, count: usize) -> Result<std::result::Result<Vec<Adopted>, LaneRefusal>> {
    let fields = match opening::read(reply)? {
        Ok(fields) => fields,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let adopted = fields
        .skip(1)
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
    if adopted.len() == count { Ok(Ok(adopted)) } else { Err(corrupt("too few tasks")) }
}

fn hint(
    session: &Session,
    lane: &Lane,
    tasks: &[Adoptee],
    places: &[usize],
    adopted: &[Result<Adopted>],
) {
    let mut earliest: HashMap<bool, UnixMillis> = HashMap::new();
    for (&place, adopted) in places.iter().zip(adopted) {
        let task = &tasks[place];
        if let (Ok(Adopted::New), AdoptedStanding::Waiting { due }) = (adopted, task.standing) {
            let first = earliest.entry(task.destination.is_pull()).or_insert(due);
            *first = due.min(*first);
        }
    }
    for (is_pull, due) in earliest {
        session.hints.tell(Hint { lane: lane.clone(), due, is_pull });
    }
}
