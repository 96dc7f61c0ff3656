//! The embedded store: SQLite in this process, one file, nothing to install.
//!
//! ```text
//! add, claim, settle, … ─▶ queues ─▶ writer ──▶ file + log ◀── readers ◀─ queue ◀─ get, list, …
//!                                      ├─ commits ─▶ sync thread: answers what is promised
//!                                      └─ wakes ───▶ checkpoint
//! ```
//!
//! One connection writes (`threads/writer`, fed by `write_queue`). It carries out waiting jobs in
//! one transaction, and commits it without an fsync. Workers' claims and settles are answered then.
//! The sync thread (`threads/syncer`) makes the log durable, and answers all others. Two threads
//! read committed states for callers. A third does so for `waiting`, `forecast`, a thorough
//! `sample` and `check`, which may take long, and a fourth for workers, adds and probes (`reader`).
//! One thread copies the log into the file meanwhile (`disk/checkpoint`).
//!
//! Each verb of the contract stands in the file of its work, and sends it to a thread. Writes go to
//! the writer and short reads to the readers. Reads that take longer the more is stored go to the
//! thread for scans.
//!
//! What a verb sends has its name: `claim` sends `claim_in(tx, …)`, which works in a write
//! transaction, and `get` sends `get_from(db, …)`, which reads from a connection.
//!
//! | role | file |
//! |---|---|
//! | transitions of a task, without SQL | `state/`, `receipts` |
//! | records, ids and moments as rows and values | `rows`, `values` |
//! | one write transaction: numbers, ids, earliest moments, counts | `write_tx/` |
//! | tasks come and go | `add`, `dedup`, `claim`, `expiry`, `settle`, `dead_letter` |
//! | changes by operators and producers | `admin`, `forget` |
//! | reads for them | `query`, `find`, `list`, `forecast`, `note` |
//! | the poll of each second | `poll` |
//! | destinations, topics, migration | `destination`, `topics`, `migration` |
//! | threads and their queues | `threads/` |
//! | the file, its schema (`migrations/`), room on the disk, failures | `disk/` |
//! | SQL, one file per table | `sql/` |
//! | `check`, and opening a file for it | `fsck/`, `inspect` |
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

use super::{AuditEntry, Durability, Error, Formats, Hint, Result, Signals, Store};
use crate::metrics::StoreMetrics;
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::StoreId;

mod add;
mod admin;
mod audit;
mod backup;
mod claim;
mod contents;
#[cfg(test)]
mod corner_tests;
mod dead_letter;
mod dedup;
mod destination;
mod disk;
#[cfg(test)]
mod durability_tests;
mod expiry;
#[cfg(test)]
mod file_tests;
mod find;
mod forecast;
mod forget;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
#[cfg(test)]
mod hidden_tests;
mod inspect;
mod list;
mod migration;
mod note;
mod poll;
mod query;
mod receipts;
mod recurring_topics;
mod rows;
mod sample;
mod schedule_verbs;
mod state;
#[cfg(test)]
pub(crate) use schedule_verbs::{garble_schedule, refuse_schedule};
mod schedules;
mod settle;
#[cfg(test)]
mod silence_tests;
#[cfg(test)]
mod space_tests;
mod sql;
#[cfg(test)]
mod sync_gate;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod threads;
mod topics;
mod values;
mod write_tx;

pub use disk::probe::Probe;

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
    /// The format of the file.
    format: u32,
    recurring: Arc<recurring_topics::RecurringTopics>,
    writes: Arc<threads::write_queue::WriteQueue>,
    /// Claims on behalf of callers, which may have disconnected.
    claims: TaskTracker,
    reads: threads::reader::Reads,
    /// Reads of workers, and those that adds and probes wait for. No list may occupy their thread.
    /// In a box, because the value of a store is moved.
    polls: Box<threads::reader::Reads>,
    /// Reads that take longer the more is stored. No other reads may wait behind them.
    scans: threads::reader::Reads,
    clock: Clock,
    hints: broadcast::Sender<Hint>,
    health: Arc<disk::fault::StoreHealth>,
    /// `None` if the store is only looked at.
    meter: Option<disk::space::Meter>,
    metrics: Arc<StoreMetrics>,
    threads: Mutex<Threads>,
}

