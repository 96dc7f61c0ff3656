//! The embedded store: SQLite in this process, one file, nothing to install.
//!
//! ```text
//! add, claim, settle, … ─▶ queue ─▶ writer ──▶ file + log ◀── readers ◀─ queue ◀─ get, list, …
//!                                     └─ wakes ─▶ checkpoint
//! ```
//!
//! One thread writes (`writer`, fed by `writes`). It gathers waiting jobs into one transaction with
//! one fsync, and a worker's claims into one without. Two threads read committed states; a third
//! does so for `waiting`, `forecast` and `check`, which may take long (`reader`). One thread copies
//! the log into the file meanwhile (`checkpoint`).
//!
//! | role | file |
//! |---|---|
//! | transitions of a task, without SQL | `record`, `receipts` |
//! | records, ids and moments as rows and values | `rows`, `values` |
//! | one write transaction: numbers, ids, earliest moments | `ledger`, `tally`, `counts` |
//! | the contract; sends each call to its thread | `verbs` |
//! | tasks come and go | `add`, `sameness`, `claim`, `ending`, `settle`, `dying` |
//! | calls of operators and producers | `manage`, `forget`, `query`, `list`, `forecast`, `note` |
//! | destinations, topics, migration | `destination`, `topics`, `transfer` |
//! | the file and its schema (`migrations/`) | `schema`, `format`, `identity`, `raise` |
//! | SQL, one file per table | `sql` |
//! | room on the disk | `space`, `ballast` |
//! | the meaning of failures | `fault` |
//! | `check`, and opening a file for it | `fsck`, `inspect` |
//! | what a start would find, for `delayd check` | `probe` |
//!
//! # Invariants
//!
//! - One process has the file: a lock file keeps others out. So there is no lane lock, and every
//!   claim is granted.
//! - A start voids the push leases of the previous process, whose workers are gone; pull leases
//!   continue.
//! - Content is written once; claims, retries and settles touch narrow rows only.
//! - A task has a row in `task` until it is purged. The tables that `rows` names say where it
//!   stands.
//! - `destination.earliest` and the counts in `lane` are exact after every transaction.
//! - A task without key, idempotency key, expiry and dead-letter call has no row for any of them,
//!   and none is looked up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{broadcast, watch};
use tokio_util::task::TaskTracker;

use super::{Error, Formats, Hint, Result};
use crate::clock::Clock;
use crate::task::StoreId;

mod add;
mod ballast;
mod checkpoint;
mod claim;
#[cfg(test)]
mod corner_tests;
mod counts;
mod destination;
mod dying;
mod ending;
mod fault;
#[cfg(test)]
mod file_tests;
mod forecast;
mod forget;
mod format;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod identity;
mod inspect;
mod ledger;
mod list;
mod manage;
mod note;
mod probe;
mod query;
mod queue;
mod raise;
mod reader;
mod receipts;
mod record;
mod rows;
mod sameness;
mod schema;
mod settle;
#[cfg(test)]
mod silence_tests;
mod space;
#[cfg(test)]
mod space_tests;
mod sql;
mod tally;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod topics;
mod transfer;
mod values;
mod verbs;
mod writer;
mod writes;

pub use probe::Probe;

/// Threads for short reads.
const READERS: usize = 2;

/// The bytes that a task takes in the file beside its content, with its rows and index entries; a
/// high estimate.
const PER_TASK: usize = 256;

/// How many hints a slow receiver may fall behind.
const HINTS: usize = 1_024;

/// The settings of the embedded store.
#[derive(Clone, Debug)]
pub struct Params {
    /// The file (`store.embedded.path`). Its folder is created. Beside it are `-wal`, `-shm`,
    /// `-ballast` and `.lock`.
    pub path: PathBuf,
    /// The bytes of the disk that adds leave free (`store.embedded.reserve`); at most a quarter of
    /// the volume.
    pub reserve: u64,
    /// The store's clock.
    pub clock: Clock,
}

/// The embedded store. Dropping it waits until everything accepted is on disk, as
/// [`close`](super::Store::close) does.
#[derive(Debug)]
pub struct Embedded {
    id: StoreId,
    writes: Arc<writes::Writes>,
    /// Claims on behalf of callers, which may have disconnected.
    claims: TaskTracker,
    reads: reader::Reads,
    /// Reads that take longer the more is stored. No other reads may wait behind them.
    scans: reader::Reads,
    clock: Clock,
    hints: broadcast::Sender<Hint>,
    health: Arc<fault::Health>,
    threads: Mutex<Threads>,
}

/// What a start does to the push leases of the previous process.
enum Leases {
    /// They end: its workers are gone, and those of this process are about to work.
    Void,
    /// They continue: this process does not work.
    Go,
}

/// What is held until the store is closed.
#[derive(Debug, Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    lock: Option<File>,
}

