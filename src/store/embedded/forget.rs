//! `purge`, `discard` and `clear`: remove tasks with content, keys and notes. A purge runs every
//! minute, so it also stores dead-letter calls that a full disk delayed.

use std::collections::BTreeSet;

use rusqlite::OptionalExtension;

use super::Embedded;
use super::rows::{is_unreadable, read_options};
use super::sql::task::deleted;
use super::sql::{self, only};
use super::values::{rows, state_number};
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId};
use crate::store::{Cleared, FURTHEST_DEADLINE, Result};

impl Embedded {
    pub(crate) async fn discard(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
    ) -> Result<usize> {
        let (lane, outcome, weight) = (lane.clone(), outcome.map(str::to_owned), ids.len());
        self.writes
            .ask(weight, move |tx| discard_in(tx, &lane, state, &ids, outcome.as_deref()))
            .await
    }

    pub(crate) async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> {
        let lane = lane.clone();
        self.writes.ask(limit, move |tx| clear_in(tx, &lane, limit)).await
    }

    pub(crate) async fn purge(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        let lane = lane.clone();
        self.writes.run(limit, move |tx| purge_in(tx, &lane, most, (state, before), limit)).await
    }
}

pub(super) fn purge_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    most: u64,
    (state, before): (State, UnixMillis),
    limit: usize,
) -> rusqlite::Result<usize> {
    let Some(lane) = tx.find_lane(lane)? else { return Ok(0) };
    let tasks = match most {
        0 => limit,
        most => {
            tx.write_counts()?;
            let ended: i64 = tx.db.prepare_cached(sql::lane::ENDED)?.query_row([lane], only)?;
            let excess = u64::try_from(ended).unwrap_or(0).saturating_sub(most);
            limit.min(usize::try_from(excess).unwrap_or(usize::MAX))
        }
    };
    let ids =
        select(tx, sql::history::IDS_BEFORE, (lane, state_number(state), before, rows(tasks)))?;
    let count = forget_ended(tx, lane, state, ids)?;
    tx.forget_answers(lane, limit)?;
    tx.make_owed_calls(lane)?;
    Ok(count)
}

pub(super) fn discard_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    state: State,
    ids: &[TaskId],
    outcome: Option<&str>,
) -> rusqlite::Result<usize> {
    let Some(lane) = tx.find_lane(lane)? else { return Ok(0) };
    let mut ended = tx.db.prepare_cached(sql::history::HAS_ENDED)?;
    let mut of_state = Vec::with_capacity(ids.len());
    let ids: BTreeSet<&TaskId> = ids.iter().collect();
    for id in ids {
        let asked = (id, lane, state_number(state), outcome);
        of_state.extend(ended.query_row(asked, |_| Ok(*id)).optional()?);
    }
    forget_ended(tx, lane, state, of_state)
}

/// Removes tasks that are known to have ended in this state.
fn forget_ended(
    tx: &mut WriteTx<'_>,
    lane: i64,
    state: State,
    mut ids: Vec<TaskId>,
) -> rusqlite::Result<usize> {
    // Content lies in the order of ids; random deletes would be the slowest step in a task's life.
    ids.sort_unstable();
    let mut forget_end = tx.db.prepare_cached(sql::history::DELETE)?;
    for id in &ids {
        forget_end.execute([id])?;
        tx.deltas.count(lane, state, -1);
        tx.forget_body(lane, *id)?;
    }
    Ok(ids.len())
}

/// Removes tasks that are not leased: first ended ones, then waiting ones, then those with expired
/// leases. If these were all, marks a cancel on the leased ones.
pub(super) fn clear_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    limit: usize,
) -> rusqlite::Result<Cleared> {
    let Some(lane) = tx.find_lane(lane)? else { return Ok(Cleared::default()) };
    let mut ids = select(tx, sql::history::IDS, (lane, rows(limit)))?;
    ids.extend(select(tx, sql::destination::WAITING_IDS, (lane, rows(limit - ids.len())))?);
    ids.extend(select(
        tx,
        sql::progress::OVERDUE_IDS,
        (lane, tx.now, tx.now + FURTHEST_DEADLINE, rows(limit - ids.len())),
    )?);
    ids.sort_unstable();
    ids.dedup();
    let were_all = ids.len() < limit;
    let mut removed = 0;
    for id in ids {
        removed += usize::from(forget(tx, lane, id)?);
    }
    let cancelling = match were_all {
        true => tx.db.prepare_cached(sql::progress::CANCEL_LEASED)?.execute((lane, rows(limit)))?,
        false => 0,
    };
    if is_empty(tx, lane)? {
        tx.forget_all_answers(lane)?;
    }
    Ok(Cleared { removed, cancelling })
}

/// Removes a task that is not leased, whatever its state. Returns whether it existed.
fn forget(tx: &mut WriteTx<'_>, lane: i64, id: TaskId) -> rusqlite::Result<bool> {
    match tx.load(lane, id) {
        Ok(Some(record)) if record.state(tx.now) == State::Leased => return Ok(false),
        Ok(Some(record)) => tx.forget_place(id, &record)?,
        Ok(None) => return Ok(false),
        // Its end is not known, and is not counted.
        Err(failure) if is_unreadable(&failure) => tx.delete_history(id)?,
        Err(failure) => return Err(failure),
    }
    tx.forget_body(lane, id)?;
    Ok(true)
}

fn is_empty(tx: &mut WriteTx<'_>, lane: i64) -> rusqlite::Result<bool> {
    tx.write_counts()?;
    tx.db.prepare_cached(sql::lane::IS_EMPTY)?.query_row([lane], only)
}

fn select(
    tx: &WriteTx<'_>,
    select: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Vec<TaskId>> {
    tx.db.prepare_cached(select)?.query_map(params, only)?.collect()
}

impl WriteTx<'_> {
    /// Removes the content of a task, and what belongs to it.
    fn forget_body(&mut self, lane: i64, id: TaskId) -> rusqlite::Result<()> {
        let body = self
            .db
            .prepare_cached(deleted::SQL)?
            .query_row([id], |row| {
                Ok((read_options(row, deleted::options, id)?, row.get(deleted::destination)?))
            })
            .optional()?;
        self.db.prepare_cached(sql::note::DELETE_OF_TASK)?.execute([id])?;
        let Some((options, destination)) = body else { return Ok(()) };
        if let Some(key) = options.key {
            self.drop_key(lane, &key, id)?;
        }
        self.release_destination(destination)
    }
}
