//! Records as rows.
//!
//! | record | `schedule` | `progress` | `history` |
//! |---|---|---|---|
//! | waiting, never claimed in this revision | a row | – | – |
//! | waiting otherwise | a row | a row | – |
//! | leased | – | a row | – |
//! | ended | – | – | a row |
//!
//! A damaged row of a waiting or leased task is read as far as possible: a receipt that cannot be
//! read matches no settle, and the task is handed out again when the lease has expired. A row that
//! lacks a necessary value (an end without a state, content that is not text) is unreadable
//! ([`is_unreadable`]).

use std::sync::Once;

use rusqlite::types::{FromSqlError, ValueRef};
use rusqlite::{OptionalExtension, Row};

use super::receipts::Receipts;
use super::sql;
use super::sql::history::ended;
use super::sql::progress::pending;
use super::sql::task::fresh;
use super::state::{EndedTask, Pending, StoredState, expiry};
use super::values::{read_name, state_number};
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{Options, Receipt, State, TaskId};
use crate::store::{LeaseKind, TopicEntry};

/// Reads the columns of [`pending`], which begin with column number `first`.
pub(super) fn read_pending(row: &Row<'_>, first: usize, id: TaskId) -> rusqlite::Result<Pending> {
    Ok(Pending {
        lane: row.get(first + pending::lane)?,
        destination: row.get(first + pending::destination)?,
        leased: row.get(first + pending::leased)?,
        due: row.get(first + pending::due)?,
        attempts: read_count(row, first + pending::attempts)?,
        expiries: read_count(row, first + pending::expiries)?,
        cancelling: row.get(first + pending::cancelling)?,
        receipts: read_receipts(row, (first + pending::current, first + pending::past), id)?,
        outcome: read_outcome(row, first + pending::outcome)?,
        expires: row.get(first + pending::expires)?,
        lease: read_lease(row, (first + pending::lease, first + pending::returns))?,
    })
}

/// Reads a task on a schedule. `waiting` has what the schedule says. The columns of [`pending`],
/// from number `first` on (null if it was never claimed), its stored due moment and its options say
/// the rest.
pub(super) fn read_waiting(
    row: &Row<'_>,
    id: TaskId,
    waiting: Pending,
    (due, options): (usize, usize),
    first: usize,
) -> rusqlite::Result<Pending> {
    if row.get_ref(first + pending::lane)? != ValueRef::Null {
        // The schedule says where the task waits, so the task leaves that schedule whatever else is
        // stored.
        let Pending { lane, destination, leased, due, .. } = waiting;
        return Ok(Pending { lane, destination, leased, due, ..read_pending(row, first, id)? });
    }
    let expires = read_expiry(row, (due, options), id)?;
    Ok(Pending { expires, ..waiting })
}

/// When a task with this due moment and these options expires. Without options, the due moment is
/// not read.
fn read_expiry(
    row: &Row<'_>,
    (due, options): (usize, usize),
    id: TaskId,
) -> rusqlite::Result<Option<UnixMillis>> {
    if row.get_ref(options)? == ValueRef::Null {
        return Ok(None);
    }
    Ok(expiry(row.get(due)?, &read_options(row, options, id)?))
}

pub(super) fn read_ended(row: &Row<'_>, id: TaskId) -> rusqlite::Result<EndedTask> {
    Ok(EndedTask {
        lane: row.get(ended::lane)?,
        state: read_state(row, ended::state)?,
        finished: row.get(ended::finished)?,
        attempts: read_count(row, ended::attempts)?,
        receipts: read_receipts(row, (ended::current, ended::past), id)?,
        outcome: read_outcome(row, ended::outcome)?,
    })
}

pub(super) fn read_receipts(
    row: &Row<'_>,
    (current, past): (usize, usize),
    id: TaskId,
) -> rusqlite::Result<Receipts> {
    let mut are_damaged = false;
    let mut read = |text: &[u8]| {
        let receipt = std::str::from_utf8(text).ok().and_then(|text| text.parse::<Receipt>().ok());
        are_damaged |= receipt.is_none();
        receipt
    };
    let current = row.get_ref(current)?.as_bytes_or_null()?.and_then(&mut read);
    let past = row.get_ref(past)?.as_bytes_or_null()?;
    let past = past
        .map_or(Vec::new(), |all| all.split(|byte| *byte == b' ').filter_map(&mut read).collect());
    if are_damaged {
        tracing::error!(task.id = %id, "A receipt of task {id} cannot be read; it is skipped");
    }
    Ok(Receipts { current, past })
}

/// The number of a lease's kind in `progress`.
fn lease_number(lease: LeaseKind) -> i64 {
    match lease {
        LeaseKind::Worker => 1,
        LeaseKind::Consumer => 2,
        LeaseKind::Receiver => 3,
        LeaseKind::Mover { .. } => 4,
    }
}