/// What a start does to the push leases of the previous process.
enum PushLeases {
    /// They end: its workers are gone, and those of this process are about to work.
    Void,
    /// They continue: this process does not work.
    Go,
}

/// What is held until the store is closed.
#[derive(Debug, Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// The database, for syncs.
    file: Option<Arc<File>>,
    lock: Option<File>,
}

impl Threads {
    /// Waits for the threads, whose queues are closed, and releases the file.
    fn join(&mut self) {
        for handle in self.handles.drain(..) {
            // A panic was reported where it happened.
            let _ = handle.join();
        }
        // Closing it drops the locks that SQLite has taken on it, so it outlives all connections.
        self.file = None;
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
        let disk = disk::space::Params::of(&params.path, params.reserve);
        Self::open_on(disk, params.clock, PushLeases::Void)
    }

    fn open_on(disk: disk::space::Params, clock: Clock, push_leases: PushLeases) -> Result<Self> {
        Self::open_with(disk, clock, push_leases, Box::new(|log| Box::new(log)))
    }

    fn open_with(
        disk: disk::space::Params,
        clock: Clock,
        push_leases: PushLeases,
        open_log_sync: disk::wal_sync::OpenLogSync,
    ) -> Result<Self> {
        let path = disk.path.clone();
        let lock = disk::schema::lock(&path)?;
        let mut space = disk::space::Space::new(disk)?;
        let mut db = disk::schema::open(&path)?;
        space.look_if_due(&db);
        let metrics = StoreMetrics::embedded();
        let disk = metrics.disk.clone().unwrap_or_default();
        let meter = Some(space.meter(disk.clone()));
        let health = Arc::new(disk::fault::StoreHealth::new());
        let explain = |failure: rusqlite::Error| disk::fault::explain(&path, &failure);
        let voided = match push_leases {
            PushLeases::Void => void_push_leases(&mut db, &clock),
            PushLeases::Go => Ok(write_tx::IdCache::default()),
        };
        let names = voided.or_else(|failure| match explain(failure) {
            Error::Full(_) => {
                space.ran_out();
                tracing::warn!(
                    "No room to put back the tasks that the process before was calling; they \
                     return when their leases expire"
                );
                Ok(write_tx::IdCache::default())
            }
            error => Err(error),
        })?;
        let beside = disk::schema::open_beside(&path).map_err(explain)?;
        let hold = disk::schema::open_beside(&path).map_err(explain)?;
        let id = disk::identity::read(&beside).map_err(explain)?;
        let format = disk::format::read(&beside, &path)?;
        let recurring = recurring_topics::read(&beside).map_err(explain)?;
        disk::schema::leave_syncs_to_a_thread(&db).map_err(explain)?;
        let failed = |error: std::io::Error| {
            let path = path.display();
            Error::Unavailable(format!("the disk failed while {path} was opened: {error}"))
        };
        let log = disk::wal_sync::WalFile::open(&path).map_err(failed)?;
        let file = File::open(&path).map(Arc::new).map_err(failed)?;

        let (hints, _) = broadcast::channel(HINTS);
        let pace = Arc::<disk::wal_sync::SyncPace>::default();
        let (writes, jobs, watchdog) = threads::write_queue::WriteQueue::new(Arc::clone(&pace));
        let (reads, short) = threads::reader::Reads::new::<READERS>();
        let (scans, long) = threads::reader::Reads::new::<1>();
        let (polls, brief) = threads::reader::Reads::new::<1>();
        let (checkpoints, wakes) = sync_channel(1);
        let turn = disk::checkpoint::Turn::default();
        let confirmations = Arc::<threads::confirmations::Confirmations>::default();
        let hold = disk::checkpoint::Hold::on(hold);
        let writer = threads::writer::Writer {
            db,
            names,
            clock: clock.clone(),
            health: Arc::clone(&health),
            watchdog,
            confirmations: Arc::clone(&confirmations),
            pace: Arc::clone(&pace),
            unsynced: write_tx::unsynced::UnsyncedTasks::default(),
            newest: 0,
            hints: hints.clone(),
            keeper: disk::checkpoint::LogKeeper::new(checkpoints.clone(), turn.clone(), hold)
                .map_err(explain)?,
            space,
        };
        let inbox = threads::inbox::Inbox::new(jobs, Arc::clone(&confirmations));
        let mut handles = vec![spawn("store-writer", move || writer.run(inbox))?];
        let syncer = threads::syncer::Syncer {
            log: open_log_sync(log),
            confirmations,
            pace,
            health: Arc::clone(&health),
            hints: hints.clone(),
            disk,
            writer: handles[0].thread().clone(),
            checkpoints,
        };
        handles.push(spawn("store-sync", move || syncer.run())?);
        let readers = short.into_iter().map(|reader| ("store-reader", reader));
        let readers = readers.chain(long.map(|reader| ("store-scan", reader)));
        for (name, reader) in readers.chain(brief.map(|reader| ("store-poll", reader))) {
            let db = disk::schema::open_reader(&path).map_err(explain)?;
            let health = Arc::clone(&health);
            handles.push(spawn(name, move || threads::reader::run(db, &reader, &health))?);
        }
        let copier = disk::checkpoint::Copier {
            db: beside,
            file: Arc::clone(&file),
            wakes,
            turn,
            health: Arc::clone(&health),
        };
        handles.push(spawn("store-checkpoint", move || copier.run())?);
        let threads = Mutex::new(Threads { handles, file: Some(file), lock: Some(lock) });
        Ok(Self {
            id,
            format,
            recurring: Arc::new(recurring_topics::RecurringTopics::of(recurring)),
            writes: Arc::new(writes),
            claims: TaskTracker::new(),
            reads,
            polls: Box::new(polls),
            scans,
            clock,
            hints,
            health,
            meter,
            metrics,
            threads,
        })
    }

