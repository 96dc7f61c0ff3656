//! The store's format: a row of `meta`.

use std::path::Path;

use rusqlite::Connection;

use super::schema;
use super::sql::{self, only};
use crate::store::format::ensure_known;
use crate::store::{Error, FORMAT, Formats, Result};

fn read(db: &Connection, path: &Path) -> Result<u32> {
    let stored: i64 = db.query_row(sql::meta::FORMAT, [], only).map_err(|failure| schema::explain(path, &failure))?;
    Ok(u32::try_from(stored).unwrap_or(u32::MAX))
}

/// Refuses a file of a format that this program does not know.
pub(super) fn check(db: &Connection, path: &Path) -> Result<()> {
    ensure_known(read(db, path)?, &path.display().to_string())
}

/// Gives a new file the newest format.
pub(super) fn write_first(db: &Connection, path: &Path) -> Result<()> {
    db.execute(sql::meta::SET_FIRST_FORMAT, [FORMAT]).map(drop).map_err(|failure| schema::explain(path, &failure))
}

/// The formats of the file at `path`. Changes nothing, and may run beside a delayd that has the file.
///
/// # Errors
/// [`Error::Misconfigured`] if there is no such store, or it is of a format or a schema that this program does not know.
pub(super) fn of(path: &Path) -> Result<Formats> {
    ensure_there(path)?;
    let db = schema::open_to_look(path)?;
    Ok(Formats::of(read(&db, path)?))
}

/// Gives the file at `path`, which nothing else may have open, the newest format. Answers its formats before.
///
/// # Errors
/// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise what SQLite says.
pub(super) fn raise(path: &Path) -> Result<Formats> {
    ensure_there(path)?;
    let _lock = schema::lock(path).map_err(|error| match error {
        Error::Misconfigured(text) => {
            Error::Misconfigured(format!("a store's format is raised while nothing has it open: {text}"))
        }
        error => error,
    })?;
    let db = schema::open(path)?;
    let before = Formats::of(read(&db, path)?);
    let explain = |failure| schema::explain(path, &failure);
    db.execute(sql::meta::SET_FORMAT, [FORMAT]).map_err(explain)?;
    // `delayd check` looks at the file without its log.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(explain)?;
    Ok(before)
}

fn ensure_there(path: &Path) -> Result<()> {
    match path.is_file() {
        true => Ok(()),
        false => Err(Error::Misconfigured(format!("there is no store at {}", path.display()))),
    }
}
