//! What pulls share, and the claims that they make.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use crate::api::long_poll::delivery::{LeaseReturn, PullParams, PulledTasks, WRITING};
use crate::api::long_poll::queue::Waiters;
use crate::api::wire::error::Error;
use crate::model::task::{Destination, Lane};
use crate::store::{Claim, Claimed, Delivery, MAX_CLAIM_BYTES, Registered, Want};
use crate::topic::Registry;

/// What all pulls share, those that wait and those that do not.
#[derive(Debug)]
pub(crate) struct Pulls {
    pub(crate) lease_return: LeaseReturn,
    pub(crate) topics: Arc<Registry>,
    pub(crate) draining: watch::Receiver<bool>,
    /// Those who wait for a task to pull.
    pub(crate) waiters: Arc<Waiters>,
    /// The lane with which the next pull begins.
    turn: AtomicUsize,
}

impl Pulls {
    /// Room for `waiters` pulls that wait. To be called within a runtime.
    pub(crate) fn new(
        lease_return: LeaseReturn,
        topics: Arc<Registry>,
        draining: watch::Receiver<bool>,
        waiters: usize,
    ) -> Self {
        let waiters = Waiters::new(waiters, lease_return.store.hints());
        Self { lease_return, topics, draining, waiters, turn: AtomicUsize::new(0) }
    }

    /// The answer when nothing is due.
    pub(crate) fn nothing(&self, params: PullParams) -> PulledTasks {
        PulledTasks::nothing(self.lease_return.clone(), params)
    }
}

/// Whether consumers get nothing of this topic for now, whether they wait or not.
fn is_held(topic: &Registered) -> bool {
    topic.paused.is_some()
}

/// The topic's lanes, beginning with another one each time.
pub(crate) fn lanes_in_turn(pulls: &Pulls, topic: &Registered) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = topic.entry.lanes().collect();
    let first = pulls.turn.fetch_add(1, Ordering::Relaxed) % lanes.len().max(1);
    lanes.rotate_left(first);
    lanes
}

/// Claims what is wished for, lane by lane, and no more than [`MAX_CLAIM_BYTES`] of contents from
/// all of them together. To be run where no caller's hanging up ends it: it alone knows what was
/// claimed.
pub(crate) async fn take(
    pulls: &Pulls,
    topic: &Registered,
    lanes: Vec<Lane>,
    params: PullParams,
) -> Result<PulledTasks, Error> {
    let mut taken = pulls.nothing(params);
    if is_held(topic) {
        return Ok(taken);
    }
    for lane in lanes {
        let want =
            Want { destination: Destination::pull(), slots: params.slots - taken.tasks.len() };
        let claim = Claim {
            lane: lane.clone(),
            wants: vec![want],
            lease: params.lease.unwrap_or(WRITING),
            holder: None,
            more: false,
            skip: 0,
            in_hand: taken.bytes,
            misfires: topic.misfires.clone(),
        };
        let grant = match pulls.lease_return.store.claim(claim).await {
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
        if taken.tasks.len() >= params.slots || taken.bytes >= MAX_CLAIM_BYTES {
            break;
        }
    }
    Ok(taken)
}
