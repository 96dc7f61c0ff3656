//! Copies commits from the write-ahead log into the file, beside the writer.
//!
//! The automatic checkpoint would run inside the writer's commits. Instead the writer checks the
//! log after each commit and wakes a thread, which copies on its own connection while the writer
//! continues. Under constant load the thread never quite catches up. When it nearly has, and the
//! log is long, the writer copies the rest itself and restarts the log: an fsync of an overwritten
//! log takes half as long as one of a growing log.
//!
//! A restart costs the writer three fsyncs: of the log and of the file, since it copies the rest,
//! and of the header that the next commit writes. SQLite syncs the file only after a complete copy,
//! so the thread syncs what it has copied: otherwise the writer's fsync of the file would write all
//! that was copied since the last restart. A restart is rare, and waits while the disk is slow. The
//! log then grows to its share of the disk (see `space`). Only there the writer restarts it
//! whatever is left.
//!
//! A log that is longer than the disk allows now is truncated. That takes some tenths of a second,
//! because hundreds of megabytes have to be freed. A log that became long while the disk was slow
//! is truncated in steps.
//!
//! # Invariants
//!
//! - Only [`LogKeeper::tend`] restarts the log. Otherwise SQLite would do so in the next commit
//!   after the thread has copied everything, and that commit would wait for the fsync of the
//!   header. A read transaction on the log ([`Hold`]) prevents this while the thread copies.

use std::fs::File;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use super::fault::{PanicGuard, StoreHealth};
use super::space::Space;
use crate::store::Error;

/// Bytes of pages in the log that are not copied before the thread is woken.
const WAKE: i64 = 4 << 20;

/// The length of a log that is worth a restart. Half of its share of the disk, if that is less.
const LONG: i64 = 16 << 20;

/// The writer copies this little itself, in about a millisecond.
const FEW: i64 = 1 << 20;

/// The writer copies this much itself if the log has reached its cap.
const SOME: i64 = 16 << 20;

/// By how much a log that is too long is truncated when it restarts, in about 10 ms.
const STEP: u64 = 16 << 20;

/// How long the writer waits, in milliseconds, for readers of a log that has to restart.
const PATIENCE: i64 = 20;

/// The pause after such a wait in vain. A reader may stay for minutes (a check, for example), and
/// would cost each commit the wait.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct LogState {
    /// Whether a reader or another connection held the log.
    busy: bool,
    pages: i64,
    /// How many of them are in the file, too.
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

/// A read transaction, which keeps SQLite from restarting the log.
pub(crate) struct Hold(Connection);

impl Hold {
    pub(crate) fn on(db: Connection) -> Self {
        Self(db)
    }

    /// Holds the log at its newest commit. It must have commits that are not copied: of a log that
    /// is copied as a whole nothing would be held.
    fn renew(&self) -> rusqlite::Result<()> {
        self.release()?;
        self.0.execute_batch("BEGIN; PRAGMA user_version")
    }

    fn release(&self) -> rusqlite::Result<()> {
        if self.0.is_autocommit() { Ok(()) } else { self.0.execute_batch("COMMIT") }
    }
}

/// Keeps the log short, on the writer's side.
pub(crate) struct LogKeeper {
    thread: SyncSender<()>,
    turn: Turn,
    hold: Hold,
    /// The size of a page in bytes. It never changes.
    page: i64,
    /// When a restart was in vain, because a reader held the log.
    was_busy: Option<Instant>,
}

impl LogKeeper {
    /// Wakes the thread at the other end, and takes turns with it.
    pub(crate) fn new(thread: SyncSender<()>, turn: Turn, hold: Hold) -> rusqlite::Result<Self> {
        let page = hold.0.pragma_query_value(None, "page_size", |row| row.get(0))?;
        Ok(Self { thread, turn, hold, page, was_busy: None })
    }

    /// Called by the writer after a commit: wakes the thread, or restarts a log that is too long.
    pub(crate) fn tend(
        &mut self,
        db: &Connection,
        space: &mut Space,
        is_slow: bool,
    ) -> rusqlite::Result<()> {
        let log = checkpoint(db, "PRAGMA wal_checkpoint(NOOP)")?;
        let (bytes, rest) = (log.pages * self.page, (log.pages - log.copied) * self.page);
        let share = space.log_share().cast_signed();
        let long = LONG.min(share / 2);
        if self.was_busy.is_some_and(|since| since.elapsed() < PAUSE) {
            return self.wake(rest, long);
        }
        let is_at_its_share = bytes >= share || space.log_is_overgrown();
        let is_worth_it =
            bytes >= long && rest <= FEW || bytes >= space.log_cap().cast_signed() && rest <= SOME;
        if is_at_its_share {
            let turn = self.turn.clone();
            turn.take(|| self.restart(db, space, PATIENCE))
        } else if is_worth_it && !is_slow {
            let turn = self.turn.clone();
            turn.try_take(|| self.restart(db, space, 0)).unwrap_or(Ok(()))
        } else {
            self.wake(rest, long)
        }
    }

