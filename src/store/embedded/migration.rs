//! `lend` and `adopt`: migration to another store, and from one.

use std::time::Duration;

use rusqlite::OptionalExtension;

use super::Embedded;
use super::add::{Body, find_owner, write_body};
use super::receipts::Receipts;
use super::rows::{is_unreadable, read_options};
use super::sql::task::{same, with_content};
use super::state::{self, EndedTask, Pending, StoredState, expiry};
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{ContentDigest, Lane, Options, Receipt, State, TaskId};
use crate::store::embedded::PER_TASK;
use crate::store::{
    Adopted, AdoptedStanding, Adoptee, Error, KEPT, LeaseKind, Result, kept_outcome,
};

impl Embedded {
    pub(crate) async fn lend(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Vec<bool>> {
        let (lane, receipt) = (lane.clone(), receipt.clone());
        self.writes.ask(ids.len(), move |tx| lend_in(tx, &lane, &ids, &receipt, lease)).await
    }

    pub(crate) async fn adopt(&self, tasks: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        let count = tasks.len();
        let bytes = tasks.iter().map(|task| task.content.len() + PER_TASK).sum();
        match self.writes.add(count, bytes, move |tx| adopt_in(tx, &tasks)).await {
            Ok(adopted) => adopted,
            Err(error) => vec![Err(error); count],
        }
    }
}

pub(super) fn lend_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    ids: &[TaskId],
    receipt: &Receipt,
    lease: Duration,
) -> rusqlite::Result<Vec<bool>> {
    let Some(lane) = tx.find_lane(lane)? else { return Ok(vec![false; ids.len()]) };
    let deadline = state::deadline(lease, tx.now);
    ids.iter()
        .map(|id| match lend_one(tx, lane, *id, receipt, deadline) {
            Err(failure) if is_unreadable(&failure) => {
                tracing::error!(task.id = %id, "Task {id} cannot be read; it stays: {failure}");
                Ok(false)
            }
            lent => lent,
        })
        .collect()
}

fn lend_one(
    tx: &mut WriteTx<'_>,
    lane: i64,
    id: TaskId,
    receipt: &Receipt,
    deadline: UnixMillis,
) -> rusqlite::Result<bool> {
    let Some(mut record) = tx.load(lane, id)? else { return Ok(false) };
    if let StoredState::Pending(held) = &record
        && held.leased
        && state::ran_out(held.due, tx.now)
    {
        let swept = held.swept(state::due_after_lease(held.due, tx.now), tx.now);
        tx.replace(id, &record, &swept)?;
        record = swept;
    }
    let StoredState::Pending(before) = &record else { return Ok(false) };
    let Some(lent) = before.lent_by(receipt, deadline) else { return Ok(false) };
    tx.replace(id, &record, &StoredState::Pending(lent))?;
    Ok(true)
}

impl Pending {
    /// Lent until `deadline`, whether it waits or is lent already. `None` if it cannot be lent.
    pub(super) fn lent_by(&self, receipt: &Receipt, deadline: UnixMillis) -> Option<Self> {
        let lease = match self.lease {
            Some(mover @ LeaseKind::Mover { .. }) if self.leased => mover,
            _ if self.leased => return None,
            _ => LeaseKind::Mover { due: self.due },
        };
        let receipts = if self.receipts.is_current(receipt) {
            self.receipts.clone()
        } else {
            self.receipts.claimed(receipt)
        };
        Some(Self { leased: true, due: deadline, receipts, lease: Some(lease), ..self.clone() })
    }

    /// Kept until `deadline` by its receiver from now on, unless a mover holds it.
    pub(super) fn kept(&self, deadline: UnixMillis) -> Self {
        let kept = Self { leased: true, due: deadline, ..self.clone() };
        match self.lease {
            Some(LeaseKind::Mover { .. }) => kept,
            _ => Self { outcome: KEPT.to_owned(), lease: Some(LeaseKind::Receiver), ..kept },
        }
    }

