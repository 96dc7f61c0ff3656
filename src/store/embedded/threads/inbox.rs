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
use std::task::{Context, Poll, Waker};
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

/// What the writer thread does next.
pub(crate) enum NextStep {
    /// One transaction with these jobs.
    Write(Vec<Box<dyn Job>>),
    /// It waits until the waker is called, or at most so long.
    Wait(Option<Duration>),
    /// It ends: the queues are closed and empty.
    End,
}

/// The waiting jobs.
pub(crate) struct Inbox {
    jobs: Jobs,
    confirmations: Arc<Confirmations>,
    undoable: Gathering,
    deferrable: Gathering,
    /// The rest of the batch that has begun.
    begun: VecDeque<Box<dyn Job>>,
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
    pub(crate) fn new(jobs: Jobs, confirmations: Arc<Confirmations>) -> Self {
        let (undoable, deferrable) = (Gathering::new(PAUSE), Gathering::new(DEFERRAL));
        Self { jobs, confirmations, undoable, deferrable, begun: VecDeque::new() }
    }

    /// The waker is called when there may be more to do. The sync thread wakes the writer thread,
    /// too.
    pub(crate) fn next(&mut self, waker: &Waker) -> NextStep {
        let Self { jobs: queues, undoable, deferrable, .. } = self;
        let is_closed = take(&mut queues.undoable, waker, |job| {
            if job.is_deferrable() { &mut *deferrable } else { &mut *undoable }.jobs.push(job);
        });
        let is_over = self.begin(waker);
        let jobs = self.transaction(is_closed);
        if !jobs.is_empty() {
            NextStep::Write(jobs)
        } else if is_closed && is_over {
            NextStep::End
        } else {
            NextStep::Wait(self.undoable.left().into_iter().chain(self.deferrable.left()).min())
        }
    }

    /// Begins a batch if none has begun and the last one is confirmed. Returns whether the queue is
    /// closed and empty.
    fn begin(&mut self, waker: &Waker) -> bool {
        if !self.begun.is_empty() || !self.confirmations.may_begin() {
            return false;
        }
        let Self { jobs, begun, .. } = self;
        let promised = &mut jobs.promised;
        let mut fill = Fill::default();
        // The waker is left only with an empty queue: what comes later waits for the sync anyway.
        while fill.has_room()
            && let Ok(job) = promised.try_recv()
        {
            fill.add(&*job);
            begun.push_back(job);
        }
        begun.is_empty() && take(promised, waker, |job| begun.push_back(job))
    }

    /// The jobs of one transaction, the undoable ones first: a part of the batch with the work that
    /// it begins, and the work whose pause is over.
    fn transaction(&mut self, is_closed: bool) -> Vec<Box<dyn Job>> {
        let mut jobs = Vec::new();
        if !self.begun.is_empty() {
            self.undoable.take_into(&mut jobs);
        }
        for gathering in [&mut self.undoable, &mut self.deferrable] {
            if is_closed || gathering.left().is_some_and(|left| left.is_zero()) {
                gathering.take_into(&mut jobs);
            }
        }
        let mut weight = 0;
        while weight < MAX_PART
            && let Some(job) = self.begun.pop_front()
        {
            weight += job.weight();
            jobs.push(job);
        }
        jobs
    }
}

/// How full a batch is.
#[derive(Default)]
struct Fill {
    weight: usize,
    bytes: u64,
}

impl Fill {
    fn has_room(&self) -> bool {
        self.weight < MAX_WEIGHT && self.bytes < MAX_BYTES
    }

    fn add(&mut self, job: &dyn Job) {
        self.weight += job.weight();
        self.bytes += job.room().unwrap_or(0);
    }
}

