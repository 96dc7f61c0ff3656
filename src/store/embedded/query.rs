//! What is only read: `get`, `summaries`, `next_due`, `next_pull`.

use rusqlite::{Connection, OptionalExtension, Row};

use super::ledger::lane_number;
use super::record::{due_after_lease, ran_out};
use super::rows::{is_unreadable, read_lease, read_name, read_options, read_state_or};
use crate::clock::UnixMillis;
use crate::store::{FURTHEST_DEADLINE, NextDue, Summary, Task};
use crate::task::{Lane, Options, State, TaskId};

/// The columns that [`read_head`] expects, and where they come from. A body is read only if it is asked for.
macro_rules! head_columns {
    ($($body:literal)?) => {
        concat!(
            "d.name, t.due, t.created, t.options, p.leased, p.due, h.state, h.finished,
             coalesce(p.attempts, h.attempts, 0), coalesce(p.outcome, h.outcome, ''), p.lease, p.returns",
            $($body,)?
            " FROM task t
             JOIN destination d ON d.id = t.destination
             LEFT JOIN progress p ON p.id = t.id
             LEFT JOIN history h ON h.id = t.id"
        )
    };
}

fn read_head(row: &Row<'_>, id: TaskId, now: UnixMillis) -> rusqlite::Result<(Summary, Options)> {
    let stored_due: UnixMillis = row.get(1)?;
    let (state, due) = match (row.get(4)?, row.get(5)?) {
        (Some(true), Some(deadline)) if ran_out(deadline, now) => (State::Scheduled, due_after_lease(deadline, now)),
        (Some(true), _) => (State::Leased, stored_due),
        (_, Some(due)) => (State::Scheduled, due),
        // Never claimed, or ended.
        (_, None) => (read_state_or(row, 6, State::Scheduled)?, stored_due),
    };
    let options = read_options(row, 3, id)?;
    let summary = Summary {
        id,
        state,
        destination: read_name(row, 0)?,
        due,
        created: row.get(2)?,
        finished: row.get(7)?,
        attempts: row.get(8)?,
        last_outcome: row.get(9)?,
        lease: if state == State::Leased { read_lease(row, 10)? } else { None },
        key: options.key.clone(),
    };
    Ok((summary, options))
}

pub(super) fn get(db: &Connection, lane: &Lane, id: TaskId, now: UnixMillis) -> rusqlite::Result<Option<Task>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(None) };
    db.prepare_cached(concat!(
        "SELECT ",
        head_columns!(", t.content, coalesce(p.cancelling, 0)"),
        " WHERE t.id = ? AND t.lane = ?"
    ))?
    .query_row((id, number), |row| {
        let (head, options) = read_head(row, id, now)?;
        let set = "SELECT since FROM task_key WHERE lane = ? AND key = ? AND task = ?";
        let key_set = match &options.key {
            Some(key) => db.prepare_cached(set)?.query_row((number, key, id), |row| row.get(0)).optional()?,
            None => None,
        };
        Ok(Task {
            id,
            state: head.state,
            lease: head.lease,
            destination: head.destination,
            due: head.due,
            created: head.created,
            finished: head.finished,
            attempts: head.attempts,
            last_outcome: head.last_outcome,
            cancelling: row.get(13)?,
            key_set,
            options,
            content: row.get(12)?,
        })
    })
    .optional()
}

pub(super) fn summaries(
    db: &Connection,
    lane: &Lane,
    ids: &[TaskId],
    now: UnixMillis,
) -> rusqlite::Result<Vec<Option<Summary>>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(vec![None; ids.len()]) };
    let mut select = db.prepare_cached(concat!("SELECT ", head_columns!(), " WHERE t.id = ? AND t.lane = ?"))?;
    let mut summaries = Vec::with_capacity(ids.len());
    for id in ids {
        let found = select.query_row((id, number), |row| read_head(row, *id, now)).optional();
        summaries.push(match found {
            Ok(found) => found.map(|(summary, _)| summary),
            // It is not to hide the others.
            Err(failure) if is_unreadable(&failure) => {
                tracing::error!(task.id = %id, "Task {id} cannot be read; it is passed over: {failure}");
                None
            }
            Err(failure) => return Err(failure),
        });
    }
    Ok(summaries)
}

/// Of the called destinations, or of those who pull. One look a lane: there may be thousands of them, each second.
pub(super) fn next_due(db: &Connection, lanes: &[Lane], called: bool, now: UnixMillis) -> rusqlite::Result<NextDue> {
    let mut look = db.prepare_cached(if called {
        "SELECT (SELECT min(due) FROM progress WHERE lane = l.id AND leased = 1),
                (SELECT max(due) FROM progress WHERE lane = l.id AND leased = 1),
                (SELECT min(earliest) FROM destination WHERE lane = l.id AND called = 1),
                (SELECT min(moment) FROM expiry WHERE lane = l.id)
         FROM lane l WHERE topic = ? AND shard = ?"
    } else {
        "SELECT (SELECT min(due) FROM progress WHERE lane = l.id AND leased = 1),
                (SELECT max(due) FROM progress WHERE lane = l.id AND leased = 1),
                (SELECT min(earliest) FROM destination WHERE lane = l.id AND called = 0),
                NULL
         FROM lane l WHERE topic = ? AND shard = ?"
    })?;
    let mut next = NextDue { now, lanes: Vec::with_capacity(lanes.len()) };
    for lane in lanes {
        let moment = look.query_row((lane.topic.as_str(), lane.shard), |row| {
            let (due, expiry): (Option<UnixMillis>, Option<UnixMillis>) = (row.get(2)?, row.get(3)?);
            Ok(due.into_iter().chain(read_deadline(row, now)?).chain(expiry).min())
        });
        next.lanes.push(moment.optional()?.flatten());
    }
    Ok(next)
}

/// The earliest due moment after `after` at which one of the lane's called destinations comes to have work.
pub(super) fn earliest_due(db: &Connection, lane: i64, after: UnixMillis) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached("SELECT min(earliest) FROM destination WHERE lane = ? AND called = 1 AND earliest > ?")?
        .query_row((lane, after), |row| row.get(0))
}

/// The earliest deadline of the lane's leases; now, if one is so far away that it counts as run out.
pub(super) fn earliest_deadline(db: &Connection, lane: i64, now: UnixMillis) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached(
        "SELECT (SELECT min(due) FROM progress WHERE lane = ?1 AND leased = 1),
                (SELECT max(due) FROM progress WHERE lane = ?1 AND leased = 1)",
    )?
    .query_row([lane], |row| read_deadline(row, now))
}

/// From the first and the last deadline, which are the row's first columns.
fn read_deadline(row: &Row<'_>, now: UnixMillis) -> rusqlite::Result<Option<UnixMillis>> {
    let (first, last): (Option<UnixMillis>, Option<UnixMillis>) = (row.get(0)?, row.get(1)?);
    let is_out_of_reach = last.is_some_and(|deadline| deadline > now + FURTHEST_DEADLINE);
    Ok(first.map(|deadline| if is_out_of_reach { deadline.min(now) } else { deadline }))
}
