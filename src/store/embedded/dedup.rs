//! Keys: which task of a lane owns a key, and the answer of an idempotency key.

use rusqlite::{OptionalExtension, Row};

use super::rows::is_unreadable;
use super::sql::idempotency::answer;
use super::sql::task_key::owner;
use super::sql::{self, only};
use super::values::rows;
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{State, TaskId};
use crate::store::{Added, Error, NewTask, Novelty, Result};

impl WriteTx<'_> {
    /// The answer to an add whose idempotency key was used within its window. `None` if it was not,
    /// or if the add has none.
    pub(super) fn answered(
        &mut self,
        lane: i64,
        task: &NewTask,
    ) -> rusqlite::Result<Option<Result<Added>>> {
        let (Some(asked), Some(name)) = (&task.idempotency, task.idempotency_name()) else {
            return Ok(None);
        };
        let read = |row: &Row<'_>| {
            let fingerprint: [u8; 16] = row.get(answer::fingerprint)?;
            let (id, due) = (row.get(answer::task)?, row.get(answer::due)?);
            let first = Added { id, due, novelty: Novelty::Duplicate { state: None } };
            let is_same = fingerprint == asked.fingerprint.to_be_bytes();
            Ok(if is_same { Ok(first) } else { Err(Error::KeyReused) })
        };
        let found =
            self.db.prepare_cached(answer::SQL)?.query_row((lane, name, self.now), read).optional();
        match found {
            Ok(Some(Ok(first))) => {
                let novelty = Novelty::Duplicate { state: self.state_by_now(lane, first.id)? };
                let mut present = self.db.prepare_cached(sql::task::DUE)?;
                let due = present.query_row([first.id], only).optional()?.unwrap_or(first.due);
                Ok(Some(Ok(Added { novelty, due, ..first })))
            }
            Err(failure) if is_unreadable(&failure) => {
                tracing::error!(
                    "The answer of an idempotency key cannot be read; the key counts as unused: \
                        {failure}"
                );
                Ok(None)
            }
            found => found,
        }
    }

    /// The state of a task, as a call of an operator finds it: with a pending cancel and an expired
    /// lease, the task is cancelled. `None` if there is no such task, or if it cannot be read.
    fn state_by_now(&mut self, lane: i64, id: TaskId) -> rusqlite::Result<Option<State>> {
        match self.load(lane, id) {
            Ok(Some(record)) => match record.fulfilled(self.now) {
                Some(cancelled) => {
                    self.replace(id, &record, &cancelled)?;
                    Ok(Some(cancelled.state(self.now)))
                }
                None => Ok(Some(record.state(self.now))),
            },
            Ok(None) => Ok(None),
            Err(failure) if is_unreadable(&failure) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Remembers the answer of an add's idempotency key, if it has one. Each new key removes two
    /// whose window has ended, so they cannot accumulate between purges.
    pub(super) fn remember_answer(
        &self,
        lane: i64,
        task: &NewTask,
        added: Added,
    ) -> rusqlite::Result<()> {
        let (Some(asked), Some(name)) = (&task.idempotency, task.idempotency_name()) else {
            return Ok(());
        };
        self.forget_answers(lane, 2)?;
        self.db.prepare_cached(sql::idempotency::PUT)?.execute((
            lane,
            name,
            asked.fingerprint.to_be_bytes(),
            added.id,
            added.due,
            self.now + asked.window,
        ))?;
        Ok(())
    }

    /// Removes idempotency keys whose window has ended, the earliest first.
    pub(super) fn forget_answers(&self, lane: i64, limit: usize) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::idempotency::DELETE_OVER)?.execute((
            lane,
            self.now,
            rows(limit),
        ))?;
        Ok(())
    }

    /// Removes all idempotency keys of a lane.
    pub(super) fn forget_all_answers(&self, lane: i64) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::idempotency::DELETE_OF_LANE)?.execute([lane])?;
        Ok(())
    }

    /// The task that owns a key, and when an add last set it.
    pub(super) fn owner(
        &self,
        lane: i64,
        key: &str,
    ) -> rusqlite::Result<Option<(TaskId, UnixMillis)>> {
        self.db
            .prepare_cached(owner::SQL)?
            .query_row((lane, key), |row| Ok((row.get(owner::task)?, row.get(owner::since)?)))
            .optional()
    }

    /// Gives the key to this task, whichever task had it. An add has set it at that moment.
    pub(super) fn give_key(
        &self,
        lane: i64,
        key: &str,
        id: TaskId,
        since: UnixMillis,
    ) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::task_key::PUT)?.execute((lane, key, id, since))?;
        Ok(())
    }

    /// Removes the key of a removed task, unless another task has it.
    pub(super) fn drop_key(&self, lane: i64, key: &str, id: TaskId) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::task_key::DELETE_OF_TASK)?.execute((lane, key, id))?;
        Ok(())
    }
}
