//! Whether another topic has the id of a task that is to be adopted.
//!
//! A lane knows only its own ids, so the lanes of all topics are asked, but only about ids that may
//! have been drawn twice. A store draws no id twice. So two tasks with one id come from two stores,
//! and the id lies where both have drawn: this store since its first draw, each other store between
//! the ids of its tasks that were moved here. A store that is moved into a new one has drawn nearly
//! all of its ids before that, so no lane is asked about those (docs/adr/0016-store-ids.md).
//!
//! Two concurrent imports from two stores may both find an id free, and use it in two topics. That
//! does no harm: lanes are separate, and the tasks have different `webhook-id`s.

use std::collections::{BTreeMap, HashMap, HashSet};

use deadpool_redis::redis::{Cmd, FromRedisValue};

use crate::model::task::{Lane, StoreId, TaskId};
use crate::store::redis::answer::corrupt;
use crate::store::redis::registry::entry;
use crate::store::redis::session::Session;
use crate::store::redis::{identity, script};
use crate::store::{Adoptee, Result};

/// The most calls of one pipeline, and the most ids of one call.
const CALLS: usize = 256;
const IDS: usize = 1_000;

/// The stores that tasks came from, and the ranges of their ids.
struct Spans {
    since: u64,
    imported: Vec<(Option<StoreId>, u64, u64)>,
}

/// The ids of the tasks at `places` that another topic has and their own topic does not have.
pub(crate) async fn taken(
    session: &Session,
    tasks: &[Adoptee],
    places: &[usize],
) -> Result<HashSet<TaskId>> {
    let spans = note(session, places.iter().map(|&place| &tasks[place])).await?;
    let doubtful =
        places.iter().map(|&place| &tasks[place]).filter(|task| spans.may_hold_another(task));
    let own: HashMap<TaskId, Lane> =
        doubtful.map(|task| (task.id, task.topic.lane_of(task.id))).collect();
    if own.is_empty() {
        return Ok(HashSet::new());
    }
    let mut asked: BTreeMap<Lane, Vec<TaskId>> = BTreeMap::new();
    for (id, lane) in &own {
        asked.entry(lane.clone()).or_default().push(*id);
    }
    for entry in entry::entries(session).await? {
        for (id, lane) in &own {
            if lane.topic != entry.topic {
                asked.entry(entry.lane_of(*id)).or_default().push(*id);
            }
        }
    }
    let (mut here, mut elsewhere) = (HashSet::new(), HashSet::new());
    let asked: Vec<(&Lane, &[TaskId])> =
        asked.iter().flat_map(|(lane, ids)| ids.chunks(IDS).map(move |ids| (lane, ids))).collect();
    for asked in asked.chunks(CALLS) {
        let calls: Vec<Cmd> = asked.iter().map(|(lane, ids)| present(session, lane, ids)).collect();
        for ((lane, _), answer) in asked.iter().zip(session.working.run_repeatable(&calls).await) {
            for id in
                Vec::<u64>::from_redis_value(answer?).map_err(corrupt)?.into_iter().map(TaskId)
            {
                let known = if own.get(&id) == Some(lane) { &mut here } else { &mut elsewhere };
                known.insert(id);
            }
        }
    }
    Ok(elsewhere.difference(&here).copied().collect())
}

fn present(session: &Session, lane: &Lane, ids: &[TaskId]) -> Cmd {
    let mut call = session.call(&script::PRESENT, &[session.keys.bodies(lane)]);
    for id in ids {
        call.arg(id.0);
    }
    call
}

/// Notes where the tasks come from. Returns what was known before.
async fn note<'a>(session: &Session, tasks: impl Iterator<Item = &'a Adoptee>) -> Result<Spans> {
    let mut spans: BTreeMap<Option<StoreId>, (u64, u64)> = BTreeMap::new();
    for task in tasks {
        let (low, high) = spans.entry(task.options.origin).or_insert((task.id.0, task.id.0));
        (*low, *high) = (task.id.0.min(*low), task.id.0.max(*high));
    }
    let mut call = session.call(&script::IMPORTED, &[session.keys.store()]);
    for (origin, (low, high)) in spans {
        call.arg(origin.map(|origin| origin.to_string()).unwrap_or_default()).arg(low).arg(high);
    }
    let before = HashMap::<String, String>::from_redis_value(session.working.run_one(call).await?)
        .map_err(corrupt)?;
    Ok(Spans::read(&before))
}

impl Spans {
    /// Reads the fields. If one cannot be read, the widest range is assumed.
    fn read(fields: &HashMap<String, String>) -> Self {
        let imported = fields.iter().filter_map(|(field, span)| {
            let origin = field.strip_prefix("from:")?.parse().ok();
            let span = span
                .split_once(' ')
                .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            let (low, high) = span.unwrap_or((0, u64::MAX));
            Some((origin, low, high))
        });
        let since = fields.get(identity::SINCE).and_then(|since| since.parse().ok()).unwrap_or(0);
        Self { since, imported: imported.collect() }
    }

    fn may_hold_another(&self, task: &Adoptee) -> bool {
        let is_anothers = |&(origin, low, high): &(Option<StoreId>, u64, u64)| {
            // Tasks without a known origin may come from several stores.
            (origin.is_none() || origin != task.options.origin) && (low..=high).contains(&task.id.0)
        };
        task.id.0 >= self.since || self.imported.iter().any(is_anothers)
    }
}
