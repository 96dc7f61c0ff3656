//! What is only read: `get`, `stats`, `next_due`, `next_pull`, `topics`.

use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::ledger::lane_number;
use super::record::{due_after_lease, ran_out};
use super::rows::{read_name, read_options, read_state_or, read_topic, state_number};
use crate::clock::UnixMillis;
use crate::store::{Counts, FURTHEST_DEADLINE, NextDue, Task, TopicEntry};
use crate::task::{Lane, State, TaskId, Topic};

pub(super) fn get(db: &Connection, lane: &Lane, id: TaskId, now: UnixMillis) -> rusqlite::Result<Option<Task>> {
    let mut select = db.prepare_cached(
        "SELECT d.name, t.due, t.created, t.options, t.content, p.leased, p.due, h.state, h.finished,
                coalesce(p.attempts, h.attempts, 0), coalesce(p.outcome, h.outcome, '')
         FROM task t
         JOIN lane l ON l.id = t.lane
         JOIN destination d ON d.id = t.destination
         LEFT JOIN progress p ON p.id = t.id
         LEFT JOIN history h ON h.id = t.id
         WHERE t.id = ? AND l.topic = ? AND l.shard = ?",
    )?;
    select
        .query_row((id, lane.topic.as_str(), lane.shard), |row| {
            let stored_due: UnixMillis = row.get(1)?;
            let (state, due) = match (row.get(5)?, row.get(6)?) {
                (Some(true), Some(deadline)) if ran_out(deadline, now) => {
                    (State::Scheduled, due_after_lease(deadline, now))
                }
                (Some(true), _) => (State::Leased, stored_due),
                (_, Some(due)) => (State::Scheduled, due),
                // Never claimed, or ended.
                (_, None) => (read_state_or(row, 7, State::Scheduled)?, stored_due),
            };
            Ok(Task {
                id,
                state,
                destination: read_name(row, 0)?,
                due,
                created: row.get(2)?,
                finished: row.get(8)?,
                attempts: row.get(9)?,
                last_outcome: row.get(10)?,
                options: read_options(row, 3, id)?,
                content: row.get(4)?,
            })
        })
        .optional()
}

pub(super) fn stats(db: &Connection, lane: &Lane) -> rusqlite::Result<Counts> {
    let Some(lane) = lane_number(db, lane)? else { return Ok(Counts::default()) };
    let count = |select: &str, params: &[i64]| {
        let counted = db.prepare_cached(select)?.query_row(params_from_iter(params), |row| row.get::<_, i64>(0))?;
        Ok::<_, rusqlite::Error>(counted.unsigned_abs())
    };
    let ended =
        |state: State| count("SELECT count(*) FROM history WHERE lane = ? AND state = ?", &[lane, state_number(state)]);
    Ok(Counts {
        scheduled: count(
            "SELECT count(*) FROM destination d CROSS JOIN schedule s ON s.destination = d.id WHERE d.lane = ?",
            &[lane],
        )?,
        leased: count("SELECT count(*) FROM progress WHERE lane = ? AND leased = 1", &[lane])?,
        delivered: ended(State::Delivered)?,
        dead: ended(State::Dead)?,
        cancelled: ended(State::Cancelled)?,
        expired: ended(State::Expired)?,
        earliest: None,
    })
}

/// Of the called destinations, or of those who pull.
pub(super) fn next_due(db: &Connection, lanes: &[Lane], called: bool, now: UnixMillis) -> rusqlite::Result<NextDue> {
    let mut next = NextDue { now, lanes: Vec::with_capacity(lanes.len()) };
    for lane in lanes {
        next.lanes.push(match lane_number(db, lane)? {
            Some(number) => {
                let due = earliest_due(db, number, called, UnixMillis(i64::MIN))?;
                due.into_iter().chain(earliest_deadline(db, number, now)?).min()
            }
            None => None,
        });
    }
    Ok(next)
}

/// The earliest due moment after `after` at which one of the lane's called destinations, or its consumers, come to have work.
pub(super) fn earliest_due(
    db: &Connection,
    lane: i64,
    called: bool,
    after: UnixMillis,
) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached("SELECT min(earliest) FROM destination WHERE lane = ? AND called = ? AND earliest > ?")?
        .query_row((lane, called, after), |row| row.get(0))
}

/// The earliest deadline of the lane's leases; now, if one is so far away that it counts as run out.
pub(super) fn earliest_deadline(db: &Connection, lane: i64, now: UnixMillis) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached(
        "SELECT (SELECT min(due) FROM progress WHERE lane = ?1 AND leased = 1),
                (SELECT max(due) FROM progress WHERE lane = ?1 AND leased = 1)",
    )?
    .query_row([lane], |row| {
        let (first, last): (Option<UnixMillis>, Option<UnixMillis>) = (row.get(0)?, row.get(1)?);
        let is_out_of_reach = last.is_some_and(|deadline| deadline > now + FURTHEST_DEADLINE);
        Ok(first.map(|deadline| if is_out_of_reach { deadline.min(now) } else { deadline }))
    })
}

pub(super) fn topic(db: &Connection, topic: &Topic) -> rusqlite::Result<Option<TopicEntry>> {
    db.prepare_cached("SELECT shards FROM topic WHERE name = ?")?
        .query_row([topic.as_str()], |row| Ok(TopicEntry { topic: topic.clone(), shards: row.get(0)? }))
        .optional()
}

pub(super) fn topics(db: &Connection) -> rusqlite::Result<Vec<TopicEntry>> {
    db.prepare_cached("SELECT name, shards FROM topic ORDER BY name")?
        .query_map([], read_topic)?
        .filter_map(Result::transpose)
        .collect()
}
