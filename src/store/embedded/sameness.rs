//! Keys: which task of a lane owns one, and what an idempotency key answered.

use rusqlite::{OptionalExtension, Row};

use super::ledger::Ledger;
use super::rows::is_unreadable;
use super::values::rows;
use crate::store::{Added, Error, Idempotency, Novelty, Result};
use crate::task::TaskId;

impl Ledger<'_> {
    /// What an add has to be answered whose idempotency key was used within its window; `None`: it was not.
    pub(super) fn answered(&self, lane: i64, asked: &Idempotency) -> rusqlite::Result<Option<Result<Added>>> {
        let read = |row: &Row<'_>| {
            let fingerprint: [u8; 16] = row.get(0)?;
            let first = Added { id: row.get(1)?, due: row.get(2)?, novelty: Novelty::Duplicate };
            let is_same = fingerprint == asked.fingerprint.to_be_bytes();
            Ok(if is_same { Ok(first) } else { Err(Error::KeyReused) })
        };
        let found = self
            .db
            .prepare_cached("SELECT fingerprint, task, due FROM idempotency WHERE lane = ? AND key = ? AND until > ?")?
            .query_row((lane, &asked.key, self.now), read)
            .optional();
        found.or_else(|failure| match is_unreadable(&failure) {
            true => {
                tracing::error!("What an idempotency key answered cannot be read; it counts as unused: {failure}");
                Ok(None)
            }
            false => Err(failure),
        })
    }

    /// Remembers what an idempotency key answered. Two whose window is over go for each that comes: they cannot pile up between the rounds
    /// that purge.
    pub(super) fn remember_answer(&self, lane: i64, asked: &Idempotency, added: Added) -> rusqlite::Result<()> {
        self.forget_answers(lane, 2)?;
        self.db
            .prepare_cached(
                "INSERT OR REPLACE INTO idempotency (lane, key, fingerprint, task, due, until) VALUES (?, ?, ?, ?, ?, ?)",
            )?
            .execute((
                lane,
                &asked.key,
                asked.fingerprint.to_be_bytes(),
                added.id,
                added.due,
                self.now + asked.window,
            ))?;
        Ok(())
    }

    /// Forgets idempotency keys whose window is over, the earliest first.
    pub(super) fn forget_answers(&self, lane: i64, limit: usize) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(
                "DELETE FROM idempotency WHERE lane = ?1 AND key IN
                 (SELECT key FROM idempotency WHERE lane = ?1 AND until <= ?2 ORDER BY until LIMIT ?3)",
            )?
            .execute((lane, self.now, rows(limit)))?;
        Ok(())
    }

    /// Forgets all idempotency keys of a lane.
    pub(super) fn forget_all_answers(&self, lane: i64) -> rusqlite::Result<()> {
        self.db.prepare_cached("DELETE FROM idempotency WHERE lane = ?")?.execute([lane])?;
        Ok(())
    }

    /// The task that owns a key.
    pub(super) fn owner(&self, lane: i64, key: &str) -> rusqlite::Result<Option<TaskId>> {
        self.db
            .prepare_cached("SELECT task FROM task_key WHERE lane = ? AND key = ?")?
            .query_row((lane, key), |row| row.get(0))
            .optional()
    }

    /// The key goes to this task, whoever had it.
    pub(super) fn give_key(&self, lane: i64, key: &str, id: TaskId) -> rusqlite::Result<()> {
        self.db
            .prepare_cached("INSERT OR REPLACE INTO task_key (lane, key, task) VALUES (?, ?, ?)")?
            .execute((lane, key, id))?;
        Ok(())
    }

    /// The task is forgotten; its key goes with it, unless another has it.
    pub(super) fn drop_key(&self, lane: i64, key: &str, id: TaskId) -> rusqlite::Result<()> {
        self.db
            .prepare_cached("DELETE FROM task_key WHERE lane = ? AND key = ? AND task = ?")?
            .execute((lane, key, id))?;
        Ok(())
    }
}
