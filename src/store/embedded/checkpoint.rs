//! Moves what was committed from the write-ahead log into the file, beside the writer.
//!
//! The automatic checkpoint would do so inside the writer's commits. Instead the writer looks at
//! the log after each commit and wakes a thread with its own connection, which copies while the
//! writer goes on. Under uninterrupted load that thread never quite catches up. As soon as it
//! nearly has, the writer itself copies the rest and starts the log over, for to write over what is
//! there costs an fsync half of what it costs to let the file grow. At the log's cap (256 MiB, less
//! on a disk that is nearly full, see `space`) the writer does so however much is left. A log that
//! is longer than the disk now allows is cut, which takes some tenths of a second: hundreds of
//! megabytes have to be given back.

use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use super::fault::{Health, PanicGuard};
use super::space::Space;
use crate::store::Error;

/// Pages (of 4 KiB) that wait in the log before the thread is woken: about 4 MiB.
const WAKE: i64 = 1_024;

/// So few pages the writer copies itself, about a millisecond's work.
const FEW: i64 = 256;

/// How long the writer waits, in milliseconds, for readers to let go of a log that has to start
/// over.
const PATIENCE: i64 = 20;

/// How long after such a wait in vain it does not wait again. A reader may stay for minutes (a
/// check beside it, say), and would cost each commit that wait.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Log {
    /// Somebody held on to it.
    busy: bool,
    pages: i64,
    copied: i64,
}

/// Taken by whoever copies. SQLite lets one connection do so at a time and turns the others away as
/// if a reader held the log; the thread is done in a moment.
#[derive(Clone, Default)]
pub(super) struct Turn(Arc<Mutex<()>>);

impl Turn {
    /// Does it once nobody else is at it.
    fn take<T>(&self, copy: impl FnOnce() -> T) -> T {
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copy()
    }

    /// Does it if nobody else is at it. (Nor where one panicked at it: that ends the store.)
    fn try_take<T>(&self, copy: impl FnOnce() -> T) -> Option<T> {
        let _turn = self.0.try_lock().ok()?;
        Some(copy())
    }
}

/// The writer's care for the log.
pub(super) struct Keeper {
    thread: SyncSender<()>,
    turn: Turn,
    held: Option<Instant>,
}

impl Keeper {
    /// Wakes the thread at the other end, with which it takes turns.
    pub(super) fn new(thread: SyncSender<()>, turn: Turn) -> Self {
        Self { thread, turn, held: None }
    }

    /// Called by the writer after a commit: wakes the thread, or ends an overgrown log.
    pub(super) fn tend(&mut self, db: &Connection, space: &mut Space) -> rusqlite::Result<()> {
        let log = checkpoint(db, "PRAGMA wal_checkpoint(NOOP)")?;
        let may_end = self.held.is_none_or(|held| held.elapsed() >= PAUSE);
        if may_end && space.log_is_overgrown() {
            let log = self.turn.take(|| cut(db))?;
            self.note(&log);
            space.log_was_cut();
        } else if may_end && log.pages >= pages(space.log_cap()) {
            // The next commit writes over what is there, which costs less than to let the file grow
            // anew.
            let log = self.turn.take(|| finish(db, "PRAGMA wal_checkpoint(RESTART)", PATIENCE))?;
            self.note(&log);
        } else if may_end && log.pages >= WAKE && log.pages - log.copied <= FEW {
            if let Some(log) =
                self.turn.try_take(|| finish(db, "PRAGMA wal_checkpoint(RESTART)", 0))
            {
                self.note(&log?);
            }
        } else if log.pages - log.copied >= WAKE {
            // A full channel: it is awake already. A closed one: it failed, and said so.
            let _ = self.thread.try_send(());
        }
        Ok(())
    }

    fn note(&mut self, log: &Log) {
        self.held = log.busy.then(Instant::now);
    }
}

/// Copies what is left of the log, and gives its room back.
pub(super) fn cut(db: &Connection) -> rusqlite::Result<Log> {
    finish(db, "PRAGMA wal_checkpoint(TRUNCATE)", PATIENCE)
}

fn finish(db: &Connection, pragma: &str, patience: i64) -> rusqlite::Result<Log> {
    db.pragma_update(None, "busy_timeout", patience)?;
    let finished = checkpoint(db, pragma);
    db.pragma_update(None, "busy_timeout", 5_000)?;
    finished
}

/// SQLite's pages are of 4 KiB here.
fn pages(bytes: u64) -> i64 {
    i64::try_from(bytes / 4_096).unwrap_or(i64::MAX)
}

/// The thread: copies whenever it is woken, and once more when the writer has gone.
pub(super) fn run(db: &Connection, wakes: &Receiver<()>, turn: &Turn, health: &Arc<Health>) {
    let _guard = PanicGuard(health);
    let copy = |pragma| {
        match checkpoint(db, pragma).map_err(|failure| health.judge(&failure)) {
            // What could not be copied stays in the log. The writer runs out of room as well, and
            // says so.
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
    db.prepare_cached(pragma)?
        .query_row([], |row| Ok(Log { busy: row.get(0)?, pages: row.get(1)?, copied: row.get(2)? }))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::super::schema;
    use super::super::space::Params;
    use super::*;

    /// To be turned away by the thread used to count as a reader's hold: the log was left alone for
    /// a second, in which it grew by hundreds of megabytes, and had to be cut.
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
        // All but the last commit is copied, as far as the reader goes.
        let reader = schema::open_reader(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM filler").unwrap();
        db.execute_batch("INSERT INTO filler VALUES ('')").unwrap();
        checkpoint(&db, "PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        reader.execute_batch("COMMIT").unwrap();
        let (wake, _wakes) = sync_channel(1);
        let turn = Turn::default();
        let mut keeper = Keeper::new(wake, turn.clone());
        let mut pages_after_tending = || {
            keeper.tend(&db, &mut space).unwrap();
            db.execute_batch("INSERT INTO filler VALUES ('')").unwrap();
            checkpoint(&db, "PRAGMA wal_checkpoint(NOOP)").unwrap().pages
        };
        assert!(turn.take(&mut pages_after_tending) > WAKE, "it is the thread's turn");
        assert!(pages_after_tending() < FEW, "it is nobody's");
    }
}
