//! One batch, sent once, and what follows from the store's answers.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::Way;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ending::LeaseEnding;
use super::handle::Settler;
use crate::metrics::{TaskEnd, TaskMetrics};
use crate::model::task::Lane;
use crate::store::{Asker, Delivery, Error, MAX_LEASE, Moment, Settled, Transition};
use crate::worker::in_flight::{HeldLease, HeldTask, MARGIN};

/// What settling needs.
#[derive(Debug)]
pub(in crate::worker) struct Settling<S> {
    pub(in crate::worker) store: Arc<S>,
    pub(in crate::worker) settler: Arc<Settler>,
    pub(in crate::worker) calls: TaskTracker,
    pub(in crate::worker) stopping: CancellationToken,
    pub(in crate::worker) tasks: Arc<TaskMetrics>,
}

/// What came of a batch.
pub(super) struct BatchOutcome {
    /// Whether the store answered for any of it.
    pub(super) answered: bool,
    pub(super) failed: Vec<(LeaseEnding, Error)>,
}

impl<S: Delivery> Settling<S> {
    /// Sends a batch once, and concludes what the store answered.
    pub(super) async fn attempt(self: &Arc<Self>, batch: Vec<LeaseEnding>) -> BatchOutcome {
        let is_one_lane = batch.iter().all(|ending| ending.lane == batch[0].lane);
        let answers =
            self.store.settle(Asker::Worker, batch.iter().map(LeaseEnding::settle).collect()).await;
        let mut attempt = BatchOutcome { answered: false, failed: Vec::new() };
        let mut broken: Option<(Error, usize)> = None;
        for (ending, answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(settled) => {
                    attempt.answered = true;
                    self.settler.is_answered();
                    self.conclude(ending, settled);
                }
                // The store has answered. In a batch of several lanes, one corrupt lane must not
                // fail the others: they are repeated lane by lane.
                Err(error @ Error::Corrupt(_)) if is_one_lane => {
                    attempt.answered = true;
                    self.settler.is_answered();
                    broken.get_or_insert((error, 0)).1 += 1;
                }
                Err(error) => attempt.failed.push((ending, error)),
            }
        }
        if let Some((error, settles)) = broken {
            tracing::error!(
                %error, settles,
                "The store could not take settles; those tasks come back when their leases run out"
            );
        }
        attempt
    }

    fn conclude(self: &Arc<Self>, ending: LeaseEnding, answer: Settled) {
        let is_stale = matches!(answer, Settled::Stale { .. });
        let id = ending.id;
        match answer {
            // The store tells the lane what waits again.
            Settled::Done => ending.end.into_iter().for_each(|end| self.tasks.ended(end)),
            Settled::Cancelled => self.tasks.ended(TaskEnd::PendingCancel),
            Settled::Stale { state } if matches!(ending.transition, Transition::Keep { .. }) => {
                // Its acknowledgement came before the response that announced it.
                tracing::debug!(
                    task.id = %id, lane = %ending.lane, state = state.as_str(),
                    "The receiver of task {id} has ended it already: it is {}", state.as_str()
                );
            }
            Settled::Stale { state } => {
                self.tasks.stale_settle(Way::Push);
                tracing::info!(
                    task.id = %id, lane = %ending.lane, state = state.as_str(),
                    "A late settle of task {id} changed nothing: it is {} by now", state.as_str()
                );
            }
            Settled::Unknown => {
                tracing::info!(
                    task.id = %id, lane = %ending.lane,
                    "Task {id} is gone; its settle changed nothing"
                );
            }
        }
        let LeaseEnding { lane, lease: HeldLease { attempt, .. }, task, transition, .. } = ending;
        let Some(task) = task.and_then(HeldTask::next_lease) else { return };
        // A claim returned it meanwhile under a newer lease, for which it was not called.
        match transition {
            Transition::Retry { due: Moment::After(wait), .. }
                if is_stale && task.lease().attempt > attempt =>
            {
                self.calls.spawn(self.clone().hold_back(lane, task, wait));
            }
            _ => self.settler.send(LeaseEnding::of(lane, task, Transition::Release)),
        }
    }

    /// Releases a lease when the wait that follows a failure is over.
    ///
    /// The failure itself could not be settled, because this newer lease had replaced its lease.
    /// Released at once, the task would be called again without a wait. The attempts show that it
    /// is the same revision, so that the wait applies to it.
    async fn hold_back(self: Arc<Self>, lane: Lane, task: HeldTask, wait: Duration) {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {}
            () = self.keep(&lane, &task, Instant::now() + wait) => {}
        }
        self.settler.send(LeaseEnding::of(lane, task, Transition::Release));
    }

    /// Extends the lease until the moment. Returns earlier if it cannot be extended.
    async fn keep(&self, lane: &Lane, task: &HeldTask, until: Instant) {
        loop {
            let HeldLease { receipt, until: end, .. } = task.lease();
            let in_time = end.checked_sub(MARGIN).unwrap_or(end);
            tokio::time::sleep_until(until.min(in_time)).await;
            if until <= in_time {
                return;
            }
            let since = Instant::now();
            let span = (until.saturating_duration_since(since) + 2 * MARGIN).min(MAX_LEASE);
            match self.store.extend(Asker::Worker, lane, task.id(), &receipt, span).await {
                Ok(Settled::Done) => task.extended(since + span),
                // Somebody else has the task, or gets it when the lease runs out.
                Ok(Settled::Cancelled | Settled::Stale { .. } | Settled::Unknown) | Err(_) => {
                    return;
                }
            }
        }
    }
}
