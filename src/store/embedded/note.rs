//! `note`, `notes`: what attempts came to. Best effort, beside the road.

use std::time::Duration;

use rusqlite::Connection;

use super::ledger::{Ledger, lane_number};
use super::record::beginning;
use crate::store::{AttemptNote, MAX_ANSWER, MAX_NOTES, MAX_OUTCOME};
use crate::task::{Lane, TaskId};

pub(super) fn note(ledger: &mut Ledger<'_>, notes: &[AttemptNote]) -> rusqlite::Result<()> {
    for note in notes {
        let Some(lane) = ledger.find_lane(&note.lane)? else { continue };
        write(ledger, lane, note)?;
    }
    Ok(())
}

/// A task that is gone, or of another lane, gets none.
fn write(ledger: &Ledger<'_>, lane: i64, note: &AttemptNote) -> rusqlite::Result<()> {
    let took = i64::try_from(note.took.as_millis()).unwrap_or(i64::MAX);
    let (outcome, answer) = (beginning(&note.outcome, MAX_OUTCOME), beginning(&note.answer, MAX_ANSWER));
    let written = ledger
        .db
        .prepare_cached(
            "INSERT INTO note (task, number, attempt, started, took, outcome, answer)
             SELECT id, (SELECT ifnull(max(number), 0) + 1 FROM note WHERE task = ?1), ?3, ?4, ?5, ?6, ?7
             FROM task WHERE id = ?1 AND lane = ?2",
        )?
        .execute((note.id, lane, note.attempt, note.started, took, outcome, answer))?;
    if written == 1 {
        let most = i64::try_from(MAX_NOTES).unwrap_or(i64::MAX);
        ledger
            .db
            .prepare_cached(
                "DELETE FROM note WHERE task = ?1 AND number <= (SELECT max(number) FROM note WHERE task = ?1) - ?2",
            )?
            .execute((note.id, most))?;
    }
    Ok(())
}

pub(super) fn notes(db: &Connection, lane: &Lane, id: TaskId) -> rusqlite::Result<Vec<AttemptNote>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(Vec::new()) };
    db.prepare_cached(
        "SELECT n.attempt, n.started, n.took, n.outcome, n.answer FROM note n JOIN task t ON t.id = n.task
         WHERE n.task = ? AND t.lane = ? ORDER BY n.number",
    )?
    .query_map((id, number), |row| {
        let (attempt, took): (i64, i64) = (row.get(0)?, row.get(2)?);
        Ok(AttemptNote {
            lane: lane.clone(),
            id,
            attempt: u32::try_from(attempt).unwrap_or(0),
            started: row.get(1)?,
            took: Duration::from_millis(u64::try_from(took).unwrap_or(0)),
            outcome: row.get(3)?,
            answer: row.get(4)?,
        })
    })?
    .collect()
}

/// About how many bytes a note takes.
pub(super) fn bytes(note: &AttemptNote) -> usize {
    note.outcome.len().min(MAX_OUTCOME) + note.answer.len().min(MAX_ANSWER) + 64
}
