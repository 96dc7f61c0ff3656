//! The only connection that writes: group commit.
//!
//! It commits jobs to the write-ahead log without an fsync. Undoable work is answered then.
//! Promised work is left to the sync thread (`syncer`), which answers it once the log is durable.
//!
//! # Invariants
//!
//! - A promised answer depends on the newest commit of its transaction, or on the newest one before
//!   it if the transaction wrote nothing: it may tell of what an earlier one wrote.
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
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::broadcast;

use super::confirmations::{Awaiting, Confirmations};
use super::inbox::{Inbox, NextStep};
use super::write_queue::{Job, Watchdog};
use crate::model::clock::Clock;
use crate::store::embedded::disk::checkpoint;
use crate::store::embedded::disk::fault::{PanicGuard, StoreHealth};
use crate::store::embedded::disk::space::Space;
use crate::store::embedded::disk::wal_sync::SyncPace;
use crate::store::embedded::write_tx::hints::TxHints;
use crate::store::embedded::write_tx::unsynced::{Durable, UnsyncedTasks};
use crate::store::embedded::write_tx::{IdCache, WriteTx};
use crate::store::{Error, Hint, Result};

/// Why a transaction was rolled back.
struct FailedWrite {
    /// The job that failed; `None` if beginning or committing failed.
    job: Option<usize>,
    error: Error,
}

fn answer_all(batch: Vec<Box<dyn Job>>, committed: &Result<()>) {
    for job in batch {
        job.answer(committed.clone());
    }
}

/// What follows from a committed transaction.
struct Committed {
    hints: TxHints,
    /// The numbers of the jobs that handed out tasks of their own transaction.
    waiting: Vec<usize>,
}

/// The connection, and what is kept between its transactions.
pub(crate) struct Writer {
    pub(crate) db: Connection,
    pub(crate) names: IdCache,
    pub(crate) clock: Clock,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) pace: Arc<SyncPace>,
    pub(crate) unsynced: UnsyncedTasks,
    /// The number of the newest commit.
    pub(crate) newest: u64,
    pub(crate) hints: broadcast::Sender<Hint>,
    pub(crate) keeper: checkpoint::LogKeeper,
    pub(crate) space: Space,
}

