//! `delayd format`: the formats of a file, and raising them while no process has it open.

use std::path::Path;

use super::fault::explain;
use super::format::read;
use super::schema;
use crate::store::embedded::sql;
use crate::store::{Error, FORMAT, Formats, Result};

/// The formats of the file at `path`. Changes nothing, and may run beside a delayd that has the
/// file.
///
/// # Errors
/// [`Error::Misconfigured`] if there is no such store, or this program does not know its format or
/// schema.
pub(crate) fn formats_of(path: &Path) -> Result<Formats> {
    schema::ensure_there(path)?;
    let db = schema::open_to_look(path)?;
    Ok(Formats::of(read(&db, path)?))
}

/// Gives the file at `path` the newest format. No process may have it open. Returns its formats
/// before.
///
/// # Errors
/// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise those of
/// SQLite.
pub(crate) fn raise(path: &Path) -> Result<Formats> {
    schema::ensure_there(path)?;
    let _lock = schema::lock(path).map_err(|error| match error {
        Error::Misconfigured(text) => Error::Misconfigured(format!(
            "a store's format is raised while nothing has it open: {text}"
        )),
        error => error,
    })?;
    let db = schema::open(path)?;
    let before = Formats::of(read(&db, path)?);
    let explain = |failure| explain(path, &failure);
    db.execute(sql::meta::SET_FORMAT, [FORMAT]).map_err(explain)?;
    // `delayd check` reads the file without its log.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(explain)?;
    Ok(before)
}
