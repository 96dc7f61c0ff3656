//! Reconciles the registry with the lanes of a topic.
//!
//! Normally each open lane remembers the number of lanes that the registry holds (`opening`). A
//! failover may lose the last write of one of them. If all lanes with tasks remember the same
//! number, the registry gets that number. If they differ, the registry's number is right, and each
//! misplaced task is moved to the lane that its id leads to. It is moved as between two stores:
//! leased in the old lane until the new lane has it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, Value, cmd};

use super::entry;
use super::opening::{self, Confirmed, LaneRefusal};
use crate::model::task::{Lane, Receipt, State, TaskId, Topic};
use crate::store::redis::answer::corrupt;
use crate::store::redis::migration::Adoption;
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::{
    Adopted, AdoptedStanding, Adoptee, Asker, Error, Reader, Result, Settle, Task, TopicEntry,
    Transition,
};

/// How long tasks are leased while they are moved.
const LEASE: Duration = Duration::from_secs(60);
/// The approximate number of tasks that are examined together.
const PAGE: usize = 100;

/// A lane that holds tasks, and the number of lanes that it remembers. A lane that remembers none
/// is a stray key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembers {
    lane: Lane,
    shards: u16,
}

impl Remembers {
    fn agrees(&self, shards: u16) -> bool {
        self.shards == shards && self.lane.shard < shards
    }
}

/// The lanes that hold tasks and remember a number, of these. One pipeline asks all of them.
async fn remembering(session: &Session, lanes: &[Lane]) -> Result<Vec<Remembers>> {
    let ask = |lane: &Lane| {
        let remembered = cmd("HGET").arg(session.keys.offsets(lane)).arg("#shards").take();
        [cmd("HLEN").arg(session.keys.bodies(lane)).take(), remembered]
    };
    let answers =
        session.working.run_repeatable(&lanes.iter().flat_map(ask).collect::<Vec<_>>()).await;
    let mut answers = answers.into_iter();
    let mut found = Vec::new();
    for lane in lanes {
        let mut next = || answers.next().unwrap_or_else(|| Err(corrupt("too little")));
        let (bodies, remembered) = (u64::from_redis_value(next()?).map_err(corrupt)?, next()?);
        if let (1.., Ok(Some(shards))) = (bodies, Option::<u16>::from_redis_value(remembered)) {
            found.push(Remembers { lane: lane.clone(), shards });
        }
    }
    Ok(found)
}

/// The topics of those lanes that hold tasks and remember another number of lanes than the
/// registry. The registry's number comes with each lane.
pub(crate) async fn contradicted(
    session: &Session,
    lanes: &HashMap<Lane, u16>,
) -> Result<BTreeSet<Topic>> {
    let asked: Vec<Lane> = lanes.keys().cloned().collect();
    let found = remembering(session, &asked).await?.into_iter();
    let found = found.filter(|found| !lanes.get(&found.lane).is_some_and(|n| found.agrees(*n)));
    Ok(found.map(|found| found.lane.topic).collect())
}

/// Reconciles one topic, unless some topic is being reconciled already. Returns its entry if its
/// number of lanes has changed.
pub(crate) async fn reconcile(session: &Session, topic: &Topic) -> Result<Option<TopicEntry>> {
    let Ok(_turn) = session.reconciling.try_lock() else { return Ok(None) };
    let read = cmd("HGET").arg(session.keys.topics()).arg(topic.as_str()).take();
    let answer = session.working.run_one(read).await?;
    let Some(text) = Option::<String>::from_redis_value(answer).map_err(corrupt)? else {
        return Ok(None);
    };
    let entry = entry::read_entry(topic.as_str(), &text)?;
    let lane = |shard| Lane { topic: topic.clone(), shard };
    let all: Vec<Lane> = (0..TopicEntry::MAX_SHARDS).map(lane).collect();
    let lanes = remembering(session, &all).await?;
    let Some(first) = lanes.first().map(|lane| lane.shards) else { return Ok(None) };
    if first != entry.shards && lanes.iter().all(|lane| lane.agrees(first)) {
        let fields = serde_json::from_str(&text).unwrap_or_default();
        let right = TopicEntry { topic: topic.clone(), shards: first };
        if entry::rewrite(session, &right, text.as_bytes(), fields).await? {
            tracing::warn!(
                %topic,
                "Topic {topic} is registered with {} lanes, but its tasks are in {first}: \
                 the registry has {first} again",
                entry.shards
            );
            return Ok(Some(right));
        }
        return Ok(None);
    }
    let misplaced = lanes.into_iter().filter(|lane| !lane.agrees(entry.shards));
    let misplaced: Vec<Lane> = misplaced.map(|Remembers { lane, .. }| lane).collect();
    // All lanes are corrected first, because they take each other's tasks. From then on, no
    // misplaced tasks can be added.
    for lane in &misplaced {
        let remembers =
            if lane.shard < entry.shards { entry.shards.to_string() } else { String::new() };
        let stamp = session.lane_call(&script::STAMP, lane).arg(remembers).take();
        session.working.run_one(stamp).await?;
    }
    for lane in misplaced {
        let moved = empty(session, &entry, &lane).await?;
        tracing::warn!(
            %lane,
            moved,
            "Lane {lane} did not follow its topic's number of lanes: {moved} tasks were moved"
        );
    }
    Ok(None)
}

