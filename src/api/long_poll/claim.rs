//! Claims for pulls, and what all pulls share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::long_poll::delivery::{ClaimTimes, LeaseReturn, PullParams, PulledTasks, WRITING};
use crate::api::long_poll::queue::Waiters;
use crate::api::wire::error::Error;
use crate::model::task::{Destination, Lane};
use crate::store::{Claim, Claimed, Delivery, MAX_CLAIM_BYTES, Registered, Signals, Want};
use crate::topic::Registry;

/// What all pulls share, with or without `wait`.
#[derive(Debug)]
pub(crate) struct Pulls {
    pub(crate) lease_return: LeaseReturn,
    pub(crate) topics: Arc<Registry>,
    pub(crate) draining: watch::Receiver<bool>,
    /// The pulls that wait.
    pub(crate) waiters: Arc<Waiters>,
    /// The lane with which the next pull starts.
    turn: AtomicUsize,
}

impl Pulls {
    /// Must be called within a tokio runtime.
    pub(crate) fn new(
        lease_return: LeaseReturn,
        topics: Arc<Registry>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        let waiters = Waiters::new(lease_return.store.hints());
        Self { lease_return, topics, draining, waiters, turn: AtomicUsize::new(0) }
    }

    /// An answer without tasks.
    pub(crate) fn nothing(&self, params: PullParams) -> PulledTasks {
        PulledTasks::nothing(self.lease_return.clone(), params)
    }
}

/// Whether consumers get no tasks of this topic for now.
fn is_held(topic: &Registered) -> bool {
    topic.paused.is_some()
}

/// The topic's lanes, starting with another one each time.
pub(crate) fn lanes_in_turn(pulls: &Pulls, topic: &Registered) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = topic.entry.lanes().collect();
    let first = pulls.turn.fetch_add(1, Ordering::Relaxed) % lanes.len().max(1);
    lanes.rotate_left(first);
    lanes
}

/// Claims tasks lane by lane, with at most [`MAX_CLAIM_BYTES`] of content in total. Run it in a
/// task that survives a disconnected caller: nothing else knows which tasks were claimed.
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
            after: None,
            in_hand: taken.bytes,
            misfires: topic.misfires.clone(),
        };
        let sent = Instant::now();
        let grant = match pulls.lease_return.store.claim(claim).await {
            Ok(Claimed::Granted(grant)) => grant,
            // Only claims under the lane's lock are refused, and a consumer's claim takes no lock.
            Ok(Claimed::Refused { .. }) => continue,
            // The tasks of other lanes are still delivered.
            Err(error) if !taken.tasks.is_empty() => {
                Error::from(error).log();
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let at = Instant::now();
        let took = at - sent;
        // The store answered in the middle of that time, as far as one can tell.
        let answered = ClaimTimes { took, now: grant.now + took / 2, at };
        for task in grant.tasks {
            taken.add(&lane, &grant.receipt, task, &answered);
        }
        if taken.tasks.len() >= params.slots || taken.bytes >= MAX_CLAIM_BYTES {
            break;
        }
    }
    Ok(taken)
}
