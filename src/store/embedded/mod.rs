//! The embedded store: SQLite in this process, one file, nothing to install.
//!
//! ```text
//! add, claim, settle, … ─▶ queue ─▶ writer ──▶ file + log ◀── readers ◀─ queue ◀─ get, list, next_due, …
//!                                     └─ wakes ─▶ checkpoint
//! ```
//!
//! One thread writes, and gathers what waits into one transaction with one fsync (`writer`, fed by `writes`). Two threads read
//! committed states, and a third does so for `stats`, `waiting` and `check`, which may take long (`reader`). One copies the log into the file beside them (`checkpoint`).
//!
//! | step | file |
//! |---|---|
//! | what becomes of a task, without SQL | `record`, `receipts` |
//! | records, ids and moments as rows and values | `rows`, `values` |
//! | names, numbers, ids, earliest moments, within one transaction | `ledger` |
//! | the verbs | `add`, `claim`, `settle`, `manage`, `query`, `list`, `destination` |
//! | the file and its schema (`migrations/`) | `schema` |
//! | room on the disk | `space`, `ballast` |
//! | what failures mean | `fault` |
//! | `check`, and how a file is opened for it | `fsck`, `inspect` |
//!
//! # Invariants
//!
//! - One process has the file: a lock file beside it keeps others out. So there is no lane lock, and every claim
//!   is granted.
//! - A start voids the push leases of the process before (their workers are gone); pull leases go on.
//! - A body is written once; claims, retries and settles touch narrow rows only.
//! - A task has a row in `task` until it is purged; where it stands is said by the tables that `rows` names.
//! - `destination.earliest` is exact after every transaction.

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{broadcast, watch};

use super::{
    Added, AttemptNote, Cancelled, Checked, Claim, Claimed, Counts, Cursor, Durability, Error, Forecast, Hint,
    ListQuery, Listed, Misfired, Moment, NewContent, NewTask, NextDue, Registered, Rescheduled, Result, Settle,
    Settled, Spread, Store, Summary, Task, TopicEntry, Waiting,
};
use crate::clock::{Clock, UnixMillis};
use crate::task::{Destination, Lane, Receipt, State, TaskId, Topic, TopicPolicy};

mod add;
mod ballast;
mod checkpoint;
mod claim;
mod destination;
mod fault;
#[cfg(test)]
mod file_tests;
mod fsck;
mod inspect;
mod ledger;
mod list;
mod manage;
mod query;
mod queue;
mod reader;
mod receipts;
mod record;
mod rows;
mod schema;
mod settle;
#[cfg(test)]
mod silence_tests;
mod space;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod values;
mod writer;
mod writes;

pub(super) use fsck::CheckPlace;

/// Threads that read what is answered at once.
const READERS: usize = 2;

/// What a task takes in the file beside its content, with its places in the tables and their indexes; on the large side.
const PER_TASK: usize = 256;

/// Hints kept for a listener that is behind.
const HINTS: usize = 1_024;

/// The settings of the embedded store.
#[derive(Clone, Debug)]
pub struct Params {
    /// The file (`store.embedded.path`); its folder is created. Beside it lie `-wal`, `-shm`, `-ballast` and `.lock`.
    pub path: PathBuf,
    /// The bytes of its disk that adds leave free (`store.embedded.reserve`); at most a quarter of the volume is taken for it.
    pub reserve: u64,
    /// The store's clock.
    pub clock: Clock,
}

/// The embedded store. Dropping it waits until everything accepted is on disk, as [`Store::close`] does.
#[derive(Debug)]
pub struct Embedded {
    writes: writes::Writes,
    reads: reader::Reads,
    /// For what takes the longer the more is kept: behind one such, nothing else may wait.
    scans: reader::Reads,
    clock: Clock,
    hints: broadcast::Sender<Hint>,
    health: Arc<fault::Health>,
    threads: Mutex<Threads>,
}

/// What a start does to the push leases of the process before.
enum Leases {
    /// Its workers are gone, and this process' are about to work.
    Void,
    /// They go on: nobody works here.
    Go,
}