    /// Wakes the thread if so many bytes are worth a copy.
    fn wake(&self, rest: i64, long: i64) -> rusqlite::Result<()> {
        if rest < WAKE.min(long / 2) {
            return Ok(());
        }
        // While the thread copies, it copies up to the present hold.
        if let Some(renewed) = self.turn.try_take(|| self.hold.renew()) {
            // If the channel is full, the thread is awake. If it is closed, the thread has failed
            // and logged it.
            let _ = self.thread.try_send(());
            renewed?;
        }
        Ok(())
    }

    /// Copies the rest, so that the next commit overwrites the log, which costs less than growing
    /// it. Or truncates it.
    fn restart(
        &mut self,
        db: &Connection,
        space: &mut Space,
        patience: i64,
    ) -> rusqlite::Result<()> {
        self.hold.release()?;
        let log = if space.log_is_overgrown() {
            let log = finish(db, "PRAGMA wal_checkpoint(TRUNCATE)", patience)?;
            space.log_was_cut();
            log
        } else {
            let limit = space.log_to_trim().map_or(-1, |length| length.saturating_sub(STEP) as i64);
            db.pragma_update(None, "journal_size_limit", limit)?;
            finish(db, "PRAGMA wal_checkpoint(RESTART)", patience)?
        };
        self.was_busy = log.busy.then(Instant::now);
        Ok(())
    }

    /// Copies the rest of the log, and frees its room.
    pub(crate) fn cut(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.hold.release()?;
        finish(db, "PRAGMA wal_checkpoint(TRUNCATE)", PATIENCE).map(drop)
    }
}

fn finish(db: &Connection, pragma: &str, patience: i64) -> rusqlite::Result<LogState> {
    db.pragma_update(None, "busy_timeout", patience)?;
    let finished = checkpoint(db, pragma);
    db.pragma_update(None, "busy_timeout", 5_000)?;
    finished
}

/// The thread: copies whenever it is woken, and once more when the writer and the sync thread have
/// ended.
pub(crate) struct Copier {
    pub(crate) db: Connection,
    pub(crate) file: Arc<File>,
    pub(crate) wakes: Receiver<()>,
    pub(crate) turn: Turn,
    pub(crate) health: Arc<StoreHealth>,
}

impl Copier {
    /// Works until the writer and the sync thread have ended.
    pub(crate) fn run(self) {
        let _guard = PanicGuard(&self.health);
        while self.wakes.recv().is_ok() {
            if self.health.check().is_ok() {
                self.turn.take(|| {
                    self.copy("PRAGMA wal_checkpoint(PASSIVE)");
                    self.sync();
                });
            }
        }
        if self.health.check().is_ok() {
            self.copy("PRAGMA wal_checkpoint(TRUNCATE)");
        }
    }

    fn copy(&self, pragma: &str) {
        match checkpoint(&self.db, pragma).map_err(|failure| self.health.judge(&failure)) {
            // What could not be copied stays in the log. The writer runs out of room too, and logs
            // it.
            Ok(_) | Err(Error::Full(_)) => {}
            Err(error) => tracing::warn!("A checkpoint failed: {error}"),
        }
    }

    fn sync(&self) {
        if let Err(error) = self.file.sync_data() {
            self.health.condemn(&format!("the database cannot be made durable: {error}"));
        }
    }
}