/// As [`opening::confirm`], and reconciles the contradicted topics.
pub(crate) async fn confirm<'a>(
    session: &Session,
    refused: impl Iterator<Item = (&'a TopicEntry, &'a LaneRefusal)>,
) -> HashMap<TopicEntry, Result<()>> {
    let Confirmed { mut entries, contradicted } = opening::confirm(session, refused).await;
    entries.extend(failures(session, contradicted).await.map(|(entry, error)| (entry, Err(error))));
    entries
}

impl Session {
    /// Adopts tasks, and reconciles the topics that lanes contradicted meanwhile.
    pub(crate) async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        let Adoption { mut answers, contradicted } = Adoption::of(self, &tasks).await;
        for (entry, error) in failures(self, contradicted).await {
            let refused = tasks.iter().zip(&mut answers).filter(|(task, _)| task.topic == entry);
            for (_, answer) in
                refused.filter(|(_, answer)| matches!(answer, Err(Error::StaleEntry)))
            {
                *answer = Err(error.clone());
            }
        }
        answers
    }
}

/// Reconciles topics. Returns those for which that failed.
async fn failures(
    session: &Session,
    contradicted: Vec<TopicEntry>,
) -> impl Iterator<Item = (TopicEntry, Error)> {
    let mut failed = Vec::new();
    for entry in contradicted {
        if let Err(error) = reconcile(session, &entry.topic).await {
            opening::warn(&entry, &error);
            failed.push((entry, error));
        }
    }
    failed.into_iter()
}

/// Moves the misplaced tasks of a lane. Returns how many were moved.
async fn empty(session: &Session, entry: &TopicEntry, lane: &Lane) -> Result<usize> {
    let (mut cursor, mut moved) = (0_u64, 0);
    loop {
        let scan =
            cmd("HSCAN").arg(session.keys.bodies(lane)).arg(cursor).arg("COUNT").arg(PAGE).take();
        let (next, fields): (u64, Vec<Value>) =
            FromRedisValue::from_redis_value(session.working.run_one(scan).await?)
                .map_err(corrupt)?;
        let names =
            fields.into_iter().step_by(2).filter_map(|name| u64::from_redis_value(name).ok());
        let ids: Vec<TaskId> = names.map(TaskId).filter(|id| entry.lane_of(*id) != *lane).collect();
        moved += move_away(session, entry, lane, ids).await?;
        cursor = next;
        if cursor == 0 {
            return Ok(moved);
        }
    }
}

/// Moves tasks out of a lane. A leased task stays until the next search.
async fn move_away(
    session: &Session,
    entry: &TopicEntry,
    lane: &Lane,
    ids: Vec<TaskId>,
) -> Result<usize> {
    let receipt = Receipt::random();
    session.lend(lane, ids.clone(), &receipt, LEASE).await?;
    let mut tasks = Vec::new();
    for id in ids {
        // A task that cannot be read stays where it is.
        if let Some(task) = session.get(Reader::Worker, lane, id).await.ok().flatten() {
            tasks.extend(adoptee(entry, task));
        }
    }
    let adopted = Adoption::of(session, &tasks).await.answers;
    let is_settled =
        |adopted: &Result<Adopted>| !matches!(adopted, Err(_) | Ok(Adopted::Own | Adopted::Taken));
    let kept = tasks.into_iter().zip(adopted).filter(|(_, adopted)| is_settled(adopted));
    let mut moved = 0;
    for (task, _) in kept {
        let id = task.id;
        let state = match task.standing {
            AdoptedStanding::Ended { state, .. } => state,
            AdoptedStanding::Waiting { .. } => {
                let (lane, receipt) = (lane.clone(), receipt.clone());
                let transition = Transition::Moved;
                let settle = Settle { lane, id, receipt, transition };
                session.settle(Asker::Caller, vec![settle]).await.remove(0)?;
                State::Delivered
            }
        };
        moved += session.discard(lane, state, vec![id], None).await?;
    }
    Ok(moved)
}

/// A task as it is to be stored in its own lane. `None` if another holder has it.
fn adoptee(entry: &TopicEntry, task: Task) -> Option<Adoptee> {
    let standing = match (task.state, task.finished) {
        (State::Leased, _) => AdoptedStanding::Waiting { due: task.lease?.returns_to()? },
        (state, Some(finished)) if state.is_final() => AdoptedStanding::Ended { state, finished },
        _ => return None,
    };
    let Task {
        id,
        destination,
        due,
        created,
        attempts,
        last_outcome: outcome,
        options,
        content,
        key_set,
        ..
    } = task;
    let topic = entry.clone();
    Some(Adoptee {
        topic,
        id,
        destination,
        created,
        due,
        standing,
        attempts,
        outcome,
        options,
        key_set,
        // A refused task continues where it is.
        lent: true,
        content,
    })
}
