//! Claimed tasks on their way to a consumer: from the claim until the answer is written.
//!
//! A claimed task is in the hands of a [`ClaimedLeases`] until its consumer has it, so that whatever goes
//! wrong before (the caller hangs up, a timeout, a panic) gives it back unspent.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::Pulled;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::model::task::{Lane, Receipt, TaskId};
use crate::store::{self, AnyStore, Delivery, Settle, Transition};

/// How long the answer of a pull without `lease` may take to be written.
pub(crate) const WRITING: Duration = Duration::from_secs(10);

/// How often a settle that was not confirmed is sent in all, and the first wait between two; each
/// next is three times as long. With a store that is silent for a second each time this lasts about
/// ten seconds.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// What a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PullParams {
    /// At most so many tasks.
    pub(crate) slots: usize,
    /// For how long; without, they are consumed by the answer.
    pub(crate) lease: Option<Duration>,
}

/// What a claim gave. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct PulledTasks {
    pub(crate) tasks: Vec<Pulled>,
    /// The bytes of their contents.
    pub(crate) bytes: usize,
    pub(crate) held: ClaimedLeases,
    /// When the consumer has to have it: before another may.
    pub(crate) deadline: Instant,
}

impl PulledTasks {
    pub(crate) fn nothing(to: LeaseReturn, params: PullParams) -> Self {
        // Counted from before the claim, and over before the lease is.
        let deadline = Instant::now() + params.lease.unwrap_or(WRITING).min(WRITING).mul_f32(0.9);
        Self {
            tasks: Vec::new(),
            bytes: 0,
            held: ClaimedLeases::new(to, params.lease.is_none()),
            deadline,
        }
    }

    pub(crate) fn add(&mut self, lane: &Lane, receipt: &Receipt, task: crate::store::LeasedTask) {
        self.held.hold(lane.clone(), task.id, receipt.clone());
        self.bytes += task.content.len();
        self.tasks.push(Pulled {
            content: Some(task.content),
            task_id: Some(task.id.into()),
            attempt: Some(task.attempt),
            receipt: (!self.held.consumes).then(|| receipt.to_string()),
        });
    }
}

/// Where tasks that do not reach their consumer go back to.
#[derive(Clone, Debug)]
pub(crate) struct LeaseReturn {
    pub(crate) store: Arc<AnyStore>,
    /// Claims and settles that outlive their request.
    pub(crate) pending: TaskTracker,
}

/// Claimed tasks that their consumer does not have yet. Dropped, it gives them back.
#[derive(Debug)]
pub(crate) struct ClaimedLeases {
    to: LeaseReturn,
    /// The consumer asked for no lease: the written answer ends the tasks.
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

    /// The consumer has them.
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
        // Outside of a runtime the process is at its end, and the leases run out by themselves.
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

/// Ends leases that nobody waits for, and repeats what was not confirmed for some seconds. Should
/// that fail, the leases run out, and the tasks are handed out again.
async fn settle_unasked(store: Arc<AnyStore>, mut settles: Vec<Settle>) {
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        let answers = store.settle(settles.clone()).await;
        let failed = settles
            .into_iter()
            .zip(answers)
            .filter_map(|(settle, answer)| Some((settle, answer.err()?)));
        let (again, lost): (Vec<_>, Vec<_>) =
            failed.partition(|(_, error)| attempt < TRIES && passes(error));
        if let Some((_, error)) = lost.first() {
            let count = lost.len();
            tracing::warn!(count, %error, "{count} pulled tasks could not be settled, and will be handed out again: {error}");
        }
        if again.is_empty() {
            return;
        }
        settles = again.into_iter().map(|(settle, _)| settle).collect();
        tokio::time::sleep(wait).await;
        wait *= 3;
    }
}

/// Whether it may be otherwise in a moment.
fn passes(error: &store::Error) -> bool {
    matches!(error, store::Error::Unavailable(_) | store::Error::Moving(_) | store::Error::Full(_))
}