/// What is held until the store is closed.
#[derive(Debug, Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    lock: Option<File>,
}

impl Threads {
    /// Waits for the threads, whose queues are closed, and lets the file go.
    fn join(&mut self) {
        for handle in self.handles.drain(..) {
            // A panic has been reported where it happened.
            let _ = handle.join();
        }
        self.lock = None;
    }
}

impl Embedded {
    /// Opens the file, creating it or bringing its schema up to date, and starts the threads. Blocks for a moment.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if the folder cannot be written, another process has the file, or a newer version
    /// wrote it; otherwise what SQLite says.
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
        let explain = |failure: rusqlite::Error| schema::explain(&path, &failure);
        let voided = match push_leases {
            Leases::Void => void_push_leases(&mut db, &clock),
            Leases::Go => Ok(ledger::Names::default()),
        };
        let names = voided.or_else(|failure| match explain(failure) {
            Error::Full(_) => {
                space.ran_out();
                tracing::warn!("No room to put back what the process before was calling: those leases have to run out");
                Ok(ledger::Names::default())
            }
            error => Err(error),
        })?;
        let beside = schema::open_beside(&path).map_err(explain)?;

        let (hints, _) = broadcast::channel(HINTS);
        let (writes, jobs, pace) = writes::Writes::new();
        let (reads, queries) = queue::Queue::new();
        let (scans, long) = queue::Queue::new();
        let (checkpoints, wakes) = sync_channel(1);
        let writer = writer::Writer {
            db,
            names,
            clock: clock.clone(),
            health: Arc::clone(&health),
            pace,
            jobs,
            hints: hints.clone(),
            keeper: checkpoint::Keeper::new(checkpoints),
            space,
        };
        let mut handles = vec![spawn("store-writer", move || writer.run())?];
        let mut read = |name, queries: &Arc<Mutex<_>>| {
            let db = schema::open_reader(&path).map_err(explain)?;
            let (queries, health) = (Arc::clone(queries), Arc::clone(&health));
            handles.push(spawn(name, move || reader::run(db, &queries, &health))?);
            Ok::<_, Error>(())
        };
        let queries = Arc::new(Mutex::new(queries));
        for _ in 0..READERS {
            read("store-reader", &queries)?;
        }
        read("store-scan", &Arc::new(Mutex::new(long)))?;
        let watched = Arc::clone(&health);
        handles.push(spawn("store-checkpoint", move || checkpoint::run(&beside, &wakes, &watched))?);
        let threads = Mutex::new(Threads { handles, lock: Some(lock) });
        Ok(Self { writes, reads, scans, clock, hints, health, threads })
    }

    /// Turns true when an I/O error (a failed fsync, say) leaves the disk's content unknown. Every call fails
    /// from then on, and the process should stop: a fresh start reads what the disk really holds.
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
    started.map_err(|error| Error::Unavailable(format!("cannot start a thread of the store: {error}")))
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

