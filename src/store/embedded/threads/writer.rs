//! The only thread that writes: group commit.
//!
//! It drains its queue into one transaction, and answers all callers after COMMIT. There is no
//! artificial delay: the next batch gathers while one is being written, so batches grow when the
//! disk slows down.
//!
//! # Invariants
//!
//! - No caller is answered before the fsync of the transaction with its work. The exception are a
//!   worker's claims ([`Job::may_be_undone`]), which come first, in a transaction of their own
//!   without fsync.
//! - A transaction is committed or rolled back as a whole. After the first error nothing more of it
//!   runs: SQLite may have rolled back by itself (a full disk does that), and further work would
//!   run outside the transaction.
//! - A job that fails alone, for example on a row that it cannot read, gets its error, and the rest
//!   of the batch is carried out again without it. Only a failure of the whole file (a full disk,
//!   an I/O error) fails all jobs. If no job is at fault (what the transaction caches cannot be
//!   written), halves of the batch are carried out separately.
//! - While the disk is short of room, jobs that need room ([`Job::room`]) are refused, and all
//!   others continue. A full disk in the middle of a batch rolls all of it back; jobs that need no
//!   room are then carried out again, without the rest.
//! - The cache of the [`WriteTx`] is dropped when a transaction fails.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{broadcast, mpsc};

use super::write_queue::{Job, Watchdog};
use crate::metrics::DiskMetrics;
use crate::model::clock::Clock;
use crate::store::embedded::disk::fault::{Health, PanicGuard};
use crate::store::embedded::disk::space::Space;
use crate::store::embedded::disk::{checkpoint, schema};
use crate::store::embedded::write_tx::{IdCache, WriteTx};
use crate::store::{Error, Hint, Result};

/// The most tasks that one transaction touches before it commits; the last job may exceed it.
const MAX_WEIGHT: usize = 4_096;

/// The most bytes of new tasks in one transaction; the last job may exceed it. They are in memory
/// and in the log at the same time, and must not fill a disk that is nearly full.
const MAX_BYTES: u64 = 16 << 20;

/// Why a transaction was rolled back.
struct Failed {
    /// The job that failed; `None` if beginning or committing failed.
    job: Option<usize>,
    error: Error,
}

fn answer_all(batch: Vec<Box<dyn Job>>, committed: &Result<()>) {
    for job in batch {
        job.answer(committed.clone());
    }
}

/// The state of the thread.
pub(crate) struct Writer {
    pub(crate) db: Connection,
    pub(crate) names: IdCache,
    pub(crate) clock: Clock,
    pub(crate) health: Arc<Health>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) jobs: mpsc::Receiver<Box<dyn Job>>,
    pub(crate) hints: broadcast::Sender<Hint>,
    pub(crate) keeper: checkpoint::Keeper,
    pub(crate) space: Space,
    pub(crate) disk: DiskMetrics,
    /// Whether commits wait for the disk.
    pub(crate) is_synced: bool,
}

