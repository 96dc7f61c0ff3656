//! The delivery of claimed tasks to a consumer: from the claim until the answer has been written.
//!
//! [`ClaimedLeases`] holds the tasks until then. If it is dropped (the caller disconnects, a
//! timeout, a panic), the tasks return to the store, and the attempt does not count.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::{Pulled, Way};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::metrics::{TaskEnd, TaskMetrics};
use crate::model::clock::UnixMillis;
use crate::model::culprit::Culprit;
use crate::model::lateness::{Lateness, TopicDelays};
use crate::model::task::{Lane, Receipt, TaskId};
use crate::store::{self, AnyStore, Asker, Delivery, Settle, Settled, Transition};

/// The longest time to write the answer of a pull without `lease`.
pub(crate) const WRITING: Duration = Duration::from_secs(10);

/// How often an unconfirmed settle is sent, and the first wait in between. Each further wait is
/// three times as long. With a store that takes a second each time, this lasts about ten seconds.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// What a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PullParams {
    /// The most tasks.
    pub(crate) slots: usize,
    /// The length of the lease. `None`: the answer consumes the tasks.
    pub(crate) lease: Option<Duration>,
}

/// The tasks of a claim. Dropping them returns them to the store.
#[derive(Debug)]
pub(crate) struct PulledTasks {
    pub(crate) tasks: Vec<Pulled>,
    /// The length of their contents, in bytes.
    pub(crate) bytes: usize,
    pub(crate) held: ClaimedLeases,
    /// Those that are handed out for the first time. Their lateness is measured.
    pub(crate) first: Vec<FirstHandOut>,
    /// When the answer must have been written, because later another consumer may have the tasks.
    pub(crate) deadline: Instant,
}

impl PulledTasks {
    pub(crate) fn nothing(to: LeaseReturn, params: PullParams) -> Self {
        // Measured from before the claim, and with a margin, so that it passes before the lease
        // ends.
        let deadline = Instant::now() + params.lease.unwrap_or(WRITING).min(WRITING).mul_f32(0.9);
        Self {
            tasks: Vec::new(),
            bytes: 0,
            first: Vec::new(),
            held: ClaimedLeases::new(to, params.lease.is_none()),
            deadline,
        }
    }

    pub(crate) fn add(
        &mut self,
        lane: &Lane,
        receipt: &Receipt,
        task: crate::store::LeasedTask,
        claim: &ClaimTimes,
    ) {
        if task.attempt == 1 {
            let missed = task.options.schedule.as_ref().map_or(0, |schedule| schedule.missed);
            self.first.push(FirstHandOut { due: task.due, missed, claim: *claim });
        }
        self.held.hold(lane.clone(), task.id, receipt.clone());
        self.bytes += task.content.len();
        self.tasks.push(Pulled {
            content: Some(task.content),
            content_removed: false,
            task_id: Some(task.id.into()),
            attempt: Some(task.attempt),
            receipt: (!self.held.consumes).then(|| receipt.to_string()),
            schedule: task.options.schedule.as_deref().map(Into::into),
        });
    }
}

/// When a claim was sent and answered: by the store's clock, and by ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimTimes {
    pub(crate) took: Duration,
    pub(crate) now: UnixMillis,
    pub(crate) at: Instant,
}

/// The first time that a task is handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstHandOut {
    due: UnixMillis,
    /// The missed moments of its recurring schedule for which the task stands.
    pub(crate) missed: u64,
    claim: ClaimTimes,
}

impl FirstHandOut {
    /// How late the task is for a consumer that came at this moment, and who delayed it: a
    /// consumer until then, and the store while the claim took.
    pub(crate) fn lateness(&self, came: Instant, topic: &TopicDelays) -> Lateness {
        let ClaimTimes { took, now, at } = self.claim;
        let asked = now - took;
        let waits = (now - at.saturating_duration_since(came)).min(asked);
        let mut lateness = topic.charge(self.due, waits, &[], Culprit::Consumer);
        let waited = self.due.max(waits);
        lateness.add_all(&topic.charge(waited, asked, &[], Culprit::Delayd));
        lateness.add(Culprit::Store, now.0 - self.due.max(asked).0);
        lateness
    }
}

