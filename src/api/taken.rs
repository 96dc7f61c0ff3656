//! Claimed tasks on their way to a consumer: from the claim until the answer is written.
//!
//! A claimed task is in the hands of a [`Held`] until its consumer has it, so that whatever goes wrong before (the caller hangs up, a
//! timeout, a panic) gives it back unspent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::Api;
use super::error::Error;
use super::settle::settle_unasked;
use crate::store::{Claim, Claimed, Delivery, MAX_CLAIM_BYTES, Registered, Settle, Transition, Want};
use crate::task::{Destination, Lane, Receipt, TaskId};

/// How long the answer of a pull without `lease` may take to be written.
const WRITING: Duration = Duration::from_secs(10);

/// What a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// At most so many tasks.
    pub(super) slots: usize,
    /// For how long; without, they are consumed by the answer.
    pub(super) lease: Option<Duration>,
}

/// A task as its consumer sees it; with nothing due, `content` and `task_id` are null.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct Pulled {
    /// Null with nothing due.
    pub(super) content: Option<String>,
    /// The task.
    pub(super) task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<String>,
}

/// What a claim gave. Dropped, it is given back.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) tasks: Vec<Pulled>,
    /// The bytes of their contents.
    bytes: usize,
    pub(super) held: Held,
    /// When the consumer has to have it: before another may.
    pub(super) deadline: Instant,
}

impl Taken {
    pub(super) fn nothing(api: &Arc<Api>, wish: Wish) -> Self {
        // Counted from before the claim, and over before the lease is.
        let deadline = Instant::now() + wish.lease.unwrap_or(WRITING).min(WRITING).mul_f32(0.9);
        Self { tasks: Vec::new(), bytes: 0, held: Held::new(api.clone(), wish.lease.is_none()), deadline }
    }

    fn add(&mut self, lane: &Lane, receipt: &Receipt, task: crate::store::LeasedTask) {
        self.held.hold(lane.clone(), task.id, receipt.clone());
        self.bytes += task.content.len();
        self.tasks.push(Pulled {
            content: Some(task.content),
            task_id: Some(task.id),
            attempt: Some(task.attempt),
            receipt: (!self.held.consumes).then(|| receipt.to_string()),
        });
    }
}

/// Whether consumers get nothing of this topic for now, whether they wait or not.
fn is_held(topic: &Registered) -> bool {
    topic.paused.is_some()
}

/// The topic's lanes, beginning with another one each time.
pub(super) fn lanes_in_turn(api: &Api, topic: &Registered) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = topic.entry.lanes().collect();
    let first = api.turn.fetch_add(1, Ordering::Relaxed) % lanes.len().max(1);
    lanes.rotate_left(first);
    lanes
}

/// Claims what is wished for, lane by lane, and no more than [`MAX_CLAIM_BYTES`] of contents from all of them together. To be run where no caller's hanging up ends it: it alone knows what was claimed.
pub(super) async fn take(api: Arc<Api>, topic: &Registered, lanes: Vec<Lane>, wish: Wish) -> Result<Taken, Error> {
    let mut taken = Taken::nothing(&api, wish);
    if is_held(topic) {
        return Ok(taken);
    }
    for lane in lanes {
        let want = Want { destination: Destination::pull(), slots: wish.slots - taken.tasks.len() };
        let claim = Claim {
            lane: lane.clone(),
            wants: vec![want],
            lease: wish.lease.unwrap_or(WRITING),
            holder: None,
            more: false,
            skip: 0,
            in_hand: taken.bytes,
            misfires: topic.misfires.clone(),
        };
        let grant = match api.store.claim(claim).await {
            Ok(Claimed::Granted(grant)) => grant,
            // Only a claim under the lane's lock is refused, and consumers go past it.
            Ok(Claimed::Refused { .. }) => continue,
            // What other lanes gave is worth an answer.
            Err(error) if !taken.tasks.is_empty() => {
                Error::from(error).log();
                break;
            }
            Err(error) => return Err(error.into()),
        };
        for task in grant.tasks {
            taken.add(&lane, &grant.receipt, task);
        }
        if taken.tasks.len() >= wish.slots || taken.bytes >= MAX_CLAIM_BYTES {
            break;
        }
    }
    Ok(taken)
}

/// Claimed tasks that their consumer does not have yet. Dropped, it gives them back.
#[derive(Debug)]
pub(super) struct Held {
    api: Arc<Api>,
    /// The consumer asked for no lease: the written answer ends the tasks.
    consumes: bool,
    leases: Vec<(Lane, TaskId, Receipt)>,
}

impl Held {
    fn new(api: Arc<Api>, consumes: bool) -> Self {
        Self { api, consumes, leases: Vec::new() }
    }

    fn hold(&mut self, lane: Lane, id: TaskId, receipt: Receipt) {
        self.leases.push((lane, id, receipt));
    }

    /// The consumer has them.
    pub(super) fn written(mut self) {
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
        self.api.pending.spawn(settle_unasked(self.api.store.clone(), settles));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(&Transition::Release);
    }
}
