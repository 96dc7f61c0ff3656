//! The store's format: a row of `meta`.

use std::path::Path;

use rusqlite::Connection;

use super::fault::explain;
use crate::store::embedded::sql::{self, only};
use crate::store::format::ensure_known;
use crate::store::{FORMAT, Result};

pub(crate) fn read(db: &Connection, path: &Path) -> Result<u32> {
    let stored: i64 =
        db.query_row(sql::meta::FORMAT, [], only).map_err(|failure| explain(path, &failure))?;
    Ok(u32::try_from(stored).unwrap_or(u32::MAX))
}

/// Refuses a file whose format this program does not know.
pub(crate) fn check(db: &Connection, path: &Path) -> Result<()> {
    ensure_known(read(db, path)?, &path.display().to_string())
}

/// Gives a new file the newest format.
pub(crate) fn write_first(db: &Connection, path: &Path) -> Result<()> {
    db.execute(sql::meta::SET_FIRST_FORMAT, [FORMAT])
        .map(drop)
        .map_err(|failure| explain(path, &failure))
}
