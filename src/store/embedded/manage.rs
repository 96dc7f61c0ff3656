//! What people do to tasks and topics: `cancel`, `reschedule`, `replay`, `purge`, `register`, `recover_topics`.

use super::add::due;
use super::ledger::Ledger;
use super::record::{Pending, Record};
use super::rows::{read_topic, state_number};
use super::settle::apply;
use super::values::rows;
use crate::clock::UnixMillis;
use crate::store::{Cancelled, Moment, NewContent, Rescheduled, TopicEntry};
use crate::task::{Lane, State, TaskId};
use rusqlite::OptionalExtension;

pub(super) fn cancel(ledger: &mut Ledger<'_>, lane: &Lane, id: TaskId) -> rusqlite::Result<Cancelled> {
    let now = ledger.now;
    Ok(apply(ledger, lane, id, |record| record.cancel(now))?.unwrap_or(Cancelled::Unknown))
}

pub(super) fn reschedule(
    ledger: &mut Ledger<'_>,
    lane: &Lane,
    id: TaskId,
    moment: Moment,
    content: Option<&NewContent>,
) -> rusqlite::Result<Rescheduled> {
    let Some(number) = ledger.find_lane(lane)? else { return Ok(Rescheduled::Unknown) };
    let Some(record) = ledger.load(number, id)? else { return Ok(Rescheduled::Unknown) };
    if let Some(cancelled) = record.fulfilled(ledger.now) {
        ledger.replace(id, &record, &cancelled)?;
        return Ok(Rescheduled::Refused { state: State::Cancelled });
    }
    let state = record.state(ledger.now);
    let Record::Pending(before) = record else { return Ok(Rescheduled::Refused { state }) };
    if state == State::Leased {
        return Ok(Rescheduled::Refused { state });
    }
    let due = due(moment, ledger.now);
    let destination = match content {
        Some(new) => ledger.destination(number, &new.destination)?,
        None => before.destination,
    };
    ledger.restart(id, &before, &Pending::fresh(number, destination, due))?;
    ledger
        .db
        .prepare_cached("UPDATE task SET due = ?, destination = ?, content = ifnull(?, content) WHERE id = ?")?
        .execute((due, destination, content.map(|new| &new.content), id))?;
    ledger.hint(lane, destination, due)?;
    Ok(Rescheduled::Done { due })
}

pub(super) fn replay(ledger: &mut Ledger<'_>, lane: &Lane, ids: &[TaskId]) -> rusqlite::Result<usize> {
    let Some(number) = ledger.find_lane(lane)? else { return Ok(0) };
    let mut replayed = 0;
    for id in ids {
        let Some(dead) = ledger.load(number, *id)?.filter(|record| record.state(ledger.now) == State::Dead) else {
            continue;
        };
        let destination = ledger
            .db
            .prepare_cached("SELECT destination FROM task WHERE id = ?")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        // Without a body it stays dead.
        let Some(destination) = destination else { continue };
        let alive = Record::Pending(Pending::fresh(number, destination, ledger.now));
        ledger.replace(*id, &dead, &alive)?;
        ledger.hint(lane, destination, ledger.now)?;
        replayed += 1;
    }
    Ok(replayed)
}

pub(super) fn purge(
    ledger: &mut Ledger<'_>,
    lane: &Lane,
    state: State,
    before: UnixMillis,
    limit: usize,
) -> rusqlite::Result<usize> {
    let Some(lane) = ledger.find_lane(lane)? else { return Ok(0) };
    let mut ids: Vec<TaskId> = ledger
        .db
        .prepare_cached(
            "SELECT id FROM history WHERE lane = ? AND state = ? AND finished < ? ORDER BY finished, id LIMIT ?",
        )?
        .query_map((lane, state_number(state), before, rows(limit)), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    // Bodies lie in the order of their ids; deleting them at random is the slowest step of a task's whole road.
    ids.sort_unstable();
    let mut forget_end = ledger.db.prepare_cached("DELETE FROM history WHERE id = ?")?;
    let mut forget_body = ledger.db.prepare_cached("DELETE FROM task WHERE id = ?")?;
    for id in &ids {
        forget_end.execute([id])?;
        forget_body.execute([id])?;
    }
    Ok(ids.len())
}

pub(super) fn register(ledger: &mut Ledger<'_>, entry: &TopicEntry) -> rusqlite::Result<TopicEntry> {
    ledger.register(entry)?;
    let shards = ledger
        .db
        .prepare_cached("SELECT shards FROM topic WHERE name = ?")?
        .query_row([entry.topic.as_str()], |row| row.get(0))?;
    Ok(TopicEntry { topic: entry.topic.clone(), shards })
}

/// An add writes its topic with its lane, so nothing is ever found here unless somebody edited the file.
pub(super) fn recover_topics(ledger: &mut Ledger<'_>) -> rusqlite::Result<Vec<TopicEntry>> {
    let lost: Vec<TopicEntry> = ledger
        .db
        .prepare_cached(
            "SELECT topic, max(shard) + 1 FROM lane WHERE topic NOT IN (SELECT name FROM topic) GROUP BY topic",
        )?
        .query_map([], read_topic)?
        .filter_map(Result::transpose)
        .collect::<rusqlite::Result<_>>()?;
    for entry in &lost {
        ledger.register(entry)?;
    }
    Ok(lost)
}
