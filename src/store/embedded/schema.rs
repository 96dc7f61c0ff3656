//! The file: its connections, their settings, its schema's version, and the lock that keeps a second process out.
//!
//! `synchronous=FULL` with a write-ahead log means one fsync per transaction, before its answer. The automatic
//! checkpoint is off: it would run inside the writer's commits and halve its throughput (see `checkpoint`).

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{MigrationDefinitionError, Migrations};

use crate::store::{Error, Result};

static MIGRATIONS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/migrations");

/// Statements kept prepared per connection; more than there are in this module.
const STATEMENTS: usize = 128;

/// Takes the lock file beside `path`, creating the folder if need be. Held as long as the file is.
pub(super) fn lock(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| {
            Error::Misconfigured(format!("cannot create the store's folder {}: {error}", folder.display()))
        })?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(PathBuf::from(name)).map_err(|error| {
            Error::Misconfigured(format!("cannot write to the store's file {}: {error}", path.display()))
        })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Misconfigured(format!(
            "another process works on {}: stop it, or give this one a file of its own",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => {
            Err(Error::Misconfigured(format!("cannot lock the store's file {}: {error}", path.display())))
        }
    }
}

/// Opens the writer's connection and brings the schema up to this version.
pub(super) fn open(path: &Path) -> Result<Connection> {
    let explain =
        |error: rusqlite::Error| Error::Misconfigured(format!("cannot open the store {}: {error}", path.display()));
    let mut db = Connection::open(path).map_err(explain)?;
    set_up(&db, 65_536).map_err(explain)?;
    db.pragma_update(None, "journal_mode", "wal").map_err(explain)?;
    migrate(&mut db, path)?;
    Ok(db)
}

/// Opens one more connection, for the checkpoints.
pub(super) fn open_beside(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    set_up(&db, 2_048)?;
    Ok(db)
}

/// Opens one more connection that can only read.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    set_up(&db, 8_192)?;
    Ok(db)
}

fn set_up(db: &Connection, cache_kib: i64) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.pragma_update(None, "busy_timeout", 5_000)?;
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    // Negative: KiB instead of pages.
    db.pragma_update(None, "cache_size", -cache_kib)
}

/// The schema's version: the number of migrations.
pub(super) fn version() -> i64 {
    i64::try_from(MIGRATIONS.dirs().count()).unwrap_or(i64::MAX)
}

fn migrate(db: &mut Connection, path: &Path) -> Result<()> {
    let migrations = Migrations::from_directory(&MIGRATIONS).expect("migrations/ holds NN-name/up.sql only");
    migrations.to_latest(db).map_err(|error| match error {
        rusqlite_migration::Error::MigrationDefinition(MigrationDefinitionError::DatabaseTooFarAhead) => {
            Error::Misconfigured(format!(
                "{} was written by a newer version of delayd: use that version, or another file",
                path.display()
            ))
        }
        error => Error::Misconfigured(format!("cannot bring {} up to date: {error}", path.display())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delayd.db");
        open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
        let refusal = open(&path).unwrap_err().to_string();
        assert!(refusal.contains("newer version") && refusal.contains("delayd.db"), "{refusal}");
    }

    #[test]
    fn a_file_that_is_no_store_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delayd.db");
        std::fs::write(&path, "some text that somebody keeps here, long enough to be looked at").unwrap();
        let refusal = open(&path).unwrap_err().to_string();
        assert!(refusal.contains("delayd.db"), "{refusal}");
    }

    #[test]
    fn the_settings_are_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("delayd.db")).unwrap();
        let check = |pragma: &str, expected: &str| {
            let value: rusqlite::types::Value = db.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
            let text = match value {
                rusqlite::types::Value::Integer(number) => number.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => format!("{other:?}"),
            };
            assert_eq!(text, expected, "{pragma}");
        };
        check("journal_mode", "wal");
        check("synchronous", "2");
        check("busy_timeout", "5000");
        check("cache_size", "-65536");
        check("wal_autocheckpoint", "0");
        check("user_version", "1");
    }
}
