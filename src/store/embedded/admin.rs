//! `cancel`, `reschedule` and `replay`.

use super::Embedded;
use super::find::find_in;
use super::query;
use super::rows::read_options;
use super::settle::apply;
use super::sql;
use super::sql::task::replayed;
use super::state::{Pending, StoredState, expiry};
use super::write_tx::WriteTx;
use crate::model::task::{Destination, Lane, Options, State, TaskId};
use crate::store::{Cancelled, Condition, Moment, NewContent, Rescheduled, Result, Spread};
use rusqlite::OptionalExtension;

impl Embedded {
    pub(crate) async fn cancel(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> Result<Cancelled> {
        let (lane, only) = (lane.clone(), only.cloned());
        self.writes.ask(1, move |tx| cancel_in(tx, &lane, id, only.as_ref())).await
    }

    pub(crate) async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let (lane, only) = (lane.clone(), only.cloned());
        let larger = content.as_ref().map(|new| new.content.len());
        let work = move |tx: &mut WriteTx<'_>| {
            reschedule_in(tx, &lane, (id, only.as_ref()), moment, content.as_ref())
        };
        match larger {
            Some(bytes) => self.writes.add(1, bytes, work).await,
            None => self.writes.ask(1, work).await,
        }
    }

    pub(crate) async fn replay(
        &self,
        lane: &Lane,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
        spread: Spread,
    ) -> Result<usize> {
        let (lane, outcome, weight) = (lane.clone(), outcome.map(str::to_owned), ids.len());
        self.writes
            .ask(weight, move |tx| replay_in(tx, &lane, &ids, outcome.as_deref(), spread))
            .await
    }
}

pub(super) fn cancel_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    id: TaskId,
    only: Option<&Condition>,
) -> rusqlite::Result<Cancelled> {
    let now = tx.now;
    if !tx.meets(lane, id, only)? {
        return Ok(Cancelled::Unknown);
    }
    Ok(apply(tx, lane, id, |record| record.cancel(now))?.unwrap_or(Cancelled::Unknown))
}

pub(super) fn reschedule_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    (id, only): (TaskId, Option<&Condition>),
    moment: Moment,
    content: Option<&NewContent>,
) -> rusqlite::Result<Rescheduled> {
    if !tx.meets(lane, id, only)? {
        return Ok(Rescheduled::Unknown);
    }
    let Some(number) = tx.find_lane(lane)? else { return Ok(Rescheduled::Unknown) };
    let Some(record) = tx.load(number, id)? else { return Ok(Rescheduled::Unknown) };
    if let Some(cancelled) = record.fulfilled(tx.now) {
        tx.replace(id, &record, &cancelled)?;
        return Ok(Rescheduled::Refused { state: State::Cancelled });
    }
    let state = record.state(tx.now);
    let StoredState::Pending(before) = record else { return Ok(Rescheduled::Refused { state }) };
    if state == State::Leased {
        return Ok(Rescheduled::Refused { state });
    }
    let due = moment.due(tx.now);
    if let Some(new) = content
        && new.keeps_mode
    {
        let pull = tx.find_destination(number, &Destination::pull())?;
        if new.destination.is_pull() != (pull == Some(before.destination)) {
            return Ok(Rescheduled::OtherMode);
        }
    }
    let destination = match content {
        Some(new) => tx.destination(number, &new.destination)?,
        None => before.destination,
    };
    let expires = match before.expires {
        Some(_) => expiry(due, &tx.options(id)?),
        None => None,
    };
    tx.restart(id, &before, &Pending { expires, ..Pending::fresh(number, destination, due) })?;
    tx.db.prepare_cached(sql::task::RESCHEDULE)?.execute((
        due,
        destination,
        content.map(|new| &new.content),
        id,
    ))?;
    tx.release_destination(before.destination)?;
    tx.hint(lane, destination, due)?;
    Ok(Rescheduled::Done { due })
}

pub(super) fn replay_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    ids: &[TaskId],
    outcome: Option<&str>,
    spread: Spread,
) -> rusqlite::Result<usize> {
    let Some(number) = tx.find_lane(lane)? else { return Ok(0) };
    let mut count = 0;
    let mut due = tx.now + spread.first;
    for id in ids {
        let Some(StoredState::Ended(dead)) = tx.load(number, *id)? else { continue };
        let is_meant = outcome.is_none_or(|outcome| dead.outcome == outcome);
        if dead.state != State::Dead || !is_meant {
            continue;
        }
        let body = tx
            .db
            .prepare_cached(replayed::SQL)?
            .query_row((due, id), |row| {
                let options = read_options(row, replayed::options, *id)?;
                Ok((row.get(replayed::destination)?, expiry(due, &options)))
            })
            .optional()?;
        // Without content it stays dead.
        let Some((destination, expires)) = body else { continue };
        tx.forget_place(*id, &StoredState::Ended(dead))?;
        tx.join_schedule(*id, &Pending { expires, ..Pending::fresh(number, destination, due) })?;
        tx.hint(lane, destination, due)?;
        due = due + spread.step;
        count += 1;
    }
    Ok(count)
}

impl WriteTx<'_> {
    /// Whether a task meets the condition now; always without one.
    fn meets(
        &mut self,
        lane: &Lane,
        id: TaskId,
        only: Option<&Condition>,
    ) -> rusqlite::Result<bool> {
        match only {
            None => Ok(true),
            Some(Condition::Named(name)) => {
                let Some(number) = self.find_lane(lane)? else { return Ok(false) };
                Ok(find_in(self.db, number, name, self.now)? == Some(id))
            }
            Some(Condition::Selected(selected)) => {
                let found = query::summaries_from(self.db, lane, &[id], self.now)?;
                Ok(found.iter().flatten().any(|task| task.selected() == *selected))
            }
        }
    }

    /// The options of a task; none if the task has no row.
    pub(super) fn options(&self, id: TaskId) -> rusqlite::Result<Options> {
        let read = |row: &rusqlite::Row<'_>| read_options(row, 0, id);
        let found = self.db.prepare_cached(sql::task::OPTIONS)?.query_row([id], read).optional()?;
        Ok(found.unwrap_or_default())
    }
}
