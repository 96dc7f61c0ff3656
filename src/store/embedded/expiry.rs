//! Ends tasks that a claim must not hand out: those that are not worth delivering any more, and
//! those that fell due in a pause.
//!
//! A claim ends at most [`MAX_ENDED`] tasks, so that it stays short. The rest is not handed out
//! either, and the outlook says that there is more to do at once.

use rusqlite::{Connection, OptionalExtension};

use super::rows::{is_unreadable, read_waiting};
use super::sql::expiry::over;
use super::sql::schedule::due_within;
use super::sql::{self, only};
use super::state::{Pending, StoredState};
use super::values::rows;
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::TaskId;
use crate::store::{MAX_CLAIM_BYTES, MAX_ENDED, Misfire, Misfired, Swept};

/// How many tasks one claim may still end.
#[derive(Debug)]
pub(super) struct EndBudget {
    tasks: usize,
    /// Bytes of dead-letter calls: what the transaction had written before, and the most that it
    /// may write.
    calls: usize,
    /// Whether there were more tasks to end.
    pub(super) is_exceeded: bool,
    /// What the claim has ended.
    pub(super) swept: Swept,
}

impl EndBudget {
    pub(super) fn new(tx: &WriteTx<'_>) -> Self {
        Self {
            tasks: MAX_ENDED,
            calls: tx.called + MAX_CLAIM_BYTES,
            is_exceeded: false,
            swept: Swept::default(),
        }
    }

    /// Takes one task off the budget, if there is one.
    fn spend(&mut self, tx: &WriteTx<'_>) -> bool {
        let has_some = self.tasks > 0 && self.has_calls(tx);
        if has_some {
            self.tasks -= 1;
        } else {
            self.is_exceeded = true;
        }
        has_some
    }

    /// Whether more tasks may die.
    pub(super) fn has_calls(&self, tx: &WriteTx<'_>) -> bool {
        tx.called < self.calls
    }
}

/// Ends waiting tasks of a lane that are not worth delivering any more, the earliest first.
pub(super) fn expire(
    tx: &mut WriteTx<'_>,
    lane: i64,
    budget: &mut EndBudget,
) -> rusqlite::Result<()> {
    let expired: Vec<(UnixMillis, TaskId)> = tx
        .db
        .prepare_cached(over::SQL)?
        .query_map((lane, tx.now, rows(budget.tasks + 1)), |row| {
            Ok((row.get(over::moment)?, row.get(over::id)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    for (moment, id) in expired {
        if !budget.spend(tx) {
            break;
        }
        let record = match tx.load(lane, id) {
            Ok(record) => record,
            Err(failure) if is_unreadable(&failure) => {
                tracing::error!(
                    task.id = %id,
                    "The state of task {id} cannot be read; it does not expire: {failure}"
                );
                None
            }
            Err(failure) => return Err(failure),
        };
        match record {
            Some(StoredState::Pending(before))
                if !before.leased && before.expires == Some(moment) =>
            {
                let after = before.expired(tx.now);
                tx.replace(id, &StoredState::Pending(before), &after)?;
                budget.swept.expired += 1;
            }
            // The row is wrong.
            _ => tx.forget_expiry(lane, moment, id)?,
        }
    }
    Ok(())
}

/// Ends due tasks of a schedule that fell due in one of the pauses. Returns the first one that is
/// left.
pub(super) fn misfire(
    tx: &mut WriteTx<'_>,
    (lane, destination): (i64, i64),
    misfires: &[Misfire],
    budget: &mut EndBudget,
) -> rusqlite::Result<Option<(UnixMillis, TaskId)>> {
    let mut left_over = None;
    for misfire in misfires {
        for (id, before) in fell_due_in(tx, (lane, destination), misfire, budget.tasks + 1)? {
            if !budget.spend(tx) {
                left_over = left_over.into_iter().chain([(before.due, id)]).min();
                break;
            }
            let after = before.misfired(misfire.becomes, tx.now);
            tx.replace(id, &StoredState::Pending(before), &after)?;
            match misfire.becomes {
                Misfired::Expired => budget.swept.misfired_expired += 1,
                Misfired::Dead => budget.swept.misfired_dead += 1,
            }
        }
    }
    Ok(left_over)
}

fn fell_due_in(
    tx: &WriteTx<'_>,
    (lane, destination): (i64, i64),
    misfire: &Misfire,
    limit: usize,
) -> rusqlite::Result<Vec<(TaskId, Pending)>> {
    let mut select = tx.db.prepare_cached(due_within::SQL)?;
    let last = misfire.to.min(tx.now);
    let found = select.query_map((destination, misfire.from, last, rows(limit)), |row| {
        let id = row.get(due_within::id)?;
        let waiting = Pending::fresh(lane, destination, row.get(due_within::due)?);
        let of_body = (due_within::body_due, due_within::options);
        Ok((id, read_waiting(row, id, waiting, of_body, due_within::pending)?))
    })?;
    found.collect()
}

/// The first moment at which a claim of the lane would end an expired task.
pub(super) fn earliest_expiry(db: &Connection, lane: i64) -> rusqlite::Result<Option<UnixMillis>> {
    db.prepare_cached(sql::expiry::EARLIEST)?.query_row([lane], only).optional()
}

impl WriteTx<'_> {
    pub(super) fn remember_expiry(
        &self,
        lane: i64,
        moment: UnixMillis,
        id: TaskId,
    ) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::expiry::INSERT)?.execute((lane, moment, id))?;
        Ok(())
    }

    pub(super) fn forget_expiry(
        &self,
        lane: i64,
        moment: UnixMillis,
        id: TaskId,
    ) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::expiry::DELETE)?.execute((lane, moment, id))?;
        Ok(())
    }
}
