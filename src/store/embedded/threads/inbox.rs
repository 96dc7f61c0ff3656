//! What the writer does next: gathers waiting jobs into transactions.
//!
//! # Invariants
//!
//! - Undoable work never waits for a sync: each transaction takes all of it that waits.
//! - Deferrable work (settles of workers) goes with other work. Alone it waits for
//!   [`LONGEST_DEFERRAL`], unless it is enough for a transaction.
//! - At most [`MOST_BATCHES`] batches of promised work are unconfirmed: one that is being synced,
//!   and one that is committed for the next sync. Later work waits in its queue, which bounds the
//!   memory of what is committed and keeps batches large.
//! - A large batch is written in several transactions, so that undoable work waits for a part of it
//!   only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::confirmations::Confirmations;
use super::write_queue::{Job, Jobs};
use crate::store::embedded::disk::wal_sync::SyncPace;

/// The most batches of promised work that are unconfirmed.
const MOST_BATCHES: usize = 2;

/// The most tasks that one batch, or the undoable work of one transaction, touches; the last job
/// may exceed it.
const MAX_WEIGHT: usize = 4_096;

/// The most bytes of new tasks in one batch; the last job may exceed it. They are in memory and in
/// the log at the same time, and must not fill a disk that is nearly full.
const MAX_BYTES: u64 = 16 << 20;

/// The most tasks of promised work in one transaction; the last job may exceed it. That is some
/// milliseconds, for which workers' claims wait.
const MAX_PART: usize = 128;

/// While a sync runs, the next batch gathers for half of the time that the last sync took: it is
/// committed before the running sync ends, and is as large as possible. Shorter times are not worth
/// a timer.
const SHORTEST_GATHERING: Duration = Duration::from_micros(100);

/// How long deferrable work waits for other work.
const LONGEST_DEFERRAL: Duration = Duration::from_millis(1);

/// The jobs of one transaction, the undoable ones first.
pub(crate) struct Part {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    /// The batch that the promised ones belong to.
    pub(crate) batch: u64,
}

/// Wakes the writer when a job is queued.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// When the next batch may begin.
enum Turn {
    Now,
    /// Unless a sync ends earlier.
    In(Duration),
    AfterSync,
}

/// The waiting jobs.
pub(crate) struct Inbox {
    jobs: Jobs,
    confirmations: Arc<Confirmations>,
    pace: Arc<SyncPace>,
    /// The deferred work, and since when the first of it waits.
    deferred: Vec<Box<dyn Job>>,
    deferred_since: Instant,
    /// The rest of the batch that has begun.
    begun: VecDeque<Box<dyn Job>>,
    batch: u64,
    waker: Waker,
}

impl Inbox {
    /// Must be called on the writer's thread.
    pub(crate) fn new(jobs: Jobs, confirmations: Arc<Confirmations>, pace: Arc<SyncPace>) -> Self {
        confirmations.writer_begins();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let (deferred, begun) = (Vec::new(), VecDeque::new());
        let deferred_since = Instant::now();
        Self { jobs, confirmations, pace, deferred, deferred_since, begun, batch: 0, waker }
    }

    /// The jobs of the next transaction. Calls `rests` before it waits for some. `None` once the
    /// queues are closed and empty.
    pub(crate) fn next(&mut self, rests: impl Fn()) -> Option<Part> {
        loop {
            let (mut jobs, mut deferrable) = (Vec::new(), Vec::new());
            let is_closed = take(&mut self.jobs.undoable, &self.waker, |job| {
                if job.is_deferrable() { &mut deferrable } else { &mut jobs }.push(job);
            });
            self.defer(deferrable);
            let turn = if self.begun.is_empty() { self.turn() } else { Turn::AfterSync };
            let mut is_over = false;
            if matches!(turn, Turn::Now) {
                let Self { jobs, begun, waker, .. } = self;
                is_over = take(&mut jobs.promised, waker, |job| begun.push_back(job));
                self.batch += u64::from(!self.begun.is_empty());
            }
            let has_other = !(jobs.is_empty() && self.begun.is_empty());
            let left = self.deferral_left();
            if has_other || left.is_zero() || is_closed {
                jobs.append(&mut self.deferred);
            }
            self.take_part(&mut jobs);
            if !jobs.is_empty() {
                return Some(Part { jobs, batch: self.batch });
            }
            if is_closed && is_over {
                return None;
            }
            rests();
            let left = (!self.deferred.is_empty()).then_some(left);
            let turn = match turn {
                Turn::In(time) => Some(time),
                Turn::Now | Turn::AfterSync => None,
            };
            match left.into_iter().chain(turn).min() {
                Some(time) => thread::park_timeout(time),
                None => thread::park(),
            }
        }
    }

