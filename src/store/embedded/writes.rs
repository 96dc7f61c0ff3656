//! The way to the writer: jobs, and how long their callers wait for it.
//!
//! # Invariants
//!
//! - Who asks for the edge is answered within a second ([`PATIENCE`]), whatever the disk does. One
//!   that hangs costs its callers that second once: from then on they are refused at once, until it
//!   answers.
//! - The adds that wait hold at most [`MOST_WAITING`] of memory, whether or not their callers still
//!   wait.
//! - The worker's own work (claims, settles) waits as long as it takes: what was called must be
//!   settled.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::ledger::Ledger;
use super::queue::{self, Queue};
use crate::store::{Error, Result};

/// How long a call of the edge waits for the disk: with its way through the edge, less than a
/// second.
const PATIENCE: Duration = Duration::from_millis(900);

/// How long a step of the writer may take until the disk counts as silent. Shorter, so that who
/// asks once more after he has waited in vain is refused at once.
pub(super) const SILENCE: Duration = Duration::from_millis(800);

/// The bytes of all adds that wait. A larger one goes alone.
const MOST_WAITING: u32 = 64 << 20;

/// What [`MOST_WAITING`] is counted in.
const KIB: u32 = 1 << 10;

/// Something to be written. Its work is done in a transaction, its answer given after the commit.
pub(super) trait Job: Send {
    /// About how many tasks it touches.
    fn weight(&self) -> usize;
    /// The bytes of new tasks; `None`: it adds nothing, and has to go on while the disk is full.
    fn room(&self) -> Option<u64>;
    /// Writes. Called once more if the transaction was rolled back on another's account.
    fn work(&mut self, ledger: &mut Ledger<'_>) -> rusqlite::Result<()>;
    /// Whether it is answered once it is committed, on disk or not: a power cut may undo it.
    fn may_be_undone(&self) -> bool;
    /// Whether the work was done, rather than left undone since nobody waits for it.
    fn is_done(&self) -> bool;
    /// Tells the caller: the result of the work, or why the transaction failed.
    fn answer(self: Box<Self>, committed: Result<()>);
}

struct Call<F, T> {
    weight: usize,
    room: Option<u64>,
    may_be_undone: bool,
    work: F,
    result: Option<T>,
    /// Who waits; nobody before it is queued.
    reply: Option<oneshot::Sender<Result<T>>>,
    /// Of what may wait; given back with the job.
    share: Option<OwnedSemaphorePermit>,
}

impl<F, T> Call<F, T> {
    fn of(weight: usize, work: F) -> Self {
        Self {
            weight,
            room: None,
            may_be_undone: false,
            work,
            result: None,
            reply: None,
            share: None,
        }
    }
}

impl<F, T> Job for Call<F, T>
where
    F: FnMut(&mut Ledger<'_>) -> rusqlite::Result<T> + Send,
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

    fn work(&mut self, ledger: &mut Ledger<'_>) -> rusqlite::Result<()> {
        self.result = None;
        // A task whose add was refused must not be stored after all.
        let is_pointless =
            self.room.is_some() && self.reply.as_ref().is_none_or(oneshot::Sender::is_closed);
        if !is_pointless {
            self.result = Some((self.work)(ledger)?);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.result.is_some()
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let Self { result, reply, share, .. } = *self;
        drop(share);
        // What was committed without a result was left undone, for nobody waits for it.
        if let (Some(answer), Some(reply)) = (committed.map(|()| result).transpose(), reply) {
            // A caller who went away needs no answer.
            let _ = reply.send(answer);
        }
    }
}

/// Since when the writer, or a reader, has been at what it does now; `None`: it rests.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// It begins something that may take long: a transaction, or what follows it, or so many steps
    /// of a query.
    pub(super) fn step(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// It has nothing to do.
    pub(super) fn rest(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it has been at the same for longer than a disk takes.
    pub(super) fn is_silent(&self) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() >= SILENCE)
    }

    /// Answers what `work` does, but for no longer than an edge call may wait.
    pub(super) async fn promptly<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        if self.is_silent() {
            return Err(self.too_slow());
        }
        timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    fn too_slow(&self) -> Error {
        Error::Unavailable(match self.is_silent() {
            true => {
                format!("the disk is silent: a write takes longer than {} ms", SILENCE.as_millis())
            }
            false => "overloaded: too much waits for the disk".into(),
        })
    }
}

/// The queue to the writer.
#[derive(Debug)]
pub(super) struct Writes {
    queue: Queue<Box<dyn Job>>,
    /// What may still wait of adds, in KiB.
    pub(super) room: Arc<Semaphore>,
    pub(super) pace: Arc<Pace>,
}

impl Writes {
    /// With the writer's ends.
    pub(super) fn new() -> (Self, mpsc::Receiver<Box<dyn Job>>, Arc<Pace>) {
        let (queue, jobs) = Queue::new();
        let pace = Arc::new(Pace::default());
        let room = Arc::new(Semaphore::new((MOST_WAITING / KIB) as usize));
        (Self { queue, room, pace: Arc::clone(&pace) }, jobs, pace)
    }

    /// Runs `work`, which touches about `weight` tasks, in the next transaction; answers after its
    /// commit, however long that takes.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(Box::new(Call::of(weight, work))).await
    }

    /// As [`Writes::run`], for what a power cut may undo: answered before it is on disk.
    pub(super) async fn run_undoable<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.queue(Box::new(Call { may_be_undone: true, ..Call::of(weight, work) })).await
    }

    /// As [`Writes::run`], for a call of the edge, which a silent disk must not hold up. It may
    /// still be done later.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.pace.promptly(pin!(self.run(weight, work))).await
    }

    /// As [`Writes::ask`], for what takes `bytes` of new room: turned away while the disk is short
    /// of it, and left undone once the caller has given up.
    pub(super) async fn add<T: Send + 'static>(
        &self,
        weight: usize,
        bytes: usize,
        work: impl FnMut(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut call = Box::new(Call { room: Some(bytes as u64), ..Call::of(weight, work) });
        // Pinned here: a future that is handed on by value is copied, whole.
        let queued = pin!(async {
            call.share = Some(self.share(bytes).await?);
            self.queue(call).await
        });
        self.pace.promptly(queued).await
    }

    /// Waits for room among what waits.
    async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(MOST_WAITING);
        let share = Arc::clone(&self.room).acquire_many_owned(bytes.div_ceil(KIB));
        share.await.map_err(|_| queue::closed())
    }

    /// Lets the writer end once it has done what is queued.
    pub(super) fn close(&self) {
        self.queue.close();
    }

    async fn queue<T: Send + 'static>(
        &self,
        mut call: Box<Call<impl FnMut(&mut Ledger<'_>) -> rusqlite::Result<T> + Send + 'static, T>>,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        call.reply = Some(reply);
        self.queue.send(call).await?;
        answer.await.unwrap_or_else(|_| Err(queue::closed()))
    }
}
