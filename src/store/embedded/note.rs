//! `note`, `notes`: notes of attempts. Best effort: no delivery depends on them.

use std::time::Duration;

use rusqlite::Connection;

use super::Embedded;
use super::sql;
use super::sql::note::of_task;
use super::write_tx::{WriteTx, lane_number};
use crate::model::task::{Lane, TaskId};
use crate::store::{AttemptNote, MAX_NOTES, Result, kept_answer, kept_outcome};

impl Embedded {
    pub(crate) async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        // Notes need room, and are the first to be refused on a disk that is short of room.
        let bytes = notes.iter().map(bytes).sum();
        self.writes.add_undoable(notes.len(), bytes, move |tx| note_in(tx, &notes)).await
    }

    pub(crate) async fn notes(&self, lane: &Lane, id: TaskId) -> Result<Vec<AttemptNote>> {
        let lane = lane.clone();
        self.reads.run(move |db| notes_from(db, &lane, id)).await
    }
}

pub(super) fn note_in(tx: &mut WriteTx<'_>, notes: &[AttemptNote]) -> rusqlite::Result<()> {
    for note in notes {
        let Some(lane) = tx.find_lane(&note.lane)? else { continue };
        write(tx, lane, note)?;
    }
    Ok(())
}

/// Writes a note, unless the task is gone or in another lane.
fn write(tx: &WriteTx<'_>, lane: i64, note: &AttemptNote) -> rusqlite::Result<()> {
    let took = spans(note.took, note.wait);
    let (outcome, answer) = (kept_outcome(&note.outcome), kept_answer(&note.answer));
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

pub(super) fn notes_from(
    db: &Connection,
    lane: &Lane,
    id: TaskId,
) -> rusqlite::Result<Vec<AttemptNote>> {
    let Some(number) = lane_number(db, lane)? else { return Ok(Vec::new()) };
    db.prepare_cached(of_task::SQL)?
        .query_map((id, number), |row| {
            let attempt: i64 = row.get(of_task::attempt)?;
            let (took, wait) = read_spans(row.get(of_task::took)?);
            Ok(AttemptNote {
                lane: lane.clone(),
                id,
                attempt: u32::try_from(attempt).unwrap_or(0),
                started: row.get(of_task::started)?,
                took,
                wait,
                outcome: row.get(of_task::outcome)?,
                answer: row.get(of_task::answer)?,
            })
        })?
        .collect()
}

/// The bits of `note.took` that hold the duration: up to 37 hours, in ms.
const TOOK_BITS: u32 = 27;
const MOST_TOOK: i64 = (1 << TOOK_BITS) - 1;
/// The longest wait: two years, in ms.
const MOST_WAIT: i64 = (1 << (62 - TOOK_BITS)) - 1;

/// The value of `note.took`. The high bits hold the wait, plus 1 ms; 0 means that there is none, as
/// in notes of older versions. A column of its own would need a migration, after which older
/// versions refuse the file.
fn spans(took: Duration, wait: Option<Duration>) -> i64 {
    let millis =
        |span: Duration, most: i64| i64::try_from(span.as_millis()).unwrap_or(most).min(most);
    let wait = wait.map_or(0, |wait| millis(wait, MOST_WAIT) + 1);
    (wait << TOOK_BITS) | millis(took, MOST_TOOK)
}

/// The duration and the wait of a value of `note.took`.
fn read_spans(value: i64) -> (Duration, Option<Duration>) {
    let value = value.max(0);
    let millis = |value: i64| Duration::from_millis(value.unsigned_abs());
    let wait = value >> TOOK_BITS;
    (millis(value & MOST_TOOK), (wait > 0).then(|| millis(wait - 1)))
}

/// The approximate number of bytes of a note.
pub(super) fn bytes(note: &AttemptNote) -> usize {
    kept_outcome(&note.outcome).len() + kept_answer(&note.answer).len() + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_kept_beside_the_duration() {
        let ms = Duration::from_millis;
        let check = |took: u64, wait: Option<u64>, kept: (u64, Option<u64>)| {
            let read = read_spans(spans(ms(took), wait.map(ms)));
            assert_eq!(read, (ms(kept.0), kept.1.map(ms)), "{took} {wait:?}");
        };
        let year = 365 * 86_400_000;
        for wait in [None, Some(0), Some(1), Some(5_000), Some(year)] {
            for took in [0, 1, 600_000, MOST_TOOK.unsigned_abs()] {
                check(took, wait, (took, wait));
            }
        }
        check(u64::MAX, Some(u64::MAX), (MOST_TOOK.unsigned_abs(), Some(MOST_WAIT.unsigned_abs())));
        // As an older version wrote it.
        assert_eq!(read_spans(7), (ms(7), None));
        assert_eq!(read_spans(-1), (ms(0), None));
    }
}