impl Threads {
    /// Waits for the threads, whose queues are closed, and releases the file.
    fn join(&mut self) {
        for handle in self.handles.drain(..) {
            // A panic was reported where it happened.
            let _ = handle.join();
        }
        self.lock = None;
    }
}

impl Embedded {
    /// Opens the file and starts the threads. Creates the file, or updates its schema. Blocks for a
    /// moment.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if the folder cannot be written, another process has the file, or a
    /// newer version wrote it; otherwise those of SQLite.
    pub fn open(params: Params) -> Result<Self> {
        let disk = space::Params::of(&params.path, params.reserve);
        Self::open_on(disk, params.clock, Leases::Void)
    }

    fn open_on(disk: space::Params, clock: Clock, push_leases: Leases) -> Result<Self> {
        let path = disk.path.clone();
        let lock = schema::lock(&path)?;
        let mut space = space::Space::new(disk)?;
        let mut db = schema::open(&path)?;
        space.look_if_due(&db);
        let health = Arc::new(fault::Health::new());
        let explain = |failure: rusqlite::Error| fault::explain(&path, &failure);
        let voided = match push_leases {
            Leases::Void => void_push_leases(&mut db, &clock),
            Leases::Go => Ok(ledger::Names::default()),
        };
        let names = voided.or_else(|failure| match explain(failure) {
            Error::Full(_) => {
                space.ran_out();
                tracing::warn!(
                    "No room to put back the tasks that the process before was calling; they \
                     return when their leases expire"
                );
                Ok(ledger::Names::default())
            }
            error => Err(error),
        })?;
        let beside = schema::open_beside(&path).map_err(explain)?;
        let id = identity::read(&beside).map_err(explain)?;

        let (hints, _) = broadcast::channel(HINTS);
        let (writes, jobs, pace) = writes::Writes::new();
        let (reads, short) = reader::Reads::new::<READERS>();
        let (scans, long) = reader::Reads::new::<1>();
        let (checkpoints, wakes) = sync_channel(1);
        let turn = checkpoint::Turn::default();
        let writer = writer::Writer {
            db,
            names,
            clock: clock.clone(),
            health: Arc::clone(&health),
            pace,
            jobs,
            hints: hints.clone(),
            keeper: checkpoint::Keeper::new(checkpoints, turn.clone()),
            space,
        };
        let mut handles = vec![spawn("store-writer", move || writer.run())?];
        let readers = short.into_iter().map(|reader| ("store-reader", reader));
        for (name, reader) in readers.chain(long.into_iter().map(|reader| ("store-scan", reader))) {
            let db = schema::open_reader(&path).map_err(explain)?;
            let health = Arc::clone(&health);
            handles.push(spawn(name, move || reader::run(db, &reader, &health))?);
        }
        let watched = Arc::clone(&health);
        handles.push(spawn("store-checkpoint", move || {
            checkpoint::run(&beside, &wakes, &turn, &watched)
        })?);
        let threads = Mutex::new(Threads { handles, lock: Some(lock) });
        Ok(Self {
            id,
            writes: Arc::new(writes),
            claims: TaskTracker::new(),
            reads,
            scans,
            clock,
            hints,
            health,
            threads,
        })
    }

    /// Gives the store in `path` another id. Returns the previous one and the new one.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise
    /// those of SQLite.
    pub fn replace_id(path: &Path) -> Result<(StoreId, StoreId)> {
        identity::replace(path)
    }

    /// The formats of the store in `path`. Changes nothing, and may run beside a delayd that has it
    /// open.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, or this program does not know its
    /// format.
    pub fn formats(path: &Path) -> Result<Formats> {
        raise::formats_of(path)
    }

    /// Gives the store in `path` the newest format that this program knows. Returns its formats
    /// before.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise
    /// those of SQLite.
    pub fn raise_format(path: &Path) -> Result<Formats> {
        raise::raise(path)
    }

    /// Becomes true when an I/O error, such as a failed fsync, leaves the disk's content unknown.
    /// From then on every call fails, and the process should stop: a fresh start reads what is
    /// really on disk.
    pub fn fatal(&self) -> watch::Receiver<bool> {
        self.health.watch()
    }

    fn close_queues(&self) {
        self.writes.close();
        self.reads.close();
        self.scans.close();
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close_queues();
        self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).join();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started
        .map_err(|error| Error::Unavailable(format!("cannot start a thread of the store: {error}")))
}

fn void_push_leases(db: &mut Connection, clock: &Clock) -> rusqlite::Result<ledger::Names> {
    let mut names = ledger::Names::default();
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut ledger = ledger::Ledger::new(&transaction, &mut names, clock.now());
    let voided = claim::void_push_leases(&mut ledger)?;
    ledger.finish()?;
    transaction.commit()?;
    if voided > 0 {
        tracing::info!(voided, "Put back {voided} tasks that the process before was calling");
    }
    Ok(names)
}