impl Writer {
    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let health = Arc::clone(&self.health);
        let _guard = PanicGuard(&health);
        while let Some(first) = self.jobs.blocking_recv() {
            self.watchdog.step();
            let batch = self.gather(first);
            let (undoable, batch) = batch.into_iter().partition(|job| job.may_be_undone());
            self.carry_out_unsynced(undoable);
            let batch = self.turn_away(batch);
            self.carry_out(batch);
            self.watchdog.rest();
        }
    }

    fn gather(&mut self, first: Box<dyn Job>) -> Vec<Box<dyn Job>> {
        let (mut weight, mut bytes) = (first.weight(), first.room().unwrap_or(0));
        let mut batch = vec![first];
        while weight < MAX_WEIGHT
            && bytes < MAX_BYTES
            && let Ok(job) = self.jobs.try_recv()
        {
            weight += job.weight();
            bytes += job.room().unwrap_or(0);
            batch.push(job);
        }
        batch
    }

    /// Refuses the adds that the disk has no room for.
    fn turn_away(&mut self, batch: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        if self.health.check().is_err() {
            return batch;
        }
        let Self { space, db, .. } = self;
        space.look_if_due(db);
        let mut admitted = Vec::with_capacity(batch.len());
        for job in batch {
            match job.room().map_or(Ok(()), |bytes| space.admit(db, bytes)) {
                Ok(()) => admitted.push(job),
                Err(error) => job.answer(Err(error)),
            }
        }
        admitted
    }

    /// As `carry_out`, without an fsync: the next fsync writes this to disk, or nothing that comes
    /// after it.
    fn carry_out_unsynced(&mut self, batch: Vec<Box<dyn Job>>) {
        if batch.is_empty() {
            return;
        }
        if let Err(failure) = schema::sync(&self.db, false) {
            let error = self.health.judge(&failure);
            return answer_all(batch, &Err(error));
        }
        self.is_synced = false;
        self.carry_out(batch);
        self.is_synced = true;
        if let Err(failure) = schema::sync(&self.db, true) {
            self.health.condemn(&format!("commits cannot be made safe again: {failure}"));
        }
    }

    /// Commits the batch and answers its callers. Jobs that fail alone are answered first.
    fn carry_out(&mut self, mut batch: Vec<Box<dyn Job>>) {
        while !batch.is_empty() {
            match self.commit(&mut batch) {
                Ok(()) => {
                    if batch.iter().any(|job| job.room().is_some() && job.is_done()) {
                        self.space.found_room();
                    }
                    answer_all(batch, &Ok(()));
                    return self.tend_log();
                }
                Err(Failed { error: error @ Error::Full(_), .. }) => {
                    let was_spent = self.space.is_spent();
                    let has_gained = self.make_room();
                    let adds: Vec<_> = batch.extract_if(.., |job| job.room().is_some()).collect();
                    // The first time, the dead-letter calls had needed room too.
                    if adds.is_empty() && !has_gained && was_spent {
                        return answer_all(batch, &Err(error));
                    }
                    answer_all(adds, &Err(error));
                }
                Err(Failed { job: Some(job), error: error @ Error::Corrupt(_) }) => {
                    tracing::error!(
                        "A write failed; the rest of its batch continues without it: {error}"
                    );
                    batch.remove(job).answer(Err(error));
                }
                Err(Failed { job: None, error: Error::Corrupt(_) }) if batch.len() > 1 => {
                    let second = batch.split_off(batch.len() / 2);
                    self.carry_out(batch);
                    return self.carry_out(second);
                }
                Err(Failed { error, .. }) => {
                    tracing::warn!(
                        jobs = batch.len(),
                        "A batch of writes failed and was rolled back: {error}"
                    );
                    return answer_all(batch, &Err(error));
                }
            }
        }
    }

    /// Called when a write found the disk full. Returns whether there is more room now.
    fn make_room(&mut self) -> bool {
        let has_gained = self.space.ran_out();
        // What was rolled back may have let the log grow.
        match checkpoint::cut(&self.db).map_err(|failure| self.health.judge(&failure)) {
            Ok(_) | Err(Error::Full(_)) => {}
            Err(error) => tracing::warn!("Cutting the write-ahead log failed: {error}"),
        }
        has_gained
    }

    fn commit(&mut self, batch: &mut [Box<dyn Job>]) -> std::result::Result<(), Failed> {
        self.health.check().map_err(|error| Failed { job: None, error })?;
        let mut job = None;
        self.watchdog.step();
        let transacted = self.transact(batch, &mut job);
        self.watchdog.step();
        match transacted {
            Ok(hints) => {
                for hint in hints {
                    // There may be no listeners.
                    let _ = self.hints.send(hint);
                }
                Ok(())
            }
            Err(failure) => {
                self.names = IdCache::default();
                self.ensure_rolled_back();
                Err(Failed { job, error: self.health.judge(&failure) })
            }
        }
    }

    /// If a job fails, `at` is its number afterwards.
    fn transact(
        &mut self,
        batch: &mut [Box<dyn Job>],
        at: &mut Option<usize>,
    ) -> rusqlite::Result<Vec<Hint>> {
        // On an early return, the dropped transaction rolls back, unless SQLite has done so
        // already.
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut tx = WriteTx::new(&transaction, &mut self.names, self.clock.now());
        tx.is_without_room = self.space.is_spent();
        for (number, job) in batch.iter_mut().enumerate() {
            *at = Some(number);
            job.work(&mut tx)?;
        }
        *at = None;
        let hints = tx.finish()?;
        let began = Instant::now();
        transaction.commit()?;
        if self.is_synced {
            self.disk.synced(began.elapsed());
        }
        Ok(hints)
    }

    /// A transaction that cannot be rolled back would contain the next batch.
    fn ensure_rolled_back(&self) {
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            self.health.condemn(&format!("a failed transaction could not be rolled back: {error}"));
        }
    }

    fn tend_log(&mut self) {
        match self
            .keeper
            .tend(&self.db, &mut self.space)
            .map_err(|failure| self.health.judge(&failure))
        {
            Ok(()) => {}
            Err(Error::Full(_)) => {
                self.space.ran_out();
            }
            Err(error) => tracing::warn!("Looking after the write-ahead log failed: {error}"),
        }
    }
}
