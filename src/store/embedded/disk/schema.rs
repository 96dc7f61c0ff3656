//! The file: its connections and their settings, the version of its schema, and the lock that keeps
//! a second process out.
//!
//! `synchronous=FULL` with a write-ahead log means one fsync per transaction. A running store's
//! writer has `NORMAL` and commits without an fsync: the sync thread makes the log durable (see
//! `wal_sync`). The automatic checkpoint is off: it would run inside the writer's commits and halve
//! its throughput (see `checkpoint`). SQLite's checkpoint at the last close is off too: after a
//! failed fsync it would copy data that may not be on disk, and delete the log that still has it.
//!
//! A file of another program is refused before anything in it is changed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{MigrationDefinitionError, Migrations};

use super::fault::{cannot_open, explain, translate};
use super::format;
use crate::store::embedded::sql::{self, only};
use crate::store::{Error, Result};

static MIGRATIONS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/migrations");

/// The page size of a new file, in bytes. Each page that a transaction touches is written to the
/// log as a whole, and most transactions touch three to ten pages with few bytes each.
pub(crate) const PAGE: u16 = 1_024;

/// How many prepared statements a connection keeps; more than this module has.
const STATEMENTS: usize = 128;

/// Refuses a folder in the place of the file, which SQLite would report as a failed disk.
pub(crate) fn ensure_no_folder(path: &Path) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let (folder, file) = (path.display(), path.join("delayd.db"));
    Err(Error::Misconfigured(format!(
        "{folder}: expected a file, got a folder; name a file in store.embedded.path, such as {}",
        file.display()
    )))
}

/// Refuses a path at which there is no store, or whose folder may not be looked into.
pub(crate) fn ensure_there(path: &Path) -> Result<()> {
    ensure_no_folder(path)?;
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(Error::Misconfigured(format!(
                "cannot look for a store at {shown}: {error}; run this as the user that runs delayd"
            )))
        }
        _ => Err(Error::Misconfigured(format!("there is no store at {shown}"))),
    }
}

/// The error of a file in the place of the folder.
pub(crate) fn no_folder(path: &Path) -> Error {
    Error::Misconfigured(format!(
        "{}: expected a folder, got a file; name a file in another folder in store.embedded.path",
        path.display()
    ))
}

/// Takes the lock file beside `path`, creating the folder if necessary. It is held as long as the
/// file.
pub(crate) fn lock(path: &Path) -> Result<File> {
    ensure_no_folder(path)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        if folder.is_file() {
            return Err(no_folder(folder));
        }
        std::fs::create_dir_all(folder).map_err(|error| {
            Error::Misconfigured(format!(
                "cannot create the store's folder {}: {error}",
                folder.display()
            ))
        })?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(PathBuf::from(name))
        .map_err(|error| {
            Error::Misconfigured(format!(
                "cannot write to the store's file {}: {error}",
                path.display()
            ))
        })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Misconfigured(format!(
            "another process works on {}: stop it, or give this one a file of its own",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(Error::Misconfigured(format!(
            "cannot lock the store's file {}: {error}",
            path.display()
        ))),
    }
}

/// Opens the writer's connection, and updates the schema to this version.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let explain = |failure: rusqlite::Error| explain(path, &failure);
    ensure_ours(path)?;
    let mut db = Connection::open(path).map_err(explain)?;
    set_up(&db, 65_536).map_err(explain)?;
    // A file that has tables keeps its page size.
    db.pragma_update(None, "page_size", PAGE).map_err(explain)?;
    db.pragma_update(None, "journal_mode", "wal").map_err(explain)?;
    migrate(&mut db, path)?;
    format::write_first(&db, path)?;
    format::check(&db, path)?;
    rewrite_log(&db, path)?;
    // The first thing that an add reads.
    db.query_row(sql::meta::LAST_ID, [], only::<i64>).map_err(explain)?;
    Ok(db)
}

/// Opens a connection for checkpoints.
pub(crate) fn open_beside(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    set_up(&db, 2_048)?;
    Ok(db)
}

/// Opens a connection that can only read.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let db = look_into(path)?;
    set_up(&db, 8_192)?;
    Ok(db)
}

/// Opens a file of this version for reading. Changes nothing, and may run beside a delayd that has
/// it.
pub(crate) fn open_to_look(path: &Path) -> Result<Connection> {
    let explain = |error: rusqlite::Error| cannot_open(path, &error);
    let db = open_reader(path).map_err(explain)?;
    let stored: i64 =
        db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(explain)?;
    let ours = version();
    if stored != ours {
        let (age, advice) = if stored < ours {
            ("an older", "start delayd once, or repair it, to bring it up to date")
        } else {
            ("a newer", "use that version")
        };
        return Err(Error::Misconfigured(format!(
            "{} was written by {age} version of delayd: {advice}",
            path.display()
        )));
    }
    format::check(&db, path)?;
    Ok(db)
}

