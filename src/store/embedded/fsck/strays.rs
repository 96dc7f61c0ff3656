//! Has each row of `progress`, `history` and `note` a body? And is SQLite content with its file?

use rusqlite::Connection;

use super::super::values::rows;
use super::remedy::Remedy;
use super::{PAGE, Page, Stage, read_lane};
use crate::store::Flaw;

/// The most that SQLite says about its file.
const MAX_DAMAGES: usize = 20;

pub(super) fn look_progress(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let select = "SELECT p.id, t.id IS NOT NULL, p.leased <> 0, l.topic, l.shard
                  FROM progress p LEFT JOIN task t ON t.id = p.id LEFT JOIN lane l ON l.id = p.lane
                  WHERE p.id > ? ORDER BY p.id LIMIT ?";
    let flaw = |leased| if leased { Flaw::LeasedWithoutBody } else { Flaw::EntryWithoutBody };
    look(db, select, after, |after| Stage::Progress { after }, flaw, Remedy::forget_progress)
}

pub(super) fn look_history(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let select = "SELECT h.id, t.id IS NOT NULL, 0, l.topic, l.shard
                  FROM history h LEFT JOIN task t ON t.id = h.id LEFT JOIN lane l ON l.id = h.lane
                  WHERE h.id > ? ORDER BY h.id LIMIT ?";
    look(db, select, after, |after| Stage::History { after }, |_| Flaw::EndedWithoutBody, Remedy::forget_end)
}

pub(super) fn look_notes(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let select = "SELECT n.task, t.id IS NOT NULL, 0, l.topic, l.shard
                  FROM note n LEFT JOIN task t ON t.id = n.task LEFT JOIN lane l ON l.id = t.lane
                  WHERE n.task > ? GROUP BY n.task ORDER BY n.task LIMIT ?";
    look(db, select, after, |after| Stage::Notes { after }, |_| Flaw::NoteWithoutBody, Remedy::forget_notes)
}

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
        (count, last) = (count + 1, row.get(0)?);
        if !row.get::<_, bool>(1)? {
            page.find(flaw(row.get(2)?), read_lane(row, 3)?.as_ref(), last, vec![remedy(last)]);
        }
    }
    page.rest = (count == PAGE).then(|| stage(last));
    Ok(page)
}

pub(super) fn look_file(db: &Connection) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({MAX_DAMAGES})"))?;
    for said in statement.query_map([], |row| row.get::<_, String>(0))? {
        let said = said?;
        if said != "ok" {
            page.find(Flaw::Damaged, None, said, Vec::new());
        }
    }
    Ok(page)
}
