//! Reads: `get`, `summaries`, `next_due`, `next_pull`.

use rusqlite::{Connection, OptionalExtension, Row};

use super::Embedded;
use super::rows::{is_unreadable, read_lease, read_options, read_state_or};
use super::sql::lane::{next_due, next_pull};
use super::sql::progress::deadlines;
use super::sql::task::{summary, whole};
use super::sql::{self, only};
use super::state::{due_after_lease, ran_out};
use super::threads::reader::Reads;
use super::values::read_name;
use super::write_tx::lane_number;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Options, State, TaskId};
use crate::store::{FURTHEST_DEADLINE, NextDue, Reader, Result, Summary, Task};

impl Embedded {
    /// The thread of the reads of contents.
    pub(super) fn reader_for(&self, reader: Reader) -> &Reads {
        match reader {
            Reader::Viewer => &self.reads,
            Reader::Worker => &self.polls,
        }
    }

    pub(crate) async fn get(
        &self,
        reader: Reader,
        lane: &Lane,
        id: TaskId,
    ) -> Result<Option<Task>> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.reader_for(reader).run(move |db| get_from(db, &lane, id, clock.now())).await
    }

    pub(crate) async fn summaries(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
    ) -> Result<Vec<Option<Summary>>> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.reads.run(move |db| summaries_from(db, &lane, &ids, clock.now())).await
    }
}

/// Reads the columns of [`summary`].
fn read_head(row: &Row<'_>, id: TaskId, now: UnixMillis) -> rusqlite::Result<(Summary, Options)> {
    let stored_due: UnixMillis = row.get(summary::stored_due)?;
    let (state, due) = match (row.get(summary::leased)?, row.get(summary::due)?) {
        (Some(true), Some(deadline)) if ran_out(deadline, now) => {
            (State::Scheduled, due_after_lease(deadline, now))
        }
        (Some(true), _) => (State::Leased, stored_due),
        (_, Some(due)) => (State::Scheduled, due),
        // It was never claimed, or has ended.
        (_, None) => (read_state_or(row, summary::state, State::Scheduled)?, stored_due),
    };
    let options = read_options(row, summary::options, id)?;
    let head = Summary {
        id,
        state,
        destination: read_name(row, summary::destination)?,
        due,
        created: row.get(summary::created)?,
        finished: row.get(summary::finished)?,
        attempts: row.get(summary::attempts)?,
        last_outcome: row.get(summary::outcome)?,
        lease: if state == State::Leased {
            read_lease(row, (summary::lease, summary::returns))?
        } else {
            None
        },
        key: options.key.clone(),
    };
    Ok((head, options))
}

pub(super) fn get_from(
    db: &Connection,
    lane: &Lane,
    id: TaskId,
    now: UnixMillis,
) -> rusqlite::Result<Option<Task>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(None) };
    db.prepare_cached(whole::SQL)?
        .query_row((id, number), |row| {
            let (head, options) = read_head(row, id, now)?;
            let key_set = match &options.key {
                Some(key) => db
                    .prepare_cached(sql::task_key::SINCE)?
                    .query_row((number, key, id), only)
                    .optional()?,
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
                cancelling: row.get(whole::cancelling)?,
                key_set,
                options,
                content: row.get(whole::content)?,
            })
        })
        .optional()
}

pub(super) fn summaries_from(
    db: &Connection,
    lane: &Lane,
    ids: &[TaskId],
    now: UnixMillis,
) -> rusqlite::Result<Vec<Option<Summary>>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(vec![None; ids.len()]) };
    let mut select = db.prepare_cached(summary::SQL)?;
    let mut summaries = Vec::with_capacity(ids.len());
    for id in ids {
        let found = select.query_row((id, number), |row| read_head(row, *id, now)).optional();
        summaries.push(match found {
            Ok(found) => found.map(|(head, _)| head),
            // It must not hide the others.
            Err(failure) if is_unreadable(&failure) => {
                tracing::error!(
                    task.id = %id,
                    "Task {id} cannot be read; it is skipped: {failure}"
                );
                None
            }
            Err(failure) => return Err(failure),
        });
    }
    Ok(summaries)
}

/// The next moments of lanes, for called or pulled tasks. One lookup per lane, because there may be
/// thousands, every second.
pub(super) fn next_due_from(
    db: &Connection,
    lanes: &[Lane],
    called: bool,
    now: UnixMillis,
) -> rusqlite::Result<NextDue> {
    let mut look = db.prepare_cached(if called { next_due::SQL } else { next_pull::SQL })?;
    let mut next = NextDue { now, lanes: Vec::with_capacity(lanes.len()) };
    for lane in lanes {
        let moment = look.query_row((lane.topic.as_str(), lane.shard), |row| {
            let (due, expiry): (Option<UnixMillis>, Option<UnixMillis>) =
                (row.get(next_due::earliest)?, row.get(next_due::expires)?);
            let deadline =
                read_deadline(row, (next_due::first_deadline, next_due::last_deadline), now)?;
            Ok(due.into_iter().chain(deadline).chain(expiry).min())
        });
        next.lanes.push(moment.optional()?.flatten());
    }
    Ok(next)
}

/// The earliest due moment after `after` of the lane's called destinations.
pub(super) fn earliest_due(
    db: &Connection,
    lane: i64,
    after: UnixMillis,
) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached(sql::destination::EARLIEST_AFTER)?.query_row((lane, after), only)
}

/// The earliest deadline of the lane's leases; now, if one is so far away that it counts as
/// expired.
pub(super) fn earliest_deadline(
    db: &Connection,
    lane: i64,
    now: UnixMillis,
) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached(deadlines::SQL)?.query_row([lane], |row| {
        read_deadline(row, (deadlines::first_deadline, deadlines::last_deadline), now)
    })
}

/// From the columns of the first and the last deadline.
fn read_deadline(
    row: &Row<'_>,
    (first, last): (usize, usize),
    now: UnixMillis,
) -> rusqlite::Result<Option<UnixMillis>> {
    let (first, last): (Option<UnixMillis>, Option<UnixMillis>) = (row.get(first)?, row.get(last)?);
    let is_out_of_reach = last.is_some_and(|deadline| deadline > now + FURTHEST_DEADLINE);
    Ok(first.map(|deadline| if is_out_of_reach { deadline.min(now) } else { deadline }))
}