/// Settles leases in the background.
#[derive(Clone, Debug)]
pub(crate) struct LeaseReturn {
    pub(crate) store: Arc<AnyStore>,
    /// Claims and settles that may outlive their request.
    pub(crate) pending: TaskTracker,
}

/// Leases of tasks that the consumer does not have yet. Dropping them returns the tasks.
#[derive(Debug)]
pub(crate) struct ClaimedLeases {
    to: LeaseReturn,
    /// The pull had no `lease`: the tasks are delivered when the answer has been written.
    consumes: bool,
    leases: Vec<(Lane, TaskId, Receipt)>,
}

impl ClaimedLeases {
    pub(crate) fn new(to: LeaseReturn, consumes: bool) -> Self {
        Self { to, consumes, leases: Vec::new() }
    }

    pub(crate) fn hold(&mut self, lane: Lane, id: TaskId, receipt: Receipt) {
        self.leases.push((lane, id, receipt));
    }

    /// The consumer has the tasks.
    pub(crate) fn written(mut self) {
        if self.consumes {
            self.end(&Transition::Delivered { outcome: "pulled".into() });
        }
        self.leases.clear();
    }

    fn end(&mut self, transition: &Transition) {
        let settles: Vec<Settle> = self
            .leases
            .drain(..)
            .map(|(lane, id, receipt)| Settle { lane, id, receipt, transition: transition.clone() })
            .collect();
        // Without a runtime the process is ending, and the leases expire by themselves.
        if settles.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.to.pending.spawn(settle_unasked(self.to.store.clone(), settles));
    }
}

impl Drop for ClaimedLeases {
    fn drop(&mut self) {
        self.end(&Transition::Release);
    }
}

/// Settles leases that no caller waits for, and repeats what was not confirmed for some seconds. If
/// that fails, the leases expire and the tasks are delivered again.
async fn settle_unasked(store: Arc<AnyStore>, mut settles: Vec<Settle>) {
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        let answers = store.settle(Asker::Worker, settles.clone()).await;
        for (settle, answer) in settles.iter().zip(&answers) {
            count(&store.metrics().tasks, &settle.transition, answer);
        }
        let failed = settles
            .into_iter()
            .zip(answers)
            .filter_map(|(settle, answer)| Some((settle, answer.err()?)));
        let (again, lost): (Vec<_>, Vec<_>) =
            failed.partition(|(_, error)| attempt < TRIES && passes(error));
        if let Some((_, error)) = lost.first() {
            let count = lost.len();
            tracing::warn!(
                count,
                %error,
                "{count} pulled tasks could not be settled, and will be delivered again: {error}"
            );
        }
        if again.is_empty() {
            return;
        }
        settles = again.into_iter().map(|(settle, _)| settle).collect();
        tokio::time::sleep(wait).await;
        wait *= 3;
    }
}

/// Counts the answer to the end of a lease.
fn count(tasks: &TaskMetrics, transition: &Transition, answer: &store::Result<Settled>) {
    match (transition, answer) {
        (Transition::Delivered { .. }, Ok(Settled::Done)) => tasks.ended(TaskEnd::Pull),
        (_, Ok(Settled::Cancelled)) => tasks.ended(TaskEnd::PendingCancel),
        (_, Ok(Settled::Stale { .. })) => tasks.stale_settle(Way::Pull),
        _ => {}
    }
}

/// Whether the same call may succeed later.
fn passes(error: &store::Error) -> bool {
    matches!(error, store::Error::Unavailable(_) | store::Error::Moving(_) | store::Error::Full(_))
}
