//! The store's id: a row of `meta`, written by the migration.

use std::path::Path;

use rusqlite::Connection;

use super::{fault, schema};
use crate::model::task::StoreId;
use crate::store::embedded::sql::{self, only};
use crate::store::{Error, Result};

pub(crate) fn read(db: &Connection) -> rusqlite::Result<StoreId> {
    let number: i64 = db.query_row(sql::meta::STORE_ID, [], only)?;
    Ok(StoreId(number.cast_unsigned()))
}

/// Gives the store in `path` another id. No process may have it open. Returns the previous id and
/// the new one.
///
/// # Errors
/// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise those of
/// SQLite.
pub(crate) fn replace(path: &Path) -> Result<(StoreId, StoreId)> {
    schema::ensure_there(path)?;
    let explain = |failure| fault::explain(path, &failure);
    let _lock = schema::lock(path).map_err(|error| match error {
        Error::Misconfigured(text) => Error::Misconfigured(format!(
            "a store gets another id while nothing has it open: {text}"
        )),
        error => error,
    })?;
    let db = schema::open(path)?;
    let (before, id) = (read(&db).map_err(explain)?, StoreId::random());
    let number = id.0.cast_signed();
    db.execute(sql::meta::SET_STORE_ID, [number]).map_err(explain)?;
    // Then the file is complete without its log, and can be copied alone.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(explain)?;
    Ok((before, id))
}
