//! `find`: the task that an id, a key or an idempotency key names.

use rusqlite::{Connection, OptionalExtension};

use super::Embedded;
use super::sql::idempotency::answer;
use super::sql::task::home;
use super::sql::task_key::owner;
use super::write_tx::lane_number;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, TaskId};
use crate::store::{Result, TaskName};

impl Embedded {
    pub(crate) async fn find(
        &self,
        name: &TaskName,
        lanes: Vec<Lane>,
    ) -> Result<Vec<Option<TaskId>>> {
        let (name, clock) = (name.clone(), self.clock.clone());
        // A change of a task by its key looks into one lane, and a viewer into those of all topics.
        let reader = if lanes.len() == 1 { &self.polls } else { &self.reads };
        reader.run(move |db| find_from(db, &name, &lanes, clock.now())).await
    }
}

/// One lookup for an id, whatever the number of lanes, and two lookups per lane for a key.
pub(super) fn find_from(
    db: &Connection,
    name: &TaskName,
    lanes: &[Lane],
    now: UnixMillis,
) -> rusqlite::Result<Vec<Option<TaskId>>> {
    if let TaskName::Id(id) = name {
        let home: Option<(String, u16)> = db
            .prepare_cached(home::SQL)?
            .query_row([id], |row| Ok((row.get(home::topic)?, row.get(home::shard)?)))
            .optional()?;
        let is_home = |lane: &Lane| {
            home.as_ref()
                .is_some_and(|(topic, shard)| lane.topic.as_str() == topic && lane.shard == *shard)
        };
        return Ok(lanes.iter().map(|lane| is_home(lane).then_some(*id)).collect());
    }
    let in_lane = |lane: &Lane| match lane_number(db, lane)? {
        Some(number) => find_in(db, number, name, now),
        None => Ok(None),
    };
    lanes.iter().map(in_lane).collect()
}

/// The task that a key names in a lane; an id names its own task.
pub(super) fn find_in(
    db: &Connection,
    lane: i64,
    name: &TaskName,
    now: UnixMillis,
) -> rusqlite::Result<Option<TaskId>> {
    let text = name.text();
    let found = match name {
        TaskName::Id(id) => return Ok(Some(*id)),
        TaskName::Key(_) => {
            db.prepare_cached(owner::SQL)?.query_row((lane, &text), |row| row.get(owner::task))
        }
        TaskName::Idempotency { .. } => db
            .prepare_cached(answer::SQL)?
            .query_row((lane, &text, now), |row| row.get(answer::task)),
    };
    found.optional()
}
