//! `record`, `audit`: the audit log.
//!
//! The table is created with the first entry, not by a migration: programs that know nothing of it
//! still open the file.

use std::path::Path;

use rusqlite::Connection;

use super::Embedded;
use super::disk;
use super::sql::audit::{CREATE, DELETE_OLDEST, EXISTS, INSERT, before};
use super::sql::only;
use super::write_tx::WriteTx;
use crate::store::embedded::PER_TASK;
use crate::store::{AuditCursor, AuditEntry, AuditLogged, MAX_AUDIT, Result};

impl Embedded {
    pub(crate) async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        let lines: Vec<String> = entries.iter().map(line).collect();
        // As notes, they are among the first to be refused on a disk that is short of room.
        let bytes = lines.iter().map(|line| line.len() + PER_TASK).sum();
        self.writes.add(lines.len(), bytes, move |tx| record_in(tx, &lines)).await
    }

    pub(crate) async fn audit(
        &self,
        before: Option<AuditCursor>,
        limit: usize,
    ) -> Result<AuditLogged> {
        self.reads.run(move |db| audit_from(db, before, limit)).await
    }
}

pub(super) fn record_in(tx: &mut WriteTx<'_>, lines: &[String]) -> rusqlite::Result<()> {
    append(tx.db, lines)
}

/// Appends entries in the form of [`line()`], and removes the oldest.
pub(super) fn append(db: &Connection, lines: &[String]) -> rusqlite::Result<()> {
    if !exists(db)? {
        db.execute(CREATE, [])?;
    }
    let mut insert = db.prepare_cached(INSERT)?;
    for line in lines {
        insert.execute([line])?;
    }
    let most = i64::try_from(MAX_AUDIT).unwrap_or(i64::MAX);
    db.prepare_cached(DELETE_OLDEST)?.execute([most]).map(drop)
}

/// Appends entries to the file at `path`, which no process may have open.
pub(super) fn append_at(path: &Path, entries: &[AuditEntry]) -> Result<()> {
    let lines: Vec<String> = entries.iter().map(line).collect();
    let explain = |failure| disk::fault::explain(path, &failure);
    let _lock = disk::schema::lock(path)?;
    let db = disk::schema::open(path)?;
    append(&db, &lines).map_err(explain)?;
    // Then the file is complete without its log, and can be copied alone.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(explain)
}

fn exists(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached(EXISTS)?.query_row([], only)
}

/// An entry as it is stored.
pub(super) fn line(entry: &AuditEntry) -> String {
    serde_json::to_string(entry).expect("texts and numbers are plain data")
}

pub(super) fn audit_from(
    db: &Connection,
    from: Option<AuditCursor>,
    limit: usize,
) -> rusqlite::Result<AuditLogged> {
    if !exists(db)? {
        return Ok(AuditLogged::default());
    }
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let from = from.map_or(i64::MAX, |AuditCursor(id, _)| number(id));
    let mut logged = AuditLogged::default();
    let mut seen = 0;
    let mut select = db.prepare_cached(before::SQL)?;
    let mut rows = select.query((from, number(limit as u64)))?;
    while let Some(row) = rows.next()? {
        let (id, line): (i64, String) = (row.get(before::id)?, row.get(before::entry)?);
        seen += 1;
        logged.next = Some(AuditCursor(id.unsigned_abs(), 0));
        logged.entries.extend(serde_json::from_str::<AuditEntry>(&line).ok());
    }
    if seen < limit {
        logged.next = None;
    }
    Ok(logged)
}
