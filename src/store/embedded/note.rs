//! `note`, `notes`: notes of attempts. Best effort: no delivery depends on them.

use std::time::Duration;

use rusqlite::Connection;

use super::record::beginning;
use super::sql;
use super::sql::note::of_task;
use super::write_tx::{WriteTx, lane_number};
use crate::model::task::{Lane, TaskId};
use crate::store::{AttemptNote, MAX_ANSWER, MAX_NOTES, MAX_OUTCOME};

pub(super) fn note(tx: &mut WriteTx<'_>, notes: &[AttemptNote]) -> rusqlite::Result<()> {
    for note in notes {
        let Some(lane) = tx.find_lane(&note.lane)? else { continue };
        write(tx, lane, note)?;
    }
    Ok(())
}

/// Writes a note, unless the task is gone or in another lane.
fn write(tx: &WriteTx<'_>, lane: i64, note: &AttemptNote) -> rusqlite::Result<()> {
    let took = i64::try_from(note.took.as_millis()).unwrap_or(i64::MAX);
    let (outcome, answer) =
        (beginning(&note.outcome, MAX_OUTCOME), beginning(&note.answer, MAX_ANSWER));
    let written = tx.db.prepare_cached(sql::note::INSERT)?.execute((
        note.id,
        lane,
        note.attempt,
        note.started,
        took,
        outcome,
        answer,
    ))?;
    if written == 1 {
        let most = i64::try_from(MAX_NOTES).unwrap_or(i64::MAX);
        tx.db.prepare_cached(sql::note::DELETE_OLDEST)?.execute((note.id, most))?;
    }
    Ok(())
}

pub(super) fn notes(
    db: &Connection,
    lane: &Lane,
    id: TaskId,
) -> rusqlite::Result<Vec<AttemptNote>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(Vec::new()) };
    db.prepare_cached(of_task::SQL)?
        .query_map((id, number), |row| {
            let (attempt, took): (i64, i64) = (row.get(of_task::attempt)?, row.get(of_task::took)?);
            Ok(AttemptNote {
                lane: lane.clone(),
                id,
                attempt: u32::try_from(attempt).unwrap_or(0),
                started: row.get(of_task::started)?,
                took: Duration::from_millis(u64::try_from(took).unwrap_or(0)),
                outcome: row.get(of_task::outcome)?,
                answer: row.get(of_task::answer)?,
            })
        })?
        .collect()
}

/// The approximate number of bytes of a note.
pub(super) fn bytes(note: &AttemptNote) -> usize {
    note.outcome.len().min(MAX_OUTCOME) + note.answer.len().min(MAX_ANSWER) + 64
}
