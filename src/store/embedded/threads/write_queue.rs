//! The queues to the writer: jobs, and how long their callers wait.
//!
//! Promised work is answered once it is durable, undoable work at its commit. They have two queues,
//! because promised work may have to wait for a sync, and undoable work must not wait behind it.
//!
//! # Invariants
//!
//! - A call of the API is answered within a second ([`PATIENCE`]), whatever the disk does. A silent
//!   disk costs its callers that second once: from then on they are refused at once, until it
//!   answers. The disk is silent while the writer or the sync thread gets nowhere.
//! - What the writer has not begun when its caller gives up is skipped.
//! - The adds that wait hold at most [`MOST_WAITING`] of memory, whether or not their callers still
//!   wait.
//! - A worker's own calls (claims, settles) wait as long as necessary: a call that was made must be
//!   settled.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::queue::{self, Queue};
use crate::store::embedded::disk::wal_sync::SyncPace;
use crate::store::embedded::write_tx::WriteTx;
use crate::store::{Error, Result};

/// How long a call of the API waits for the disk: less than a second with the rest of its way.
const PATIENCE: Duration = Duration::from_millis(900);

/// How long a step of the writer may take before the disk counts as silent. Shorter than
/// [`PATIENCE`], so that a caller that asks again after waiting in vain is refused at once.
pub(crate) const SILENCE: Duration = Duration::from_millis(800);

/// The most bytes of all adds that wait. A larger add waits alone.
const MOST_WAITING: u32 = 64 << 20;

/// The unit of [`MOST_WAITING`].
const KIB: u32 = 1 << 10;

/// Work to be written: done in a transaction, answered after the commit or after its sync.
pub(crate) trait Job: Send {
    /// The approximate number of tasks that it touches.
    fn weight(&self) -> usize;
    /// The bytes of new tasks. `None` if it adds nothing, and must run even on a full disk.
    fn room(&self) -> Option<u64>;
    /// Writes. Called again if the transaction was rolled back because of another job.
    fn work(&mut self, tx: &mut WriteTx<'_>) -> rusqlite::Result<()>;
    /// Whether it is answered at the commit: a power cut may undo it.
    fn may_be_undone(&self) -> bool;
    /// Whether it may be written a moment later, with other work, because nobody waits for it.
    fn is_deferrable(&self) -> bool;
    /// Whether the work was done, and not skipped because its caller has disconnected.
    fn is_done(&self) -> bool;
    /// Answers the caller: with the result of the work, or why the transaction failed.
    fn answer(self: Box<Self>, committed: Result<()>);
}

struct QueuedJob<F, T> {
    weight: usize,
    room: Option<u64>,
    may_be_undone: bool,
    is_deferrable: bool,
    /// Whether it is skipped once its caller has given up.
    ends_with_caller: bool,
    work: F,
    result: Option<T>,
    /// The caller; `None` before it is queued.
    reply: Option<oneshot::Sender<Result<T>>>,
    /// The job's share of what may wait; returned with the job.
    share: Option<OwnedSemaphorePermit>,
}

impl<F, T> QueuedJob<F, T> {
    fn of(weight: usize, work: F) -> Self {
        Self {
            weight,
            room: None,
            may_be_undone: false,
            is_deferrable: false,
            ends_with_caller: false,
            work,
            result: None,
            reply: None,
            share: None,
        }
    }
}

impl<F, T> Job for QueuedJob<F, T>
where
    F: FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn room(&self) -> Option<u64> {
        self.room
    }

    fn may_be_undone(&self) -> bool {
        self.may_be_undone
    }

    fn is_deferrable(&self) -> bool {
        self.is_deferrable
    }

    fn work(&mut self, tx: &mut WriteTx<'_>) -> rusqlite::Result<()> {
        self.result = None;
        // A task whose add was refused must not be stored.
        let is_pointless =
            self.ends_with_caller && self.reply.as_ref().is_none_or(oneshot::Sender::is_closed);
        if !is_pointless {
            self.result = Some((self.work)(tx)?);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.result.is_some()
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let Self { result, reply, share, .. } = *self;
        drop(share);
        // A committed job without a result was skipped, because its caller has disconnected.
        if let (Some(answer), Some(reply)) = (committed.map(|()| result).transpose(), reply) {
            // A caller that has disconnected needs no answer.
            let _ = reply.send(answer);
        }
    }
}

/// When the current step of the writer, or of a query, began. `None` while it is idle.
#[derive(Debug, Default)]
pub(crate) struct Watchdog(Mutex<Option<Instant>>);

impl Watchdog {
    /// Begins a step that may take long: a transaction, the work after it, or some steps of a
    /// query.
    pub(crate) fn step(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Notes that there is nothing to do.
    pub(crate) fn rest(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether the current step takes longer than a working disk needs.
    pub(crate) fn is_silent(&self) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() >= SILENCE)
    }
}

/// The result of `work`, or an error if it takes longer than a call of the API may wait.
async fn promptly<T>(
    is_silent: impl Fn() -> bool,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let too_slow = || {
        Err(Error::Unavailable(match is_silent() {
            true => {
                format!("the disk is silent: a write takes longer than {} ms", SILENCE.as_millis())
            }
            false => "overloaded: too much waits for the disk".into(),
        }))
    };
    if is_silent() {
        return too_slow();
    }
    timeout(PATIENCE, work).await.unwrap_or_else(|_| too_slow())
}

/// The queues to the writer.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    promised: Queue<Box<dyn Job>>,
    undoable: Queue<Box<dyn Job>>,
    /// How much more of adds may wait, in KiB.
    pub(crate) room: Arc<Semaphore>,
    writer: Arc<Watchdog>,
    pace: Arc<SyncPace>,
}