    /// As it waited before it was lent, if it is lent.
    pub(super) fn given_back(&self) -> Option<Self> {
        let due = self.lease.filter(|_| self.leased && !self.cancelling)?.returns_to()?;
        Some(Self {
            leased: false,
            due,
            receipts: self.receipts.retried(),
            lease: None,
            ..self.clone()
        })
    }
}

pub(super) fn adopt_in(
    tx: &mut WriteTx<'_>,
    tasks: &[Adoptee],
) -> rusqlite::Result<Vec<Result<Adopted>>> {
    let adopt = |task: &Adoptee| match tx.is_stale(&task.topic)? {
        true => Ok(Err(Error::StaleEntry)),
        false => adopt_one(tx, task).map(Ok),
    };
    tasks.iter().map(adopt).collect()
}

fn adopt_one(tx: &mut WriteTx<'_>, task: &Adoptee) -> rusqlite::Result<Adopted> {
    let lane = task.topic.lane_of(task.id);
    if let Some(known) = existing(tx, &lane, task)? {
        let is_late = known == Adopted::Taken
            && match task.lent {
                // It continues at the other store, and has the key there.
                true => is_superseded(tx, &lane, task)?,
                false => owner_is_later(tx, &lane, task)? == Some(true),
            };
        return Ok(if is_late { Adopted::Superseded } else { known });
    }
    if is_superseded(tx, &lane, task)? {
        return Ok(Adopted::Superseded);
    }
    tx.skip_ids_to(task.highest_id())?;
    let number = tx.lane(&lane, &task.topic)?;
    let destination = tx.destination(number, &task.destination)?;
    let options = task.options.json();
    let body = Body {
        lane: number,
        destination,
        due: task.due,
        created: task.created,
        options,
        content: &task.content,
    };
    write_body(tx, task.id, &body)?;
    let (attempts, outcome) = (task.attempts, kept_outcome(&task.outcome).to_owned());
    match task.standing {
        AdoptedStanding::Waiting { due } => {
            let expires = expiry(task.due, &task.options);
            let waiting =
                Pending { attempts, outcome, expires, ..Pending::fresh(number, destination, due) };
            // Without a row of `progress`, it would be a task that was never claimed and waits for
            // its stored due moment.
            if due != task.due || attempts > 0 || !waiting.outcome.is_empty() {
                tx.write_progress(task.id, &waiting)?;
            }
            tx.join_schedule(task.id, &waiting)?;
            take_key(tx, &lane, number, task)?;
            tx.hint(&lane, destination, due)?;
        }
        AdoptedStanding::Ended { state, finished } => {
            let receipts = Receipts::default();
            tx.write_history(
                task.id,
                &EndedTask { lane: number, state, finished, attempts, receipts, outcome },
            )?;
        }
    }
    Ok(Adopted::New)
}

/// The task with this id, if there is one. Ids are unique in the file.
fn existing(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    task: &Adoptee,
) -> rusqlite::Result<Option<Adopted>> {
    let found: Option<(i64, bool, Options)> = tx
        .db
        .prepare_cached(same::SQL)?
        .query_row((task.created, task.due, &task.content, task.id), |row| {
            let options = read_options(row, same::options, task.id)?;
            Ok((row.get(same::lane)?, row.get(same::is_same)?, options))
        })
        .optional()?;
    let Some((number, is_same, options)) = found else { return Ok(None) };
    let is_bare = options.removed.is_some() || task.options.removed.is_some();
    let is_same = if is_bare { is_same_by_digest(tx, task, &options)? } else { is_same };
    if !is_same || options.origin != task.options.origin || tx.find_lane(lane)? != Some(number) {
        return Ok(Some(Adopted::Taken));
    }
    let Some(record) = tx.load(number, task.id)? else { return Ok(Some(Adopted::Known)) };
    let is_leased = record.state(tx.now) == State::Leased;
    if is_leased
        && matches!(
            &record,
            StoredState::Pending(Pending { lease: Some(LeaseKind::Mover { .. }), .. })
        )
    {
        return Ok(Some(Adopted::Own));
    }
    take_end(tx, task, &record).map(Some)
}

