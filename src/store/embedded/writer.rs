//! The one thread that writes: group commit.
//!
//! It drains its queue into one transaction and answers everyone in it after COMMIT. There is no artificial
//! wait: while one batch is on its way to disk the next one gathers, so batches grow by themselves as the disk
//! slows.
//!
//! # Invariants
//!
//! - Nobody is answered before the fsync of the transaction that holds his work.
//! - A batch is committed whole or fails whole. After the first error nothing more of it runs: SQLite may have
//!   rolled back by itself (a full disk does that), and what followed would run outside the transaction.
//! - What the [`Ledger`] remembers between batches is dropped when a batch fails.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::checkpoint;
use super::fault::{Health, PanicGuard};
use super::ledger::{Ledger, Names};
use super::queue::{self, Queue};
use crate::clock::Clock;
use crate::store::{Hint, Result};

/// The most tasks that one transaction touches before it commits (the last job may exceed it).
const MAX_WEIGHT: usize = 4_096;

/// Something to be written. Its work is done in a transaction, its answer given after the commit.
pub(super) trait Job: Send {
    /// About how many tasks it touches.
    fn weight(&self) -> usize;
    /// Writes.
    fn work(&mut self, ledger: &mut Ledger<'_>) -> rusqlite::Result<()>;
    /// Tells the caller: the result of the work, or why the transaction failed.
    fn answer(self: Box<Self>, committed: Result<()>);
}

/// The queue to the writer.
pub(super) type Writes = Queue<Box<dyn Job>>;

struct Call<F, T> {
    weight: usize,
    /// Left undone if nobody waits for its answer any more.
    only_if_awaited: bool,
    work: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

impl<F, T> Job for Call<F, T>
where
    F: FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn work(&mut self, ledger: &mut Ledger<'_>) -> rusqlite::Result<()> {
        let work = self.work.take().expect("a job is worked once");
        if !self.only_if_awaited || !self.reply.is_closed() {
            self.result = Some(work(ledger)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let Self { result, reply, .. } = *self;
        // What was committed without a result was left undone, for nobody waits for it.
        if let Some(answer) = committed.map(|()| result).transpose() {
            // A caller who went away needs no answer.
            let _ = reply.send(answer);
        }
    }
}

impl Writes {
    /// Runs `work`, which touches about `weight` tasks, in the next transaction; answers after its commit.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(weight, false, work).await
    }

    /// As [`Writes::run`], but not at all once the caller has given up: a task whose add was refused must not be stored after all.
    pub(super) async fn run_if_awaited<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(weight, true, work).await
    }

    async fn queue<T: Send + 'static>(
        &self,
        weight: usize,
        only_if_awaited: bool,
        work: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(Call { weight, only_if_awaited, work: Some(work), result: None, reply })).await?;
        answer.await.unwrap_or_else(|_| Err(queue::closed()))
    }
}

/// The thread's belongings.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) names: Names,
    pub(super) clock: Clock,
    pub(super) health: Arc<Health>,
    pub(super) jobs: mpsc::Receiver<Box<dyn Job>>,
    pub(super) hints: broadcast::Sender<Hint>,
    pub(super) checkpoints: SyncSender<()>,
}

impl Writer {
    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let health = Arc::clone(&self.health);
        let _guard = PanicGuard(&health);
        let mut batch = Vec::new();
        while let Some(first) = self.jobs.blocking_recv() {
            let mut weight = first.weight();
            batch.push(first);
            while weight < MAX_WEIGHT
                && let Ok(job) = self.jobs.try_recv()
            {
                weight += job.weight();
                batch.push(job);
            }
            let committed = self.commit(&mut batch);
            for job in batch.drain(..) {
                job.answer(committed.clone());
            }
            if committed.is_ok() {
                self.tend_log();
            }
        }
    }

    fn commit(&mut self, batch: &mut [Box<dyn Job>]) -> Result<()> {
        self.health.check()?;
        match self.transact(batch) {
            Ok(hints) => {
                for hint in hints {
                    // Nobody may be listening.
                    let _ = self.hints.send(hint);
                }
                Ok(())
            }
            Err(failure) => {
                self.names = Names::default();
                self.ensure_rolled_back();
                let error = self.health.judge(&failure);
                tracing::warn!(jobs = batch.len(), "A batch of writes failed and was rolled back: {error}");
                Err(error)
            }
        }
    }

    fn transact(&mut self, batch: &mut [Box<dyn Job>]) -> rusqlite::Result<Vec<Hint>> {
        // Dropped on an early return, the transaction rolls back, unless SQLite has done so already.
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut ledger = Ledger::new(&transaction, &mut self.names, self.clock.now());
        for job in batch {
            job.work(&mut ledger)?;
        }
        let hints = ledger.finish()?;
        transaction.commit()?;
        Ok(hints)
    }

    /// A transaction that cannot even be rolled back would swallow the next batch.
    fn ensure_rolled_back(&self) {
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            self.health.condemn(&format!("a failed transaction could not be rolled back: {error}"));
        }
    }

    fn tend_log(&self) {
        if let Err(failure) = checkpoint::tend(&self.db, &self.checkpoints) {
            let error = self.health.judge(&failure);
            tracing::warn!("Looking after the write-ahead log failed: {error}");
        }
    }
}
