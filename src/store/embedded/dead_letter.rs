//! The dead-letter call: a new task of the dead task's lane, stored in the step in which the task
//! dies.
//!
//! Its id was drawn together with the dead task's own. So dying needs no counter, and a task that
//! dies again after a replay finds the call.
//!
//! A disk that is short of room does not stop it: it may use the reserve, as settles and claims do.
//! One claim copies at most [`MAX_CLAIM_BYTES`] of content into such calls ([`WriteTx::called`]).
//! But content is large, and a settle is small: once a write has found no room at all, tasks die
//! without the call, or they would block other settles. The call is then *owed*, which takes a few
//! bytes. The lane's next claim or purge stores it when there is room.

use rusqlite::OptionalExtension;
use serde::Serialize;

use super::rows::{is_unreadable, read_options};
use super::sql::task::dead as dead_task;
use super::sql::{self, only};
use super::state::{EndedTask, Pending, StoredState};
use super::values::{read_name, rows};
use super::write_tx::WriteTx;
use crate::model::task::{Destination, Lane, Options, State, TaskId};
use crate::store::MAX_CLAIM_BYTES;

/// The most owed calls that are stored at once.
const OWED: usize = 64;

/// The content of the call.
#[derive(Serialize)]
struct DeadLetter<'a> {
    sn: &'a Destination,
    url: &'a str,
    task_id: TaskId,
    topic: &'a str,
    attempts: u32,
    outcome: &'a str,
    content: &'a str,
}

/// A call to be stored.
struct StoredCall {
    id: TaskId,
    lane: Lane,
    destination: Destination,
    /// With the origin of the dead task: that store drew the call's id.
    options: Options,
    body: String,
}

impl WriteTx<'_> {
    /// Stores the call of a task that has just died, if it asked for one.
    pub(super) fn call_for(&mut self, id: TaskId, dead: &EndedTask) -> rusqlite::Result<()> {
        let call = match self.read_call(id, dead) {
            Ok(Some(call)) => call,
            Ok(None) => return Ok(()),
            // The task dies all the same.
            Err(failure) if is_unreadable(&failure) => {
                tracing::error!(
                    task.id = %id,
                    "Task {id} died, and its dead-letter call cannot be read: {failure}"
                );
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        if self.is_without_room {
            return self.owe_call(dead.lane, id);
        }
        let destination = self.destination(dead.lane, &call.destination)?;
        let stored = self.db.prepare_cached(sql::task::INSERT_CALL)?.execute((
            call.id,
            dead.lane,
            destination,
            self.now,
            self.now,
            call.options.json(),
            &call.body,
        ))?;
        if stored == 1 {
            self.called += call.body.len();
            // A power cut may undo the death, and then the task may be delivered after all.
            let awaited = std::mem::replace(&mut self.awaits_sync, true);
            let fresh = Pending::fresh(dead.lane, destination, self.now);
            let joined = self
                .join_schedule(call.id, &fresh)
                .and_then(|()| self.hint(&call.lane, destination, self.now));
            self.awaits_sync = awaited;
            joined?;
        }
        Ok(())
    }

    fn owe_call(&self, lane: i64, id: TaskId) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql::owed_call::INSERT)?.execute((lane, id))?;
        Ok(())
    }

    /// Stores calls that a full disk had no room for. A task that is no longer dead needs no call:
    /// it may die again.
    pub(super) fn make_owed_calls(&mut self, lane: i64) -> rusqlite::Result<()> {
        if self.is_without_room {
            return Ok(());
        }
        let owed: Vec<TaskId> = self
            .db
            .prepare_cached(sql::owed_call::OF_LANE)?
            .query_map((lane, rows(OWED)), only)?
            .collect::<rusqlite::Result<_>>()?;
        let most = self.called + MAX_CLAIM_BYTES;
        for id in owed {
            if self.called >= most {
                break;
            }
            match self.load(lane, id) {
                Ok(Some(StoredState::Ended(dead))) if dead.state == State::Dead => {
                    self.call_for(id, &dead)?
                }
                Ok(_) => {}
                Err(failure) if is_unreadable(&failure) => {}
                Err(failure) => return Err(failure),
            }
            self.db.prepare_cached(sql::owed_call::DELETE)?.execute((lane, id))?;
        }
        Ok(())
    }

    fn read_call(&self, id: TaskId, dead: &EndedTask) -> rusqlite::Result<Option<StoredCall>> {
        let options = self
            .db
            .prepare_cached(sql::task::OPTIONS_IF_ANY)?
            .query_row([id], |row| read_options(row, 0, id))
            .optional()?;
        let Some(Options { origin, on_dead: Some(on_dead), .. }) = options else { return Ok(None) };
        let Some(call) = on_dead.task_id else { return Ok(None) };
        self.db
            .prepare_cached(dead_task::SQL)?
            .query_row([id], |row| {
                let lane = Lane {
                    topic: read_name(row, dead_task::topic)?,
                    shard: row.get(dead_task::shard)?,
                };
                let body = DeadLetter {
                    sn: &on_dead.sn,
                    url: &on_dead.url,
                    task_id: id,
                    topic: lane.topic.as_str(),
                    attempts: dead.attempts,
                    outcome: &dead.outcome,
                    content: row.get_ref(dead_task::content)?.as_str()?,
                };
                let body = serde_json::to_string(&body).expect("a dead-letter call is plain data");
                let options = Options { origin, ..Options::default() };
                Ok(StoredCall { id: call, lane, destination: on_dead.sn.clone(), options, body })
            })
            .optional()
    }
}
