//! Checks that each row of `progress`, `history` and `note` has a task, and runs SQLite's check of
//! the file.

use rusqlite::Connection;

use super::remedy::Remedy;
use super::{PAGE, Page, Stage, read_lane};
use crate::store::Flaw;
use crate::store::embedded::sql::progress::strays;
use crate::store::embedded::sql::{self, only};
use crate::store::embedded::values::rows;

/// The most errors of the file that SQLite reports.
const MAX_DAMAGES: usize = 20;

pub(super) fn look_progress(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let flaw = |leased| if leased { Flaw::LeasedWithoutBody } else { Flaw::EntryWithoutBody };
    look(
        db,
        sql::progress::strays::SQL,
        after,
        |after| Stage::Progress { after },
        flaw,
        Remedy::forget_progress,
    )
}

pub(super) fn look_history(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    look(
        db,
        sql::history::strays::SQL,
        after,
        |after| Stage::History { after },
        |_| Flaw::EndedWithoutBody,
        Remedy::forget_end,
    )
}

pub(super) fn look_notes(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    look(
        db,
        sql::note::strays::SQL,
        after,
        |after| Stage::Notes { after },
        |_| Flaw::NoteWithoutBody,
        Remedy::forget_notes,
    )
}

/// Runs a statement named `strays`. They have the same columns.
fn look(
    db: &Connection,
    select: &str,
    after: i64,
    stage: fn(i64) -> Stage,
    flaw: fn(bool) -> Flaw,
    remedy: fn(i64) -> Remedy,
) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut statement = db.prepare_cached(select)?;
    let mut found = statement.query((after, rows(PAGE)))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = found.next()? {
        (count, last) = (count + 1, row.get(strays::id)?);
        if !row.get::<_, bool>(strays::has_body)? {
            page.find(
                flaw(row.get(strays::leased)?),
                read_lane(row, (strays::topic, strays::shard))?.as_ref(),
                last,
                vec![remedy(last)],
            );
        }
    }
    page.rest = (count == PAGE).then(|| stage(last));
    Ok(page)
}

pub(super) fn look_file(db: &Connection) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({MAX_DAMAGES})"))?;
    for said in statement.query_map([], only::<String>)? {
        let said = said?;
        if said != "ok" {
            page.find(Flaw::Damaged, None, said, Vec::new());
        }
    }
    Ok(page)
}