    fn defer(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        if self.deferred.is_empty() {
            self.deferred_since = Instant::now();
        }
        self.deferred.append(&mut jobs);
    }

    /// How much longer the deferred work may wait.
    fn deferral_left(&self) -> Duration {
        let weight: usize = self.deferred.iter().map(|job| job.weight()).sum();
        match weight < MAX_PART {
            true => LONGEST_DEFERRAL.saturating_sub(self.deferred_since.elapsed()),
            false => Duration::ZERO,
        }
    }

    fn turn(&self) -> Turn {
        match self.confirmations.batches() {
            0 => Turn::Now,
            MOST_BATCHES.. => Turn::AfterSync,
            _ => {
                let gathers = self.pace.last() / 2;
                let left = self.pace.running_for().map(|took| gathers.saturating_sub(took));
                match left {
                    Some(left) if left >= SHORTEST_GATHERING => Turn::In(left),
                    _ => Turn::Now,
                }
            }
        }
    }

    fn take_part(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        let mut weight = 0;
        while weight < MAX_PART
            && let Some(job) = self.begun.pop_front()
        {
            weight += job.weight();
            jobs.push(job);
        }
    }
}

/// Takes the waiting jobs, as many as fit into one batch. The waker is called when there are more.
/// Returns whether the queue is closed and empty.
fn take(
    queue: &mut mpsc::Receiver<Box<dyn Job>>,
    waker: &Waker,
    mut put: impl FnMut(Box<dyn Job>),
) -> bool {
    let (mut weight, mut bytes) = (0, 0);
    while weight < MAX_WEIGHT && bytes < MAX_BYTES {
        match queue.poll_recv(&mut Context::from_waker(waker)) {
            Poll::Ready(Some(job)) => {
                weight += job.weight();
                bytes += job.room().unwrap_or(0);
                put(job);
            }
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::store::embedded::threads::write_queue::WriteQueue;

    /// A claim would wait for a thousand adds.
    #[test]
    fn a_large_batch_is_taken_in_parts_each_behind_the_undoable_work() {
        let (queue, jobs, _) = WriteQueue::new(Arc::default());
        let mut inbox = Inbox::new(jobs, Arc::default(), Arc::default());
        let adds: Vec<_> = (0..5).map(|_| Box::pin(queue.run(100, |_| Ok(())))).collect();
        for mut add in adds {
            assert!(add.as_mut().now_or_never().is_none());
        }
        let mut parts = Vec::new();
        for _ in 0..3 {
            let mut claim = pin!(queue.run_undoable(1, |_| Ok(())));
            assert!(claim.as_mut().now_or_never().is_none());
            let Part { jobs, batch } = inbox.next(|| {}).unwrap();
            parts.push((jobs[0].may_be_undone(), jobs.len(), batch));
        }
        assert_eq!(parts, [(true, 3, 1), (true, 3, 1), (true, 2, 1)]);
        queue.close();
        assert!(inbox.next(|| {}).is_none());
    }

    /// Each settle had a transaction of its own.
    #[test]
    fn deferrable_work_goes_with_other_work_and_alone_a_moment_later() {
        let (queue, jobs, _) = WriteQueue::new(Arc::default());
        let mut inbox = Inbox::new(jobs, Arc::default(), Arc::default());
        let queued = |weight| {
            let mut settle = Box::pin(queue.run_deferrable(weight, |_| Ok(())));
            assert!(settle.as_mut().now_or_never().is_none());
            settle
        };
        let _first = queued(1);
        let mut claim = pin!(queue.run_undoable(1, |_| Ok(())));
        assert!(claim.as_mut().now_or_never().is_none());
        assert_eq!(inbox.next(|| {}).unwrap().jobs.len(), 2, "the claim takes it along");

        let (_second, began) = (queued(1), Instant::now());
        assert_eq!(inbox.next(|| {}).unwrap().jobs.len(), 1);
        assert!(began.elapsed() >= LONGEST_DEFERRAL);

        let _large = queued(MAX_PART);
        let part = inbox.next(|| panic!("enough for a transaction waits for nothing"));
        assert_eq!(part.unwrap().jobs.len(), 1);

        let _last = queued(1);
        queue.close();
        let part = inbox.next(|| panic!("nothing else can come"));
        assert_eq!(part.unwrap().jobs.len(), 1);
        assert!(inbox.next(|| {}).is_none());
    }
}
