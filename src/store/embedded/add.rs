//! `add`: checks for duplicates, then stores the content and puts the task on its schedule.
//!
//! Each task is answered separately; a refused task has changed nothing.

use super::Embedded;
use super::receipts::Receipts;
use super::rows::is_unreadable;
use super::sql;
use super::state::{Pending, StoredState, expiry};
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, OnDead, Options, State, TaskId};
use crate::store::{Added, Error, NewTask, Novelty, Result};

impl Embedded {
    pub(crate) async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let count = tasks.len();
        let bytes = tasks.iter().map(|task| task.content.len() + bytes_beside(task)).sum();
        match self.writes.add(count, bytes, move |tx| add_in(tx, &tasks)).await {
            Ok(added) => added,
            Err(error) => vec![Err(error); count],
        }
    }
}

pub(super) fn add_in(
    tx: &mut WriteTx<'_>,
    tasks: &[NewTask],
) -> rusqlite::Result<Vec<Result<Added>>> {
    tasks.iter().map(|task| add_one(tx, task)).collect()
}

/// Deduplication by docs/STORE.md, in its order.
fn add_one(tx: &mut WriteTx<'_>, task: &NewTask) -> rusqlite::Result<Result<Added>> {
    if tx.is_stale(&task.topic)? {
        return Ok(Err(Error::StaleEntry));
    }
    let Some(shard) = task.pinned_shard() else { return add_new(tx, task, None, None) };
    let lane = Lane { topic: task.topic.topic.clone(), shard };
    let Some(number) = tx.find_lane(&lane)? else {
        return add_new(tx, task, Some(shard), None);
    };
    if let Some(answer) = tx.answered(number, task)? {
        return Ok(answer);
    }
    match find_owner(tx, number, task.options.key.as_deref())? {
        Some((id, before)) if !before.leased => push_back(tx, &lane, id, &before, task).map(Ok),
        leased => add_new(tx, task, Some(shard), leased),
    }
}

/// The waiting or leased task that owns a key. It counts as leased only until its deadline.
pub(super) fn find_owner(
    tx: &mut WriteTx<'_>,
    lane: i64,
    key: Option<&str>,
) -> rusqlite::Result<Option<(TaskId, Owner)>> {
    let Some(key) = key else { return Ok(None) };
    let Some((id, _)) = tx.owner(lane, key)? else { return Ok(None) };
    let record = match tx.load(lane, id) {
        Ok(Some(record)) => record,
        Ok(None) => return Ok(None),
        Err(failure) if is_unreadable(&failure) => {
            tracing::error!(
                task.id = %id,
                "The state of task {id} cannot be read; its key goes to a new task: {failure}"
            );
            return Ok(None);
        }
        Err(failure) => return Err(failure),
    };
    if let Some(cancelled) = record.fulfilled(tx.now) {
        tx.replace(id, &record, &cancelled)?;
        return Ok(None);
    }
    let leased = record.state(tx.now) == State::Leased;
    Ok(match record {
        StoredState::Pending(record) => Some((id, Owner { record, leased })),
        StoredState::Ended(_) => None,
    })
}

/// A waiting or leased task that owns a key.
pub(super) struct Owner {
    pub(super) record: Pending,
    pub(super) leased: bool,
}

impl Owner {
    /// The record after a cancel.
    pub(super) fn cancelled(&self, now: UnixMillis) -> StoredState {
        match self.leased {
            true => StoredState::Pending(Pending { cancelling: true, ..self.record.clone() }),
            false => self.record.end(
                State::Cancelled,
                Receipts::default(),
                self.record.outcome.clone(),
                now,
            ),
        }
    }
}

