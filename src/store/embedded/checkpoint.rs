//! Moves what was committed from the write-ahead log into the file, beside the writer.
//!
//! The automatic checkpoint would do so inside the writer's commits. Instead the writer looks at the log after
//! each commit and wakes a thread with its own connection, which copies while the writer goes on. Under
//! uninterrupted load that thread never quite catches up, so the log never starts over; at [`CAP`] the writer
//! itself copies the rest, which is short by then, and starts the log over.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use rusqlite::Connection;

use super::fault::{Health, PanicGuard};

/// Pages (of 4 KiB) that wait in the log before the thread is woken: about 4 MiB.
const WAKE: i64 = 1_024;

/// Pages in the log at which the writer starts it over: 256 MiB.
const CAP: i64 = 65_536;

/// How long the writer waits, in milliseconds, for readers to let go of a log that it wants to start over. If
/// they do not, it tries again after the next commit.
const RESTART_PATIENCE: i64 = 20;

struct Log {
    pages: i64,
    copied: i64,
}

/// Called by the writer after a commit: wakes the thread, or starts an overgrown log over.
pub(super) fn tend(db: &Connection, thread: &SyncSender<()>) -> rusqlite::Result<()> {
    let log = checkpoint(db, "PRAGMA wal_checkpoint(NOOP)")?;
    if log.pages >= CAP {
        db.pragma_update(None, "busy_timeout", RESTART_PATIENCE)?;
        let restarted = checkpoint(db, "PRAGMA wal_checkpoint(RESTART)");
        db.pragma_update(None, "busy_timeout", 5_000)?;
        restarted?;
    } else if log.pages - log.copied >= WAKE {
        // A full channel: it is awake already. A closed one: it failed, and said so.
        let _ = thread.try_send(());
    }
    Ok(())
}

/// The thread: copies whenever it is woken, and once more when the writer has gone.
pub(super) fn run(db: &Connection, wakes: &Receiver<()>, health: &Arc<Health>) {
    let _guard = PanicGuard(health);
    let copy = |pragma| {
        if let Err(failure) = checkpoint(db, pragma) {
            let error = health.judge(&failure);
            tracing::warn!("A checkpoint failed: {error}");
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
