//! What the registry says of a lane's topic: whether it is paused, what it asks for, how much of it
//! there may be.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::limits::Allowance;
use crate::task::TopicPolicy;

/// The time between two looks for limits that nobody needs.
const ROUND: Duration = Duration::from_secs(60);

/// How much of a topic there may be at a time; `None`: nothing is said.
pub(super) fn allowance(policy: &TopicPolicy) -> Option<Allowance> {
    let is_limited = policy.rate.is_some() || policy.concurrency.is_some();
    is_limited.then(|| Allowance {
        concurrency: policy.concurrency.unwrap_or(usize::MAX),
        rate: policy.rate,
    })
}

/// Forgets the limits of destinations and topics that rest, once a minute until the instance stops.
pub(super) async fn forget_idle<S, C>(shared: Arc<Shared<S, C>>) {
    while !shared.stopping.is_cancelled() {
        shared.parts.limits.forget_idle();
        shared.topic_limits.forget_idle();
        let _ = tokio::time::timeout(ROUND, shared.stopping.cancelled()).await;
    }
}