/// Replaces the waiting task with the same key: gives it the new moment, destination, content and
/// options.
fn push_back(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    id: TaskId,
    before: &Owner,
    task: &NewTask,
) -> rusqlite::Result<Added> {
    let number = before.record.lane;
    let due = task.moment.due(tx.now);
    let destination = tx.destination(number, &task.destination)?;
    let first = tx.options(id)?;
    let drawn = first.on_dead.and_then(|on_dead| on_dead.task_id);
    let options = Options { origin: first.origin, ..with_call(tx, task, lane.shard, drawn)? };
    let after =
        Pending { expires: expiry(due, &options), ..Pending::fresh(number, destination, due) };
    tx.restart(id, &before.record, &after)?;
    tx.db.prepare_cached(sql::task::PUSH_BACK)?.execute((
        due,
        destination,
        options.json(),
        &task.content,
        id,
    ))?;
    tx.release_destination(before.record.destination)?;
    if let Some(key) = &task.options.key {
        tx.give_key(number, key, id, tx.now)?;
    }
    tx.hint(lane, destination, due)?;
    let added = Added { id, due, novelty: Novelty::Replaced };
    tx.remember_answer(number, task, added)?;
    Ok(added)
}

/// Stores a new task. `rival` is the leased task with its key, if any.
fn add_new(
    tx: &mut WriteTx<'_>,
    task: &NewTask,
    shard: Option<u16>,
    rival: Option<(TaskId, Owner)>,
) -> rusqlite::Result<Result<Added>> {
    let due = task.moment.due(tx.now);
    let id = tx.draw_id(&task.topic, shard)?;
    let lane = task.topic.lane_of(id);
    if let Some(quota) = task.quota
        && is_full(tx, &lane, quota)?
    {
        return Ok(Err(Error::OverQuota));
    }
    let number = tx.lane(&lane, &task.topic)?;
    let destination = tx.destination(number, &task.destination)?;
    let (options, expires) = match task.options.is_default() {
        true => (None, None),
        false => {
            let options = with_call(tx, task, lane.shard, None)?;
            (options.json(), expiry(due, &options))
        }
    };
    let body =
        Body { lane: number, destination, due, created: tx.now, options, content: &task.content };
    write_body(tx, id, &body)?;
    tx.join_schedule(id, &Pending { expires, ..Pending::fresh(number, destination, due) })?;
    if let Some((rival, owner)) = rival {
        let after = owner.cancelled(tx.now);
        tx.replace(rival, &StoredState::Pending(owner.record), &after)?;
    }
    let added = Added { id, due, novelty: Novelty::New };
    if let Some(key) = &task.options.key {
        tx.give_key(number, key, id, tx.now)?;
    }
    tx.remember_answer(number, task, added)?;
    tx.hint(&lane, destination, due)?;
    Ok(Ok(added))
}

fn is_full(tx: &mut WriteTx<'_>, lane: &Lane, quota: u64) -> rusqlite::Result<bool> {
    let pending = match tx.find_lane(lane)? {
        Some(number) => tx.pending(number)?,
        None => 0,
    };
    Ok(pending >= quota)
}

/// The task's options, with an id for its dead-letter call: `drawn`, or a new one of its lane.
pub(super) fn with_call(
    tx: &mut WriteTx<'_>,
    task: &NewTask,
    shard: u16,
    drawn: Option<TaskId>,
) -> rusqlite::Result<Options> {
    let mut options = task.options.clone();
    if let Some(OnDead { task_id, .. }) = &mut options.on_dead {
        *task_id = Some(match drawn {
            Some(drawn) => drawn,
            None => tx.draw_id(&task.topic, Some(shard))?,
        });
    }
    Ok(options)
}

/// The parts of a task that are written only once.
pub(super) struct Body<'a> {
    pub(super) lane: i64,
    pub(super) destination: i64,
    pub(super) due: UnixMillis,
    pub(super) created: UnixMillis,
    /// As [`Options::json`] returns them.
    pub(super) options: Option<String>,
    pub(super) content: &'a str,
}

pub(super) fn write_body(tx: &WriteTx<'_>, id: TaskId, body: &Body<'_>) -> rusqlite::Result<()> {
    let Body { lane, destination, due, created, options, content } = body;
    tx.with(sql::task::INSERT, |insert| {
        insert.execute((id, lane, destination, due, created, options, content))
    })
    .map(drop)
}

/// The approximate number of bytes that a task takes beside its content.
pub(super) fn bytes_beside(task: &NewTask) -> usize {
    let key = task.options.key.as_ref().map_or(0, String::len);
    let idempotency = task.idempotency.as_ref().map_or(0, |idempotency| idempotency.key.len());
    // A key is in the options, in its table and in the name of an idempotency key; that name is in
    // its table and in an index.
    super::PER_TASK + 3 * key + 2 * idempotency
}
