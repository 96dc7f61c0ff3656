//! Makes the write-ahead log durable. No other function of the program does.
//!
//! # Invariants
//!
//! - The handle of the `-wal` file stays open as long as the store. So it reports every failed
//!   write-back since the start, also one that another handle has met.
//! - While a connection of this process is open, the `-wal` file is the same file: only the close
//!   of the last connection could delete it, and `NO_CKPT_ON_CLOSE` forbids that.
//! - SQLite takes no locks on the `-wal` file, so closing this handle drops none. The database and
//!   its `-shm` file must not be opened and closed by other means than SQLite while a connection is
//!   open: that would drop the locks of this process.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A sync that takes longer than this makes the disk count as slow.
const SLOW: Duration = Duration::from_millis(50);

/// Makes all that was written to the log durable. Tests have their own.
pub(crate) trait LogSync: Send {
    /// Returns once everything that was written before the call is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// Turns the `-wal` file into what syncs it.
pub(crate) type OpenLogSync = Box<dyn FnOnce(WalFile) -> Box<dyn LogSync>>;

/// The `-wal` file.
pub(crate) struct WalFile(File);

impl WalFile {
    /// Opens the log of a database. A connection must have opened it before, which creates it.
    ///
    /// The previous process may have left commits that no sync has covered, and answers that write
    /// nothing may tell of them. So the log is synced here.
    pub(crate) fn open(database: &Path) -> io::Result<Self> {
        let mut name = std::path::absolute(database)?.into_os_string();
        name.push("-wal");
        let mut log =
            OpenOptions::new().read(true).write(true).open(PathBuf::from(name)).map(Self)?;
        log.sync()?;
        Ok(log)
    }
}

impl LogSync for WalFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// How long syncs take. Shared by the threads.
#[derive(Debug, Default)]
pub(crate) struct SyncPace(Mutex<SyncTimes>);

#[derive(Clone, Copy, Debug, Default)]
struct SyncTimes {
    /// When the running sync began.
    running: Option<Instant>,
    last: Duration,
}

impl SyncPace {
    fn times(&self) -> SyncTimes {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begins(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running = Some(Instant::now());
    }

    /// Returns how long the sync took.
    pub(crate) fn ends(&self) -> Duration {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let took = times.running.take().map_or(Duration::ZERO, |began| began.elapsed());
        times.last = took;
        took
    }

    /// How long the running sync has taken so far.
    pub(crate) fn running_for(&self) -> Option<Duration> {
        self.times().running.map(|began| began.elapsed())
    }

    /// Whether the last sync took longer than [`SLOW`], or the running one takes longer.
    pub(crate) fn is_slow(&self) -> bool {
        let SyncTimes { running, last } = self.times();
        last > SLOW || running.is_some_and(|began| began.elapsed() > SLOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_disk_is_slow_by_the_running_sync_and_by_the_last_one() {
        let pace = SyncPace::default();
        let check = async |ms: u64, is_slow: bool| {
            tokio::time::advance(Duration::from_millis(ms)).await;
            assert_eq!(pace.is_slow(), is_slow);
        };
        check(1_000, false).await;
        pace.begins();
        check(50, false).await;
        check(1, true).await;
        pace.ends();
        check(1_000, true).await;
        pace.begins();
        check(10, true).await;
        pace.ends();
        check(0, false).await;
    }
}