fn checkpoint(db: &Connection, pragma: &str) -> rusqlite::Result<LogState> {
    db.prepare_cached(pragma)?.query_row([], |row| {
        Ok(LogState { busy: row.get(0)?, pages: row.get(1)?, copied: row.get(2)? })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::store::embedded::disk::schema;
    use crate::store::embedded::disk::space::{Gauge, Params, Volume, statvfs};

    /// A long log on a disk with room.
    struct Bench {
        folder: tempfile::TempDir,
        db: Connection,
        space: Space,
        keeper: LogKeeper,
        turn: Turn,
        _wakes: Receiver<()>,
    }

    impl Bench {
        fn new() -> Self {
            Self::with(statvfs(), 70_000_000)
        }

        fn with(gauge: Gauge, bytes: u32) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("delayd.db");
            let db = schema::open(&path).unwrap();
            schema::leave_syncs_to_a_thread(&db).unwrap();
            let params = Params { gauge, ..Params::of(&path, 0) };
            let mut space = Space::new(params).unwrap();
            let (wake, _wakes) = sync_channel(1);
            let turn = Turn::default();
            let hold = Hold::on(schema::open_beside(&path).unwrap());
            let keeper = LogKeeper::new(wake, turn.clone(), hold).unwrap();
            db.execute_batch("CREATE TABLE filler (bytes BLOB)").unwrap();
            // The first look takes the ballast.
            space.look_if_due(&db);
            space.look_if_due(&db);
            let bench = Self { folder, db, space, keeper, turn, _wakes };
            bench.write(bytes);
            bench
        }

        fn write(&self, bytes: u32) {
            self.db.execute("INSERT INTO filler VALUES (randomblob(?))", [bytes]).unwrap();
        }

        fn log(&self) -> LogState {
            checkpoint(&self.db, "PRAGMA wal_checkpoint(NOOP)").unwrap()
        }

        fn hold(&mut self) {
            self.keeper.hold.renew().unwrap();
        }

        fn commit(&self) {
            self.db.execute_batch("INSERT INTO filler VALUES ('')").unwrap();
        }

        /// As the thread does.
        fn copy(&self) {
            let path = self.folder.path().join("delayd.db");
            let beside = schema::open_beside(&path).unwrap();
            checkpoint(&beside, "PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        }

        /// Tends the log after a commit. Returns its bytes after the next one.
        fn tend(&mut self, is_slow: bool) -> i64 {
            self.keeper.tend(&self.db, &mut self.space, is_slow).unwrap();
            self.commit();
            self.log().pages * self.keeper.page
        }
    }

    /// A refusal by the thread used to count as a reader's hold. The log was left alone for a
    /// second, grew by hundreds of megabytes, and had to be truncated.
    #[test]
    fn a_log_that_the_thread_is_copying_is_started_over_as_soon_as_that_is_done() {
        let mut bench = Bench::new();
        bench.hold();
        bench.commit();
        bench.copy();
        let turn = bench.turn.clone();
        assert!(turn.take(|| bench.tend(false)) > WAKE, "it is the thread's turn");
        assert!(bench.tend(false) < FEW, "no connection holds it");
    }

    /// SQLite restarts a log that is copied as a whole, in the next commit, which then waits for an
    /// fsync.
    #[test]
    fn a_log_that_the_thread_has_copied_does_not_restart_by_itself() {
        let mut bench = Bench::new();
        let bytes = bench.tend(true);
        bench.hold();
        bench.copy();
        let log = bench.log();
        assert_eq!(log.pages, log.copied);
        bench.commit();
        let log = bench.log();
        assert!(log.pages * bench.keeper.page > bytes);
    }

    #[test]
    fn a_log_restarts_when_the_disk_is_fast_again_or_at_its_share_of_the_disk() {
        let mut bench = Bench::new();
        bench.hold();
        bench.commit();
        bench.copy();
        assert!(bench.tend(true) > LONG, "the disk is slow");
        assert!(bench.tend(false) < FEW);

        let mut bench = Bench::new();
        bench.space.ran_out();
        assert!(bench.tend(true) < FEW, "there is no room for it");
    }

    /// What the writer copies itself costs it time.
    #[test]
    fn the_writer_leaves_a_log_alone_of_which_much_is_not_copied() {
        let mut bench = Bench::new();
        assert!(bench.tend(false) > LONG);
        assert!(bench.tend(false) > LONG);
    }

    /// The share of such a disk is reached before the log is long, and there the writer waits for
    /// whatever is left.
    #[test]
    fn on_a_small_disk_a_shorter_log_is_worth_a_restart() {
        let volume = Volume { free: 64 << 20, total: 128 << 20 };
        let mut bench = Bench::with(Arc::new(move |_| Ok(volume)), 10 << 20);
        bench.hold();
        bench.commit();
        bench.copy();
        assert!(bench.tend(true) > FEW, "it has not reached its share");
        assert!(bench.tend(false) < FEW);
    }

    /// Otherwise the thread copies the same part again and again.
    #[test]
    fn the_log_is_held_at_its_newest_commit_whenever_the_thread_does_not_copy() {
        let mut bench = Bench::new();
        bench.hold();
        bench.write(10 << 20);
        bench.tend(true);
        bench.copy();
        let log = bench.log();
        assert!((log.pages - log.copied) * bench.keeper.page < FEW);
    }

    /// The writer's next restart would write all that the thread has copied.
    #[test]
    fn the_thread_syncs_what_it_copied_and_a_failure_condemns_the_store() {
        let bench = Bench::new();
        let (wake, wakes) = sync_channel(1);
        wake.send(()).unwrap();
        drop(wake);
        let health = Arc::new(StoreHealth::new());
        let copier = Copier {
            db: schema::open_beside(&bench.folder.path().join("delayd.db")).unwrap(),
            // A device that cannot be synced.
            file: Arc::new(File::open("/dev/null").unwrap()),
            wakes,
            turn: bench.turn.clone(),
            health: Arc::clone(&health),
        };
        copier.run();
        assert!(health.check().is_err());
    }
}
