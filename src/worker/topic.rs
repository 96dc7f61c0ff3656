//! What the registry says of a lane's topic: whether it is paused, what it asks for, how much of it there may be.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::breaker;
use crate::limits::{Allowance, LimitParams, Limits, Permit};
use crate::task::{Destination, Topic, TopicPolicy};

/// Nobody counts this far, and sums of it do not overflow.
const NO_LIMIT: usize = usize::MAX / 8;

/// After so long a call that holds a topic's slot counts as overdue, which means nothing here.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// The time between two looks for limits that nobody needs.
const ROUND: Duration = Duration::from_secs(60);

/// The limits of topics: those of destinations, without a limit for the house.
pub(super) fn limits() -> Arc<Limits> {
    let breaker = breaker::Params::default();
    Arc::new(Limits::new(LimitParams {
        concurrency: NO_LIMIT,
        concurrency_per_service: NO_LIMIT,
        breaker,
        retry_after_max: Duration::ZERO,
    }))
}

/// The name by which the limits know a topic.
pub(super) fn key(topic: &Topic) -> Destination {
    Destination::named_as(topic)
}

/// How much of a topic there may be at a time; `None`: nothing is said.
pub(super) fn allowance(policy: &TopicPolicy) -> Option<Allowance> {
    let is_limited = policy.rate.is_some() || policy.concurrency.is_some();
    is_limited.then(|| Allowance { concurrency: policy.concurrency.unwrap_or_default(), rate: policy.rate })
}

/// A call of the topic begins.
pub(super) fn begin(permit: &mut Permit) {
    permit.begin(LONG);
    // However it ends: its topic is well.
    permit.succeeded();
}

/// Forgets the limits of destinations and topics that rest, once a minute until the instance stops.
pub(super) async fn forget_idle<S, C>(shared: Arc<Shared<S, C>>) {
    while !shared.stopping.is_cancelled() {
        shared.parts.limits.forget_idle();
        shared.topic_limits.forget_idle();
        let _ = tokio::time::timeout(ROUND, shared.stopping.cancelled()).await;
    }
}

impl<S, C> Shared<S, C> {
    /// What the topic asks for.
    pub(super) fn policy_of(&self, topic: &Topic) -> Arc<TopicPolicy> {
        self.parts.topics.policy_of(topic)
    }

    /// Whether nothing of the topic may be claimed.
    pub(super) fn is_paused(&self, topic: &Topic) -> bool {
        self.parts.topics.is_paused(topic)
    }
}