/// Whether the stored task with these options is the same, if the content of one or both was
/// removed.
fn is_same_by_digest(
    tx: &WriteTx<'_>,
    task: &Adoptee,
    options: &Options,
) -> rusqlite::Result<bool> {
    let digest = |of: &Options, content: &str| of.removed.unwrap_or(ContentDigest::of(content));
    tx.db.prepare_cached(with_content::SQL)?.query_row([task.id], |row| {
        let content = row.get_ref(with_content::content)?.as_str()?;
        let moments = (row.get(with_content::created)?, row.get(with_content::due)?);
        Ok(moments == (task.created, task.due)
            && digest(options, content) == digest(&task.options, &task.content))
    })
}

/// A task that waits here ends if it has ended at the other store.
fn take_end(
    tx: &mut WriteTx<'_>,
    task: &Adoptee,
    record: &StoredState,
) -> rusqlite::Result<Adopted> {
    let AdoptedStanding::Ended {
        state: state @ (State::Delivered | State::Cancelled | State::Expired),
        ..
    } = task.standing
    else {
        return Ok(Adopted::Known);
    };
    let (after, adopted) = match (record.fulfilled(tx.now), record) {
        (Some(cancelled), _) => (cancelled, Adopted::Known),
        (None, StoredState::Pending(held)) if held.state(tx.now) == State::Leased => (
            StoredState::Pending(Pending { cancelling: true, ..held.clone() }),
            Adopted::Cancelling,
        ),
        (None, StoredState::Pending(waiting)) => {
            let outcome = kept_outcome(&task.outcome).to_owned();
            (waiting.end(state, Receipts::default(), outcome, tx.now), Adopted::Ended)
        }
        (None, StoredState::Ended(_)) => return Ok(Adopted::Known),
    };
    tx.replace(task.id, record, &after)?;
    Ok(adopted)
}

/// The key that the task competes for, and when it was set. A key of another lane would not be
/// found here.
fn claim_to_key<'a>(lane: &Lane, task: &'a Adoptee) -> Option<(&'a str, UnixMillis)> {
    let key = task
        .options
        .key
        .as_deref()
        .filter(|key| Lane::shard_of_key(key, task.topic.shards) == lane.shard)?;
    Some((key, task.key_set?))
}

/// Whether the owner of its key was set at the same moment as the task, or later. `None` if there
/// is no owner, or if the task does not compete.
fn owner_is_later(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    task: &Adoptee,
) -> rusqlite::Result<Option<bool>> {
    let is_waiting = matches!(task.standing, AdoptedStanding::Waiting { .. });
    let Some((key, set)) = claim_to_key(lane, task).filter(|_| is_waiting) else { return Ok(None) };
    let Some(number) = tx.find_lane(lane)? else { return Ok(None) };
    Ok(tx.owner(number, key)?.map(|(_, owner_set)| owner_set >= set))
}

/// Whether the owner of its key was set at the same moment as the task, or later. An owner that was
/// set earlier is cancelled.
fn is_superseded(tx: &mut WriteTx<'_>, lane: &Lane, task: &Adoptee) -> rusqlite::Result<bool> {
    match owner_is_later(tx, lane, task)? {
        None => return Ok(false),
        Some(true) => return Ok(true),
        Some(false) => {}
    }
    let Some(number) = tx.find_lane(lane)? else { return Ok(false) };
    if let Some((id, owner)) = find_owner(tx, number, task.options.key.as_deref())? {
        let after = owner.cancelled(tx.now);
        tx.replace(id, &StoredState::Pending(owner.record), &after)?;
    }
    Ok(false)
}

fn take_key(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    number: i64,
    task: &Adoptee,
) -> rusqlite::Result<()> {
    if let Some((key, set)) = claim_to_key(lane, task) {
        return tx.give_key(number, key, task.id, set);
    }
    let Some(key) = &task.options.key else { return Ok(()) };
    let leads_here = Lane::shard_of_key(key, task.topic.shards) == lane.shard;
    if leads_here && find_owner(tx, number, Some(key))?.is_none() {
        tx.give_key(number, key, task.id, task.created)?;
    }
    Ok(())
}