fn look_into(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

/// Opens the file as immutable: without a lock and without its log, and without creating a file
/// beside it. What changes only at a start (the schema and its version) can be read in this way
/// beside a running delayd too.
pub(crate) fn look_at_rest(path: &Path) -> Result<Connection> {
    let name = std::path::absolute(path).ok().and_then(|path| url::Url::from_file_path(path).ok());
    let mut name = name
        .ok_or_else(|| Error::Misconfigured(format!("{} is no path of a file", path.display())))?;
    name.set_query(Some("immutable=1"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(name.as_str(), flags).map_err(|failure| explain(path, &failure))
}

fn set_up(db: &Connection, cache_kib: i64) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Otherwise a statement that compares a parameter with the condition of an index is prepared
    // anew each time the parameter is bound.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.pragma_update(None, "busy_timeout", 5_000)?;
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    // Negative: KiB instead of pages.
    db.pragma_update(None, "cache_size", -cache_kib)
}

/// Lets commits return without an fsync. After a power cut, such a commit is either complete or
/// missing, and never there without those before it. Checkpoints sync as before, and so does the
/// commit that begins a restarted log: its header must be on disk before any frame.
pub(crate) fn leave_syncs_to_a_thread(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "synchronous", "normal")
}

/// Refuses a database of another program. A file without tables belongs to none yet.
fn ensure_ours(path: &Path) -> Result<()> {
    if std::fs::metadata(path).map_or(0, |file| file.len()) == 0 {
        return Ok(());
    }
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    // A first start that was cut off leaves a journal, which a reader cannot roll back.
    let db = if Path::new(&journal).exists() { Connection::open(path) } else { look_into(path) };
    ensure_is_ours(&db.map_err(|failure| explain(path, &failure))?, path)
}

/// Refuses an open database of another program.
pub(crate) fn ensure_is_ours(db: &Connection, path: &Path) -> Result<()> {
    let count = |of: &str| {
        let select = format!("SELECT count(*) FROM sqlite_schema WHERE type = 'table' {of}");
        db.query_row(&select, [], |row| row.get::<_, i64>(0))
    };
    let all = count("").map_err(|failure| explain(path, &failure))?;
    let ours = count("AND name IN ('meta', 'lane', 'destination', 'schedule')");
    if all > 0 && ours.map_err(|failure| explain(path, &failure))? < 4 {
        return Err(Error::Misconfigured(format!(
            "{} is a database of another program: name another file in store.embedded.path",
            path.display()
        )));
    }
    Ok(())
}

/// Copies what the previous process left in the log, and restarts the log.
///
/// If that process ended by a failed fsync, parts of the log may be in the system's cache and not
/// on disk, and no later fsync writes them. A commit behind such a hole would be lost with the
/// machine.
fn rewrite_log(db: &Connection, path: &Path) -> Result<()> {
    match db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        Ok(()) => Ok(()),
        // It stays in the log, which is read too. The writer logs that the disk is full.
        Err(failure) if matches!(translate(&failure), Error::Full(_)) => Ok(()),
        Err(failure) => Err(explain(path, &failure)),
    }
}

/// The version of the schema: the number of migrations.
pub(crate) fn version() -> i64 {
    i64::try_from(MIGRATIONS.dirs().count()).unwrap_or(i64::MAX)
}

fn migrate(db: &mut Connection, path: &Path) -> Result<()> {
    let migrations =
        Migrations::from_directory(&MIGRATIONS).expect("migrations/ holds NN-name/up.sql only");
    migrations.to_latest(db).map_err(|error| match error {
        rusqlite_migration::Error::MigrationDefinition(
            MigrationDefinitionError::DatabaseTooFarAhead,
        ) => too_new(path),
        rusqlite_migration::Error::RusqliteError { err, .. } => explain(path, &err),
        error => {
            Error::Misconfigured(format!("cannot bring {} up to date: {error}", path.display()))
        }
    })
}

/// The error of a file whose schema is newer than this program.
pub(crate) fn too_new(path: &Path) -> Error {
    let path = path.display();
    Error::Misconfigured(format!(
        "{path} was written by a newer version of delayd: use that version, or another file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message was "the disk failed …: disk I/O error", and a lock file remained beside the
    /// folder.
    #[test]
    fn a_folder_is_no_file_and_a_file_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::create_dir(&path).unwrap();
        let refusal = lock(&path).unwrap_err().to_string();
        assert!(
            refusal.contains("data: expected a file, got a folder; name a file in"),
            "{refusal}"
        );
        assert!(refusal.ends_with("data/delayd.db"), "{refusal}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refusal = lock(&file.join("delayd.db")).unwrap_err().to_string();
        assert!(refusal.contains("file: expected a folder, got a file"), "{refusal}");
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delayd.db");
        open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
        let refusal = open(&path).unwrap_err().to_string();
        assert!(refusal.contains("newer version") && refusal.contains("delayd.db"), "{refusal}");
    }

    /// A claim's lookup of the next moment was prepared anew each time, because it compared a
    /// parameter with the condition of the index of called destinations. That was most of the
    /// writer's work.
    #[test]
    fn no_statement_is_prepared_anew_for_another_value() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("delayd.db")).unwrap();
        let mut statement = db
            .prepare(
                "SELECT min(earliest) FROM destination WHERE lane = ? AND called = ? \
                AND earliest > ?",
            )
            .unwrap();
        for called in [0, 1, 0, 1] {
            statement.query_row((1, called, 0), |row| row.get::<_, Option<i64>>(0)).unwrap();
        }
        assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
    }

    /// Each page was 4 KiB, so that a task of 200 bytes cost 30 KB of writes.
    #[test]
    fn a_new_file_has_small_pages_and_a_file_keeps_those_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let page_size = |path: &Path| -> u16 {
            open(path).unwrap().pragma_query_value(None, "page_size", |row| row.get(0)).unwrap()
        };
        assert_eq!(page_size(&folder.path().join("new.db")), PAGE);
        let old = folder.path().join("old.db");
        let create = "PRAGMA page_size = 4096; PRAGMA journal_mode = wal";
        Connection::open(&old).unwrap().execute_batch(create).unwrap();
        assert_eq!((page_size(&old), page_size(&old)), (4_096, 4_096));
    }

    #[test]
    fn the_settings_are_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("delayd.db")).unwrap();
        let check = |pragma: &str, expected: &str| {
            let value: rusqlite::types::Value =
                db.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
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
        check("user_version", &MIGRATIONS.dirs().count().to_string());
    }
}