impl Store for Embedded {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }

    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        let count = tasks.len();
        let bytes = tasks.iter().map(|task| task.content.len() + PER_TASK).sum();
        match self.writes.add(count, bytes, move |ledger| add::add(ledger, &tasks)).await {
            Ok(added) => added.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); count],
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let slots = claim.wants.iter().map(|want| want.slots).fold(1, usize::saturating_add);
        self.writes.run(slots, move |ledger| claim::claim(ledger, &claim)).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let count = settles.len();
        match self.writes.run(count, move |ledger| settle::settle(ledger, &settles)).await {
            Ok(settled) => settled.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); count],
        }
    }

    async fn extend(&self, lane: &Lane, id: TaskId, receipt: &Receipt, lease: Duration) -> Result<Settled> {
        let (lane, receipt) = (lane.clone(), receipt.clone());
        self.writes.run(1, move |ledger| settle::extend(ledger, &lane, id, &receipt, lease)).await
    }

    async fn promptly<T: Send>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.writes.pace.promptly(call).await
    }

    async fn cancel(&self, lane: &Lane, id: TaskId) -> Result<Cancelled> {
        let lane = lane.clone();
        self.writes.ask(1, move |ledger| manage::cancel(ledger, &lane, id)).await
    }

    async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let lane = lane.clone();
        let larger = content.as_ref().map(|new| new.content.len());
        let work =
            move |ledger: &mut ledger::Ledger<'_>| manage::reschedule(ledger, &lane, id, moment, content.as_ref());
        match larger {
            Some(bytes) => self.writes.add(1, bytes, work).await,
            None => self.writes.ask(1, work).await,
        }
    }

    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.reads.run(move |db| query::get(db, &lane, id, clock.now())).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        self.reads.run(move |db| list::list(db, &query)).await
    }

    async fn replay(&self, lane: &Lane, ids: Vec<TaskId>, _spread: Spread) -> Result<usize> {
        let lane = lane.clone();
        self.writes.ask(ids.len(), move |ledger| manage::replay(ledger, &lane, &ids)).await
    }

    async fn summaries(&self, _lane: &Lane, _ids: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn discard(&self, _lane: &Lane, _state: State, _ids: Vec<TaskId>) -> Result<usize> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn clear(&self, _lane: &Lane, _limit: usize) -> Result<usize> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn forecast(&self, _lane: &Lane, _step: Duration, _steps: usize) -> Result<Forecast> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn note(&self, _notes: Vec<AttemptNote>) -> Result<()> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn notes(&self, _lane: &Lane, _id: TaskId) -> Result<Vec<AttemptNote>> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn set_policy(&self, _topic: &Topic, _policy: &TopicPolicy) -> Result<bool> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn pause(&self, _topic: &Topic) -> Result<Option<UnixMillis>> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn resume(&self, _topic: &Topic, _becomes: Option<Misfired>) -> Result<Option<bool>> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn unregister(&self, _entry: &TopicEntry) -> Result<bool> {
        Err(Error::Unavailable("not here yet".into()))
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        let clock = self.clock.clone();
        self.reads.run(move |db| query::next_due(db, &lanes, true, clock.now())).await
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        let clock = self.clock.clone();
        self.reads.run(move |db| query::next_due(db, &lanes, false, clock.now())).await
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        let lane = lane.clone();
        self.scans.run(move |db| query::stats(db, &lane)).await
    }

    async fn purge(&self, lane: &Lane, state: State, before: UnixMillis, limit: usize) -> Result<usize> {
        let lane = lane.clone();
        self.writes.run(limit, move |ledger| manage::purge(ledger, &lane, state, before, limit)).await
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        let destination = destination.clone();
        self.writes.ask(1, move |ledger| destination::set_hold(ledger, &destination, is_held)).await
    }

    async fn holds(&self) -> Result<Vec<Destination>> {
        self.reads.run(destination::holds).await
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        self.scans.run(move |db| destination::waiting(db, &lanes)).await
    }

    async fn register(&self, entry: TopicEntry) -> Result<TopicEntry> {
        // Known topics are registered over and over; on a full disk, too, that costs nothing.
        let topic = entry.topic.clone();
        if let Some(known) = self.reads.run(move |db| query::topic(db, &topic)).await? {
            return Ok(known);
        }
        self.writes.add(1, PER_TASK, move |ledger| manage::register(ledger, &entry)).await
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        Ok(self.reads.run(query::topics).await?.into_iter().map(Registered::plain).collect())
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        self.writes.run(1, manage::recover_topics).await
    }

    async fn check(&self, from: Cursor, repair: bool) -> Result<Checked> {
        fsck::check(self, from, repair).await
    }

    async fn ping(&self) -> Result<UnixMillis> {
        let clock = self.clock.clone();
        self.reads.run(move |_| Ok(clock.now())).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    async fn close(&self) {
        self.close_queues();
        let mut threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if tokio::task::spawn_blocking(move || threads.join()).await.is_err() {
            tracing::warn!("The embedded store's threads did not end in order");
        }
    }
}
