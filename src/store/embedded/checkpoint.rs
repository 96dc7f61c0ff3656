//! Moves what was committed from the write-ahead log into the file, beside the writer.
//!
//! The automatic checkpoint would do so inside the writer's commits. Instead the writer looks at the log after
//! each commit and wakes a thread with its own connection, which copies while the writer goes on. Under
//! uninterrupted load that thread never quite catches up, so the log never starts over; at its cap (256 MiB, less on a disk
//! that is nearly full, see `space`) the writer itself copies the rest, which is short by then, and starts the log over. A log that is longer than the disk now
//! allows is cut.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use rusqlite::Connection;

use super::fault::{Health, PanicGuard};
use super::space::Space;
use crate::store::Error;

/// Pages (of 4 KiB) that wait in the log before the thread is woken: about 4 MiB.
const WAKE: i64 = 1_024;

/// How long the writer waits, in milliseconds, for readers to let go of a log that it wants to start over. If they
/// do not, it tries again after the next commit.
const PATIENCE: i64 = 20;

struct Log {
    pages: i64,
    copied: i64,
}

/// Called by the writer after a commit: wakes the thread, or ends an overgrown log.
pub(super) fn tend(db: &Connection, thread: &SyncSender<()>, space: &mut Space) -> rusqlite::Result<()> {
    let log = checkpoint(db, "PRAGMA wal_checkpoint(NOOP)")?;
    if space.log_is_overgrown() {
        cut(db)?;
        space.log_was_cut();
    } else if log.pages >= pages(space.log_cap()) {
        // The next commit writes over what is there, which costs less than to let the file grow anew.
        finish(db, "PRAGMA wal_checkpoint(RESTART)")?;
    } else if log.pages - log.copied >= WAKE {
        // A full channel: it is awake already. A closed one: it failed, and said so.
        let _ = thread.try_send(());
    }
    Ok(())
}

/// Copies what is left of the log, and gives its room back.
pub(super) fn cut(db: &Connection) -> rusqlite::Result<()> {
    finish(db, "PRAGMA wal_checkpoint(TRUNCATE)")
}

fn finish(db: &Connection, pragma: &str) -> rusqlite::Result<()> {
    db.pragma_update(None, "busy_timeout", PATIENCE)?;
    let finished = checkpoint(db, pragma);
    db.pragma_update(None, "busy_timeout", 5_000)?;
    finished.map(|_| ())
}

/// SQLite's pages are of 4 KiB here.
fn pages(bytes: u64) -> i64 {
    i64::try_from(bytes / 4_096).unwrap_or(i64::MAX)
}

/// The thread: copies whenever it is woken, and once more when the writer has gone.
pub(super) fn run(db: &Connection, wakes: &Receiver<()>, health: &Arc<Health>) {
    let _guard = PanicGuard(health);
    let copy = |pragma| {
        match checkpoint(db, pragma).map_err(|failure| health.judge(&failure)) {
            // What could not be copied stays in the log. The writer runs out of room as well, and says so.
            Ok(_) | Err(Error::Full(_)) => {}
            Err(error) => tracing::warn!("A checkpoint failed: {error}"),
        }
    };
    while wakes.recv().is_ok() {
        if health.check().is_ok() {
            copy("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }
    if health.check().is_ok() {
        copy("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

fn checkpoint(db: &Connection, pragma: &str) -> rusqlite::Result<Log> {
    db.prepare_cached(pragma)?.query_row([], |row| Ok(Log { pages: row.get(1)?, copied: row.get(2)? }))
}