/// The writer's ends of the queues.
pub(crate) struct Jobs {
    pub(crate) promised: mpsc::Receiver<Box<dyn Job>>,
    pub(crate) undoable: mpsc::Receiver<Box<dyn Job>>,
}

impl WriteQueue {
    /// The queues, and the writer's ends.
    pub(crate) fn new(pace: Arc<SyncPace>) -> (Self, Jobs, Arc<Watchdog>) {
        let (promised, promised_jobs) = Queue::new();
        let (undoable, undoable_jobs) = Queue::new();
        let writer = Arc::new(Watchdog::default());
        let room = Arc::new(Semaphore::new((MOST_WAITING / KIB) as usize));
        let jobs = Jobs { promised: promised_jobs, undoable: undoable_jobs };
        (Self { promised, undoable, room, writer: Arc::clone(&writer), pace }, jobs, writer)
    }

    /// Runs `work`, which touches about `weight` tasks, in a transaction. Returns once it is
    /// durable, however long that takes.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(Box::new(QueuedJob::of(weight, work))).await
    }

    /// As [`WriteQueue::run`], for work that a power cut may undo: returns after its commit.
    pub(crate) async fn run_undoable<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(Box::new(QueuedJob { may_be_undone: true, ..QueuedJob::of(weight, work) })).await
    }

    /// As [`WriteQueue::run_undoable`], for work that may be written a moment later.
    pub(crate) async fn run_deferrable<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let call =
            QueuedJob { may_be_undone: true, is_deferrable: true, ..QueuedJob::of(weight, work) };
        self.queue(Box::new(call)).await
    }

    /// As [`WriteQueue::run`], for a call of the API, which a silent disk must not delay. Work that
    /// has begun may still be done later; other work is skipped.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let call = Box::new(QueuedJob { ends_with_caller: true, ..QueuedJob::of(weight, work) });
        // Pinned here: a future that is passed by value is copied as a whole.
        self.promptly(pin!(self.queue(call))).await
    }

    /// As [`WriteQueue::ask`], for work that needs `bytes` of room: refused while the disk is short
    /// of room.
    pub(crate) async fn add<T: Send + 'static>(
        &self,
        weight: usize,
        bytes: usize,
        work: impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let queued = pin!(self.queue_add(bytes, QueuedJob::of(weight, work)));
        self.promptly(queued).await
    }

    /// As [`WriteQueue::add`], for work that a power cut may undo: returns after its commit.
    pub(crate) async fn add_undoable<T: Send + 'static>(
        &self,
        weight: usize,
        bytes: usize,
        work: impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let call = QueuedJob { may_be_undone: true, ..QueuedJob::of(weight, work) };
        let queued = pin!(self.queue_add(bytes, call));
        promptly(|| self.writer.is_silent(), queued).await
    }

    /// The result of promised `work`, or an error if it takes longer than a call of the API may
    /// wait.
    pub(crate) async fn promptly<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let is_silent = || {
            self.writer.is_silent() || self.pace.running_for().is_some_and(|took| took >= SILENCE)
        };
        promptly(is_silent, work).await
    }

    /// Waits until there is room among the adds that wait, then queues the call.
    async fn queue_add<T: Send + 'static>(
        &self,
        bytes: usize,
        call: QueuedJob<impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static, T>,
    ) -> Result<T> {
        let (room, share) = (Some(bytes as u64), Some(self.share(bytes).await?));
        self.queue(Box::new(QueuedJob { room, share, ends_with_caller: true, ..call })).await
    }

    async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(MOST_WAITING);
        let share = Arc::clone(&self.room).acquire_many_owned(bytes.div_ceil(KIB));
        share.await.map_err(|_| queue::closed())
    }

    /// Lets the writer end once it has done the queued jobs.
    pub(crate) fn close(&self) {
        self.promised.close();
        self.undoable.close();
    }

    async fn queue<T: Send + 'static>(
        &self,
        mut call: Box<
            QueuedJob<impl FnMut(&mut WriteTx<'_>) -> rusqlite::Result<T> + Send + 'static, T>,
        >,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        call.reply = Some(reply);
        let queue = if call.may_be_undone { &self.undoable } else { &self.promised };
        queue.send(call).await?;
        answer.await.unwrap_or_else(|_| Err(queue::closed()))
    }
}