/// Reads a column with a [`lease_number`], and one with the moment that a lent task returns to.
pub(super) fn read_lease(
    row: &Row<'_>,
    (lease, returns): (usize, usize),
) -> rusqlite::Result<Option<LeaseKind>> {
    Ok(match row.get(lease)? {
        Some(1) => Some(LeaseKind::Worker),
        Some(2) => Some(LeaseKind::Consumer),
        Some(3) => Some(LeaseKind::Receiver),
        Some(4) => row.get::<_, Option<UnixMillis>>(returns)?.map(|due| LeaseKind::Mover { due }),
        _ => None,
    })
}

pub(super) fn read_count(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    let number: i64 = row.get(column)?;
    Ok(u32::try_from(number.max(0)).unwrap_or(u32::MAX))
}

pub(super) fn read_outcome(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    let text = row.get_ref(column)?.as_bytes_or_null()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Whether the failure was a value that no version of this program stores, not one of SQLite.
pub(super) fn is_unreadable(failure: &rusqlite::Error) -> bool {
    failure.sqlite_error_code().is_none()
}

/// Reads a column with a [`state_number`].
fn read_state(row: &Row<'_>, column: usize) -> rusqlite::Result<State> {
    let number: i64 = row.get(column)?;
    let state = State::ALL.into_iter().find(|state| state_number(*state) == number);
    state.ok_or_else(|| FromSqlError::OutOfRange(number).into())
}

/// Reads a column with a [`state_number`] or null.
pub(super) fn read_state_or(row: &Row<'_>, column: usize, null: State) -> rusqlite::Result<State> {
    if row.get_ref(column)? == ValueRef::Null { Ok(null) } else { read_state(row, column) }
}

/// Reads a topic's name and number of lanes. `None` if they cannot be read, which must not hide
/// other topics.
pub(super) fn read_topic(
    row: &Row<'_>,
    (name, shards): (usize, usize),
) -> rusqlite::Result<Option<TopicEntry>> {
    let read = || Ok(TopicEntry { topic: read_name(row, name)?, shards: row.get(shards)? });
    match read() {
        Ok(entry) => Ok(Some(entry)),
        Err(failure) if is_unreadable(&failure) => {
            // The topics are read every second.
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::error!("A topic is skipped: its entry cannot be read: {failure}")
            });
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Reads a column with options. Unreadable ones are ignored: the task is delivered by its topic's
/// policy, which is better than not at all.
pub(super) fn read_options(row: &Row<'_>, column: usize, id: TaskId) -> rusqlite::Result<Options> {
    let Some(text) = row.get_ref(column)?.as_bytes_or_null()? else {
        return Ok(Options::default());
    };
    Ok(serde_json::from_slice(text).unwrap_or_else(|error| {
        tracing::error!(
            task.id = %id,
            "The options of task {id} cannot be read and are ignored: {error}"
        );
        Options::default()
    }))
}

fn none_if_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

impl WriteTx<'_> {
    /// The record of the task, if it is in this lane.
    pub(super) fn load(&self, lane: i64, id: TaskId) -> rusqlite::Result<Option<StoredState>> {
        let record = match self.load_pending(id)? {
            Some(pending) => Some(StoredState::Pending(pending)),
            None => match self.load_ended(id)? {
                Some(ended) => Some(StoredState::Ended(ended)),
                None => self.load_fresh(id)?.map(StoredState::Pending),
            },
        };
        Ok(record.filter(|record| record.lane() == lane))
    }

    fn load_pending(&self, id: TaskId) -> rusqlite::Result<Option<Pending>> {
        self.with(sql::progress::PENDING, |select| {
            select.query_row([id], |row| read_pending(row, 0, id)).optional()
        })
    }

    fn load_ended(&self, id: TaskId) -> rusqlite::Result<Option<EndedTask>> {
        self.db.prepare_cached(ended::SQL)?.query_row([id], |row| read_ended(row, id)).optional()
    }

    fn load_fresh(&self, id: TaskId) -> rusqlite::Result<Option<Pending>> {
        self.db
            .prepare_cached(fresh::SQL)?
            .query_row([id], |row| {
                let expires = read_expiry(row, (fresh::due, fresh::options), id)?;
                let (lane, destination) = (row.get(fresh::lane)?, row.get(fresh::destination)?);
                Ok(Pending { expires, ..Pending::fresh(lane, destination, row.get(fresh::due)?) })
            })
            .optional()
    }

    /// Replaces a record by another. Every task that dies, dies here.
    pub(super) fn replace(
        &mut self,
        id: TaskId,
        before: &StoredState,
        after: &StoredState,
    ) -> rusqlite::Result<()> {
        match before {
            StoredState::Pending(before) => self.leave(id, before)?,
            StoredState::Ended(before) => self.deltas.count(before.lane, before.state, -1),
        }
        match (before, after) {
            (StoredState::Pending(_), StoredState::Ended(_)) => self.delete_progress(id)?,
            (StoredState::Ended(_), StoredState::Pending(_)) => self.delete_history(id)?,
            (StoredState::Pending(_), StoredState::Pending(_))
            | (StoredState::Ended(_), StoredState::Ended(_)) => {}
        }
        match after {
            StoredState::Pending(after) => {
                self.write_progress(id, after)?;
                self.join_schedule(id, after)
            }
            StoredState::Ended(after) => {
                self.write_history(id, after)?;
                if after.state == State::Dead { self.call_for(id, after) } else { Ok(()) }
            }
        }
    }

    /// Begins a revision whose due moment is the stored one.
    pub(super) fn restart(
        &mut self,
        id: TaskId,
        before: &Pending,
        after: &Pending,
    ) -> rusqlite::Result<()> {
        self.leave(id, before)?;
        self.delete_progress(id)?;
        self.join_schedule(id, after)
    }

    /// Removes the state of a task, and all traces of it.
    pub(super) fn forget_place(
        &mut self,
        id: TaskId,
        record: &StoredState,
    ) -> rusqlite::Result<()> {
        match record {
            StoredState::Pending(pending) => {
                self.leave(id, pending)?;
                self.delete_progress(id)
            }
            StoredState::Ended(ended) => {
                self.deltas.count(ended.lane, ended.state, -1);
                self.delete_history(id)
            }
        }
    }

    /// Ends a wait or a lease.
    fn leave(&mut self, id: TaskId, before: &Pending) -> rusqlite::Result<()> {
        if before.leased {
            self.deltas.count(before.lane, State::Leased, -1);
        }
        self.leave_schedule(id, before)
    }

    /// Puts a waiting task on its schedule.
    pub(super) fn join_schedule(&mut self, id: TaskId, after: &Pending) -> rusqlite::Result<()> {
        if after.leased {
            return Ok(());
        }
        let joined = self.with(sql::schedule::INSERT, |insert| {
            insert.execute((after.destination, after.due, id))
        })?;
        if joined == 1 {
            self.deltas.count(after.lane, State::Scheduled, 1);
        }
        if let Some(moment) = after.expires {
            self.remember_expiry(after.lane, moment, id)?;
        }
        self.hide_until_durable(id, after.destination);
        self.joined(after.destination, after.due)
    }

    /// Takes a waiting task off its schedule.
    pub(super) fn leave_schedule(&mut self, id: TaskId, before: &Pending) -> rusqlite::Result<()> {
        if before.leased {
            return Ok(());
        }
        let left = self.db.prepare_cached(sql::schedule::DELETE)?.execute((
            before.destination,
            before.due,
            id,
        ))?;
        if left == 1 {
            self.deltas.count(before.lane, State::Scheduled, -1);
        }
        if let Some(moment) = before.expires {
            self.forget_expiry(before.lane, moment, id)?;
        }
        self.left(before.destination, before.due)
    }

    /// Takes a task and all tasks before it off their schedule. Their rows of `expiry` stay.
    pub(super) fn leave_schedule_up_to(
        &mut self,
        first: &Pending,
        last: &Pending,
        last_id: TaskId,
    ) -> rusqlite::Result<()> {
        let left = self.db.prepare_cached(sql::schedule::DELETE_UP_TO)?.execute((
            last.destination,
            last.due,
            last_id,
        ))?;
        self.deltas.count(last.lane, State::Scheduled, -i64::try_from(left).unwrap_or(i64::MAX));
        self.left(first.destination, first.due)
    }

    /// Stores the progress of a task.
    pub(super) fn write_progress(&mut self, id: TaskId, after: &Pending) -> rusqlite::Result<()> {
        if after.leased {
            self.deltas.count(after.lane, State::Leased, 1);
        }
        self.with(sql::progress::PUT, |put| {
            put.execute((
                id,
                after.lane,
                after.destination,
                after.leased,
                after.due,
                after.attempts,
                after.expiries,
                after.cancelling,
                after.receipts.current.as_ref().map(Receipt::as_str),
                after.receipts.past_text(),
                none_if_empty(&after.outcome),
                after.expires,
                after.lease.map(lease_number),
                after.lease.and_then(LeaseKind::returns_to),
            ))
        })?;
        Ok(())
    }

    pub(super) fn delete_history(&self, id: TaskId) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::history::DELETE)?.execute([id])?;
        Ok(())
    }

    fn delete_progress(&self, id: TaskId) -> rusqlite::Result<()> {
        self.with(sql::progress::DELETE, |delete| delete.execute([id])).map(drop)
    }

    pub(super) fn write_history(&mut self, id: TaskId, after: &EndedTask) -> rusqlite::Result<()> {
        self.deltas.count(after.lane, after.state, 1);
        self.with(sql::history::PUT, |put| {
            put.execute((
                id,
                after.lane,
                state_number(after.state),
                after.finished,
                after.attempts,
                after.receipts.current.as_ref().map(Receipt::as_str),
                after.receipts.past_text(),
                none_if_empty(&after.outcome),
            ))
        })?;
        Ok(())
    }
}
