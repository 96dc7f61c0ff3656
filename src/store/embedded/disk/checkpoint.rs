//! Copies commits from the write-ahead log into the file, beside the writer.
//!
//! The automatic checkpoint would run inside the writer's commits. Instead the writer checks the
//! log after each commit and wakes a thread, which copies on its own connection while the writer
//! continues. Under constant load the thread never quite catches up. When it nearly has, the writer
//! copies the rest itself and restarts the log: an fsync of an overwritten log takes half as long
//! as one of a growing log.
//!
//! At the log's cap (256 MiB; less on a nearly full disk, see `space`) the writer does so whatever
//! is left. A log that is longer than the disk allows now is truncated. That takes some tenths of a
//! second, because hundreds of megabytes have to be freed.

use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use super::fault::{Health, PanicGuard};
use super::space::Space;
use crate::store::Error;

/// Bytes of pages in the log before the thread is woken.
const WAKE: i64 = 4 << 20;

/// The writer copies this little itself, in about a millisecond.
const FEW: i64 = 1 << 20;

/// How long the writer waits, in milliseconds, for readers of a log that has to restart.
const PATIENCE: i64 = 20;

/// The pause after such a wait in vain. A reader may stay for minutes (a check, for example), and
/// would cost each commit the wait.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Log {
    /// Whether a reader or another connection held the log.
    busy: bool,
    /// The bytes of all pages in the log, and of those that were copied.
    bytes: i64,
    copied: i64,
}

/// Held by the connection that copies. SQLite permits one at a time, and refuses another as if a
/// reader held the log, although the thread is finished in a moment.
#[derive(Clone, Default)]
pub(crate) struct Turn(Arc<Mutex<()>>);

impl Turn {
    /// Runs `copy` once the turn is free.
    fn take<T>(&self, copy: impl FnOnce() -> T) -> T {
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copy()
    }

    /// Runs `copy` if the turn is free. (Also not after a panic within it, which ends the store.)
    fn try_take<T>(&self, copy: impl FnOnce() -> T) -> Option<T> {
        let _turn = self.0.try_lock().ok()?;
        Some(copy())
    }
}

/// Keeps the log short, on the writer's side.
pub(crate) struct Keeper {
    thread: SyncSender<()>,
    turn: Turn,
    held: Option<Instant>,
}

impl Keeper {
    /// Wakes the thread at the other end, and takes turns with it.
    pub(crate) fn new(thread: SyncSender<()>, turn: Turn) -> Self {
        Self { thread, turn, held: None }
    }

    /// Called by the writer after a commit: wakes the thread, or restarts a log that is too long.
    pub(crate) fn tend(&mut self, db: &Connection, space: &mut Space) -> rusqlite::Result<()> {
        let log = checkpoint(db, "PRAGMA wal_checkpoint(NOOP)")?;
        let may_end = self.held.is_none_or(|held| held.elapsed() >= PAUSE);
        if may_end && space.log_is_overgrown() {
            let log = self.turn.take(|| cut(db))?;
            self.note(&log);
            space.log_was_cut();
        } else if may_end && log.bytes >= space.log_cap().cast_signed() {
            // The next commit overwrites the log, which costs less than growing it again.
            let log = self.turn.take(|| finish(db, "PRAGMA wal_checkpoint(RESTART)", PATIENCE))?;
            self.note(&log);
        } else if may_end && log.bytes >= WAKE && log.bytes - log.copied <= FEW {
            if let Some(log) =
                self.turn.try_take(|| finish(db, "PRAGMA wal_checkpoint(RESTART)", 0))
            {
                self.note(&log?);
            }
        } else if log.bytes - log.copied >= WAKE {
            // If the channel is full, the thread is awake. If it is closed, the thread has failed
            // and logged it.
            let _ = self.thread.try_send(());
        }
        Ok(())
    }

    fn note(&mut self, log: &Log) {
        self.held = log.busy.then(Instant::now);
    }
}

/// Copies the rest of the log, and frees its room.
pub(crate) fn cut(db: &Connection) -> rusqlite::Result<Log> {
    finish(db, "PRAGMA wal_checkpoint(TRUNCATE)", PATIENCE)
}

fn finish(db: &Connection, pragma: &str, patience: i64) -> rusqlite::Result<Log> {
    db.pragma_update(None, "busy_timeout", patience)?;
    let finished = checkpoint(db, pragma);
    db.pragma_update(None, "busy_timeout", 5_000)?;
    finished
}

/// The thread: copies whenever it is woken, and once more when the writer has ended.
pub(crate) fn run(db: &Connection, wakes: &Receiver<()>, turn: &Turn, health: &Arc<Health>) {
    let _guard = PanicGuard(health);
    let copy = |pragma| {
        match checkpoint(db, pragma).map_err(|failure| health.judge(&failure)) {
            // What could not be copied stays in the log. The writer runs out of room too, and logs
            // it.
            Ok(_) | Err(Error::Full(_)) => {}
            Err(error) => tracing::warn!("A checkpoint failed: {error}"),
        }
    };
    while wakes.recv().is_ok() {
        if health.check().is_ok() {
            turn.take(|| copy("PRAGMA wal_checkpoint(PASSIVE)"));
        }
    }
    if health.check().is_ok() {
        copy("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

fn checkpoint(db: &Connection, pragma: &str) -> rusqlite::Result<Log> {
    let page: i64 = db.prepare_cached("PRAGMA page_size")?.query_row([], |row| row.get(0))?;
    db.prepare_cached(pragma)?.query_row([], |row| {
        let bytes = |column| row.get::<_, i64>(column).map(|pages| pages * page);
        Ok(Log { busy: row.get(0)?, bytes: bytes(1)?, copied: bytes(2)? })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::store::embedded::disk::schema;
    use crate::store::embedded::disk::space::Params;

    /// A refusal by the thread used to count as a reader's hold. The log was left alone for a
    /// second, grew by hundreds of megabytes, and had to be truncated.
    #[test]
    fn a_log_that_the_thread_is_copying_is_started_over_as_soon_as_that_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delayd.db");
        let db = schema::open(&path).unwrap();
        let mut space = Space::new(Params::of(&path, 0)).unwrap();
        db.execute_batch(
            "CREATE TABLE filler (bytes BLOB); INSERT INTO filler SELECT randomblob(8000000)",
        )
        .unwrap();
        // All commits except the last are copied, up to the reader's position.
        let reader = schema::open_reader(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM filler").unwrap();
        db.execute_batch("INSERT INTO filler VALUES ('')").unwrap();
        checkpoint(&db, "PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        reader.execute_batch("COMMIT").unwrap();
        let (wake, _wakes) = sync_channel(1);
        let turn = Turn::default();
        let mut keeper = Keeper::new(wake, turn.clone());
        let mut bytes_after_tending = || {
            keeper.tend(&db, &mut space).unwrap();
            db.execute_batch("INSERT INTO filler VALUES ('')").unwrap();
            checkpoint(&db, "PRAGMA wal_checkpoint(NOOP)").unwrap().bytes
        };
        assert!(turn.take(&mut bytes_after_tending) > WAKE, "it is the thread's turn");
        assert!(bytes_after_tending() < FEW, "no connection holds it");
    }
}
