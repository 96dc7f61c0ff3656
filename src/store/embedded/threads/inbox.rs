//! What the writer does next: gathers waiting jobs into transactions.
//!
//! # Invariants
//!
//! - Undoable work never waits for a sync. Under load it gathers for a moment, because several
//!   claims, or several settles, touch the same pages, which are then written once. It waits until
//!   a pause has passed since such work was last taken: [`PAUSE`], or [`DEFERRAL`] for deferrable
//!   work (settles of workers), unless it is enough for a transaction. So nothing waits while there
//!   is little to do.
//! - One batch of promised work is unconfirmed at a time. Later work waits in its queue, which
//!   bounds the memory of what is committed and keeps batches large.
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

/// The most tasks that one batch, or the undoable work of one transaction, touches; the last job
/// may exceed it.
const MAX_WEIGHT: usize = 4_096;

/// The most bytes of new tasks in one batch; the last job may exceed it. They are in memory and in
/// the log at the same time, and must not fill a disk that is nearly full.
const MAX_BYTES: u64 = 16 << 20;

/// The most tasks of promised work in one transaction; the last job may exceed it. That is some
/// milliseconds, for which workers' claims wait.
const MAX_PART: usize = 128;

/// The pause between transactions with undoable work, unless promised work begins one.
const PAUSE: Duration = Duration::from_micros(1_500);

/// The pause between transactions with deferrable work.
const DEFERRAL: Duration = Duration::from_millis(5);

/// Wakes the writer when a job is queued.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The waiting jobs.
pub(crate) struct Inbox {
    jobs: Jobs,
    confirmations: Arc<Confirmations>,
    undoable: Gathering,
    deferrable: Gathering,
    /// The rest of the batch that has begun.
    begun: VecDeque<Box<dyn Job>>,
    waker: Waker,
}

/// Work that waits for a pause since such work was last taken.
struct Gathering {
    jobs: Vec<Box<dyn Job>>,
    pause: Duration,
    taken: Option<Instant>,
}

impl Gathering {
    fn new(pause: Duration) -> Self {
        Self { jobs: Vec::new(), pause, taken: None }
    }

    /// How much longer the work waits; `None` if there is none.
    fn left(&self) -> Option<Duration> {
        let weight: usize = self.jobs.iter().map(|job| job.weight()).sum();
        let since = match weight < MAX_WEIGHT {
            true => self.taken.map_or(Duration::MAX, |taken| taken.elapsed()),
            false => Duration::MAX,
        };
        (!self.jobs.is_empty()).then(|| self.pause.saturating_sub(since))
    }

    fn take_into(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        if !self.jobs.is_empty() {
            jobs.append(&mut self.jobs);
            self.taken = Some(Instant::now());
        }
    }
}

impl Inbox {
    /// Must be called on the writer's thread.
    pub(crate) fn new(jobs: Jobs, confirmations: Arc<Confirmations>) -> Self {
        confirmations.writer_begins();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let (undoable, deferrable) = (Gathering::new(PAUSE), Gathering::new(DEFERRAL));
        Self { jobs, confirmations, undoable, deferrable, begun: VecDeque::new(), waker }
    }

    /// The jobs of the next transaction, the undoable ones first. Calls `rests` before it waits for
    /// some. `None` once the queues are closed and empty.
    pub(crate) fn next(&mut self, rests: impl Fn()) -> Option<Vec<Box<dyn Job>>> {
        loop {
            let Self { jobs: queues, undoable, deferrable, .. } = self;
            let is_closed = take(&mut queues.undoable, &self.waker, |job| {
                if job.is_deferrable() { &mut *deferrable } else { &mut *undoable }.jobs.push(job);
            });
            let mut is_over = false;
            if self.begun.is_empty() && self.confirmations.may_begin() {
                let Self { jobs, begun, waker, .. } = self;
                is_over = take(&mut jobs.promised, waker, |job| begun.push_back(job));
            }
            let mut jobs = Vec::new();
            if !self.begun.is_empty() {
                self.undoable.take_into(&mut jobs);
            }
            for gathering in [&mut self.undoable, &mut self.deferrable] {
                if is_closed || gathering.left().is_some_and(|left| left.is_zero()) {
                    gathering.take_into(&mut jobs);
                }
            }
            self.take_part(&mut jobs);
            if !jobs.is_empty() {
                return Some(jobs);
            }
            if is_closed && is_over {
                return None;
            }
            rests();
            match self.undoable.left().into_iter().chain(self.deferrable.left()).min() {
                Some(time) => thread::park_timeout(time),
                None => thread::park(),
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
        let mut inbox = Inbox::new(jobs, Arc::default());
        let adds: Vec<_> = (0..5).map(|_| Box::pin(queue.run(100, |_| Ok(())))).collect();
        for mut add in adds {
            assert!(add.as_mut().now_or_never().is_none());
        }
        let mut parts = Vec::new();
        for _ in 0..3 {
            let mut claim = pin!(queue.run_undoable(1, |_| Ok(())));
            assert!(claim.as_mut().now_or_never().is_none());
            let jobs = inbox.next(|| {}).unwrap();
            parts.push((jobs[0].may_be_undone(), jobs.len()));
        }
        assert_eq!(parts, [(true, 3), (true, 3), (true, 2)]);
        queue.close();
        assert!(inbox.next(|| {}).is_none());
    }

    /// Under load, each claim and each settle had a transaction of its own.
    #[test]
    fn undoable_work_waits_for_a_pause_and_goes_with_promised_work() {
        let (queue, jobs, _) = WriteQueue::new(Arc::default());
        let mut inbox = Inbox::new(jobs, Arc::default());
        let at_once = || panic!("there is nothing to wait for");
        for (pause, is_deferrable) in [(PAUSE, false), (DEFERRAL, true)] {
            let queued = || {
                let job = match is_deferrable {
                    true => queue.run_deferrable(1, |_| Ok(())).left_future(),
                    false => queue.run_undoable(1, |_| Ok(())).right_future(),
                };
                let mut job = Box::pin(job);
                assert!(job.as_mut().now_or_never().is_none());
                job
            };
            let (_first, began) = (queued(), Instant::now());
            assert_eq!(inbox.next(at_once).unwrap().len(), 1);
            let _others = (queued(), queued());
            assert_eq!(inbox.next(|| {}).unwrap().len(), 2);
            assert!(began.elapsed() >= pause);
        }

        let mut large = pin!(queue.run_deferrable(MAX_WEIGHT, |_| Ok(())));
        assert!(large.as_mut().now_or_never().is_none());
        assert_eq!(inbox.next(at_once).unwrap().len(), 1);

        let mut claim = pin!(queue.run_undoable(1, |_| Ok(())));
        let mut add = pin!(queue.run(1, |_| Ok(())));
        assert!(claim.as_mut().now_or_never().is_none() && add.as_mut().now_or_never().is_none());
        assert_eq!(inbox.next(at_once).unwrap().len(), 2);

        let mut last = pin!(queue.run_deferrable(1, |_| Ok(())));
        assert!(last.as_mut().now_or_never().is_none());
        queue.close();
        assert_eq!(inbox.next(at_once).unwrap().len(), 1);
        assert!(inbox.next(|| {}).is_none());
    }
}