impl Writer {
    /// The writer thread: works until the queues are closed and empty.
    pub(crate) fn run(self, inbox: Inbox) {
        let (confirmations, health) = (Arc::clone(&self.confirmations), Arc::clone(&self.health));
        // Dropped last: the last copy of the log follows, and needs a closed connection.
        let _end = CloseGuard(&confirmations);
        let (mut writer, mut inbox) = (self, inbox);
        let _guard = PanicGuard(&health);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match inbox.next(&waker) {
                NextStep::Write(jobs) => writer.write(jobs),
                NextStep::Wait(limit) => limit.map_or_else(thread::park, thread::park_timeout),
                NextStep::End => return,
            }
        }
    }

    /// Carries out jobs, and answers those that wait for no sync.
    fn write(&mut self, jobs: Vec<Box<dyn Job>>) {
        self.watchdog.step();
        let jobs = self.turn_away(jobs);
        self.carry_out(jobs);
        self.watchdog.rest();
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

    /// Commits the jobs, and answers those of them that wait for no sync. Jobs that fail alone are
    /// answered first.
    fn carry_out(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        while !jobs.is_empty() {
            match self.commit(&mut jobs) {
                Ok(Committed { hints, waiting }) => {
                    if jobs.iter().any(|job| job.room().is_some() && job.is_done()) {
                        self.space.found_room();
                    }
                    self.conclude(jobs, &waiting, hints);
                    return self.tend_log();
                }
                Err(FailedWrite { error: error @ Error::Full(_), .. }) => {
                    let was_spent = self.space.is_spent();
                    let has_gained = self.make_room();
                    let adds: Vec<_> = jobs.extract_if(.., |job| job.room().is_some()).collect();
                    // The first time, the dead-letter calls had needed room too.
                    if adds.is_empty() && !has_gained && was_spent {
                        return answer_all(jobs, &Err(error));
                    }
                    answer_all(adds, &Err(error));
                }
                Err(FailedWrite { job: Some(job), error: error @ Error::Corrupt(_) }) => {
                    tracing::error!(
                        "A write failed; the rest of its batch continues without it: {error}"
                    );
                    jobs.remove(job).answer(Err(error));
                }
                Err(FailedWrite { job: None, error: Error::Corrupt(_) }) if jobs.len() > 1 => {
                    let second = jobs.split_off(jobs.len() / 2);
                    self.carry_out(jobs);
                    return self.carry_out(second);
                }
                Err(FailedWrite { error, .. }) => {
                    tracing::warn!(
                        jobs = jobs.len(),
                        "A batch of writes failed and was rolled back: {error}"
                    );
                    return answer_all(jobs, &Err(error));
                }
            }
        }
    }

    /// Answers the undoable jobs of a committed transaction, and leaves the promised ones, and the
    /// hints about their tasks, to the sync thread.
    fn conclude(&mut self, jobs: Vec<Box<dyn Job>>, waiting: &[usize], hints: TxHints) {
        let commit = self.newest;
        let (mut promised, mut answered, mut is_promise) = (Vec::new(), Vec::new(), false);
        for (number, job) in jobs.into_iter().enumerate() {
            is_promise |= !job.may_be_undone() && job.is_done();
            match waiting.contains(&number) || !job.may_be_undone() && job.is_done() {
                true => promised.push(job),
                false => answered.push(job),
            }
        }
        let (earlier, passed_over) = hints.awaited.unwrap_or_default();
        for (commit, is_promise, jobs, hints) in [
            (commit, is_promise, promised, hints.once_durable),
            (earlier, false, Vec::new(), passed_over),
        ] {
            if !(jobs.is_empty() && hints.is_empty())
                && let Some(durable) =
                    self.confirmations.leave(Awaiting { commit, is_promise, jobs, hints })
            {
                durable.answer(&self.health.check(), &self.hints);
            }
        }
        self.confirmations.wake_sync();
        hints.at_commit.send(&self.hints);
        answer_all(answered, &Ok(()));
    }

    /// Called when a write found the disk full. Returns whether there is more room now.
    fn make_room(&mut self) -> bool {
        let has_gained = self.space.ran_out();
        // What was rolled back may have let the log grow.
        match self.keeper.cut(&self.db).map_err(|failure| self.health.judge(&failure)) {
            Ok(_) | Err(Error::Full(_)) => {}
            Err(error) => tracing::warn!("Cutting the write-ahead log failed: {error}"),
        }
        has_gained
    }

    fn commit(&mut self, jobs: &mut [Box<dyn Job>]) -> std::result::Result<Committed, FailedWrite> {
        self.health.check().map_err(|error| FailedWrite { job: None, error })?;
        let mut job = None;
        self.watchdog.step();
        let changes = self.db.total_changes();
        let transacted = self.transact(jobs, &mut job);
        self.watchdog.step();
        match transacted {
            Ok(committed) => {
                if self.db.total_changes() != changes {
                    self.newest = self.confirmations.committed();
                }
                Ok(committed)
            }
            Err(failure) => {
                self.names = IdCache::default();
                self.unsynced.rolled_back();
                self.ensure_rolled_back();
                Err(FailedWrite { job, error: self.health.judge(&failure) })
            }
        }
    }

    /// If a job fails, `at` is its number afterwards.
    fn transact(
        &mut self,
        jobs: &mut [Box<dyn Job>],
        at: &mut Option<usize>,
    ) -> rusqlite::Result<Committed> {
        let now = self.clock.now();
        let slow_until = self.pace.is_slow().then_some(now);
        let durable = Durable { commit: self.confirmations.durable(), slow_until };
        self.unsynced.begin(self.newest + 1, durable);
        // On an early return, the dropped transaction rolls back, unless SQLite has done so
        // already.
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut tx = WriteTx::new(&transaction, &mut self.names, now);
        tx.is_without_room = self.space.is_spent();
        tx.unsynced = Some(&mut self.unsynced);
        let mut waiting = Vec::new();
        for (number, job) in jobs.iter_mut().enumerate() {
            *at = Some(number);
            tx.awaits_sync = !job.may_be_undone();
            job.work(&mut tx)?;
            if std::mem::take(&mut tx.answer_waits) {
                waiting.push(number);
            }
        }
        *at = None;
        let hints = tx.finish()?;
        transaction.commit()?;
        Ok(Committed { hints, waiting })
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
            .tend(&self.db, &mut self.space, self.pace.is_slow())
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

/// Wakes the writer thread when a job is queued.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Tells the sync thread that the writer thread has ended.
struct CloseGuard<'a>(&'a Confirmations);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