/// Takes the waiting jobs, as many as fit into one batch. The waker is called when there are more.
/// Returns whether the queue is closed and empty.
fn take(
    queue: &mut mpsc::Receiver<Box<dyn Job>>,
    waker: &Waker,
    mut put: impl FnMut(Box<dyn Job>),
) -> bool {
    let mut fill = Fill::default();
    while fill.has_room() {
        match queue.poll_recv(&mut Context::from_waker(waker)) {
            Poll::Ready(Some(job)) => {
                fill.add(&*job);
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use futures_util::FutureExt;

    use super::*;
    use crate::store::embedded::threads::write_queue::WriteQueue;

    /// The jobs of the next transaction, after the waits before it.
    fn write(inbox: &mut Inbox) -> Vec<Box<dyn Job>> {
        loop {
            match inbox.next(Waker::noop()) {
                NextStep::Write(jobs) => return jobs,
                NextStep::Wait(limit) => std::thread::sleep(limit.expect("there is work")),
                NextStep::End => panic!("there is work"),
            }
        }
    }

    fn write_at_once(inbox: &mut Inbox) -> usize {
        match inbox.next(Waker::noop()) {
            NextStep::Write(jobs) => jobs.len(),
            _ => panic!("there is nothing to wait for"),
        }
    }

    fn has_ended(inbox: &mut Inbox) -> bool {
        matches!(inbox.next(Waker::noop()), NextStep::End)
    }

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
            let jobs = write(&mut inbox);
            parts.push((jobs[0].may_be_undone(), jobs.len()));
        }
        assert_eq!(parts, [(true, 3), (true, 3), (true, 2)]);
        queue.close();
        assert!(has_ended(&mut inbox));
    }

    /// Under load, each claim and each settle had a transaction of its own.
    #[test]
    fn undoable_work_waits_for_a_pause_and_goes_with_promised_work() {
        let (queue, jobs, _) = WriteQueue::new(Arc::default());
        let mut inbox = Inbox::new(jobs, Arc::default());
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
            assert_eq!(write_at_once(&mut inbox), 1);
            let _others = (queued(), queued());
            assert_eq!(write(&mut inbox).len(), 2);
            assert!(began.elapsed() >= pause);
        }

        let mut large = pin!(queue.run_deferrable(MAX_WEIGHT, |_| Ok(())));
        assert!(large.as_mut().now_or_never().is_none());
        assert_eq!(write_at_once(&mut inbox), 1);

        let mut claim = pin!(queue.run_undoable(1, |_| Ok(())));
        let mut add = pin!(queue.run(1, |_| Ok(())));
        assert!(claim.as_mut().now_or_never().is_none() && add.as_mut().now_or_never().is_none());
        assert_eq!(write_at_once(&mut inbox), 2);

        let mut last = pin!(queue.run_deferrable(1, |_| Ok(())));
        assert!(last.as_mut().now_or_never().is_none());
        queue.close();
        assert_eq!(write_at_once(&mut inbox), 1);
        assert!(has_ended(&mut inbox));
    }

    /// A batch whose jobs were all answered needs no sync, and nothing looked at the next one.
    #[test]
    fn work_behind_a_full_batch_that_waits_for_no_sync_is_looked_at() {
        let (queue, jobs, _) = WriteQueue::new(Arc::default());
        let mut inbox = Inbox::new(jobs, Arc::default());
        let mut jobs = [MAX_WEIGHT, 1].map(|weight| Box::pin(queue.run(weight, |_| Ok(()))));
        for job in &mut jobs {
            assert!(job.as_mut().now_or_never().is_none());
        }
        assert_eq!((write_at_once(&mut inbox), write_at_once(&mut inbox)), (1, 1));
    }

    /// Each add during a sync woke the writer thread, which had nothing to do.
    #[test]
    fn promised_work_wakes_the_writer_thread_only_after_an_empty_queue() {
        #[derive(Default)]
        struct Wakes(AtomicUsize);
        impl Wake for Wakes {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(wakes.clone());
        let (queue, jobs, _) = WriteQueue::new(Arc::default());
        let mut inbox = Inbox::new(jobs, Arc::default());
        let add = || {
            let mut add = Box::pin(queue.run(1, |_| Ok(())));
            assert!(add.as_mut().now_or_never().is_none());
            add
        };
        assert!(matches!(inbox.next(&waker), NextStep::Wait(None)));
        let _first = add();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(matches!(inbox.next(&waker), NextStep::Write(jobs) if jobs.len() == 1));
        let _during_its_sync = (add(), add());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(matches!(inbox.next(&waker), NextStep::Write(jobs) if jobs.len() == 2));
    }
}