    /// Gives the store in `path` another id. Returns the previous one and the new one.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise
    /// those of SQLite.
    pub fn replace_id(path: &Path) -> Result<(StoreId, StoreId)> {
        disk::identity::replace(path)
    }

    /// The formats of the store in `path`. Changes nothing, and may run beside a delayd that has it
    /// open.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, or this program does not know its
    /// format.
    pub fn formats(path: &Path) -> Result<Formats> {
        disk::raise::formats_of(path)
    }

    /// Gives the store in `path` the newest format that this program knows. Returns its formats
    /// before.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, or a process has it open; otherwise
    /// those of SQLite.
    pub fn raise_format(path: &Path) -> Result<Formats> {
        disk::raise::raise(path)
    }

    /// Appends entries to the audit log of the store in `path`.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if a process has the store open; otherwise those of SQLite.
    pub fn record_at(path: &Path, entries: &[AuditEntry]) -> Result<()> {
        audit::append_at(path, entries)
    }

    /// Becomes true when an I/O error, such as a failed fsync, leaves the disk's content unknown.
    /// From then on every call fails, and the process should stop: a fresh start reads what is
    /// really on disk.
    pub fn fatal(&self) -> watch::Receiver<bool> {
        self.health.watch()
    }

    /// What this store counts.
    pub fn metrics(&self) -> &Arc<StoreMetrics> {
        &self.metrics
    }

    fn close_queues(&self) {
        self.writes.close();
        self.reads.close();
        self.polls.close();
        self.scans.close();
    }
}

impl Signals for Embedded {
    async fn id(&self) -> Result<StoreId> {
        Ok(self.id)
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }
}

impl Store for Embedded {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }

    async fn ping(&self) -> Result<UnixMillis> {
        let clock = self.clock.clone();
        self.polls.run(move |_| Ok(clock.now())).await
    }

    async fn close(&self) {
        self.claims.close();
        self.claims.wait().await;
        self.close_queues();
        let mut threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if tokio::task::spawn_blocking(move || threads.join()).await.is_err() {
            tracing::warn!("The embedded store's threads did not end in order");
        }
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

fn void_push_leases(db: &mut Connection, clock: &Clock) -> rusqlite::Result<write_tx::IdCache> {
    let mut names = write_tx::IdCache::default();
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut tx = write_tx::WriteTx::new(&transaction, &mut names, clock.now());
    let voided = claim::void_push_leases(&mut tx)?;
    tx.finish()?;
    transaction.commit()?;
    if voided > 0 {
        tracing::info!(voided, "Put back {voided} tasks that the process before was calling");
    }
    Ok(names)
}
