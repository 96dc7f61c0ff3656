//! Forgets the limits of destinations and topics that are idle.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;

const EVERY: Duration = Duration::from_secs(60);

/// Forgets idle limits once a minute, until the instance stops.
pub(super) async fn forget<S, C>(shared: Arc<Shared<S, C>>) {
    while !shared.stopping.is_cancelled() {
        shared.parts.limits.forget_idle();
        shared.parts.topic_limits.forget_idle();
        let _ = tokio::time::timeout(EVERY, shared.stopping.cancelled()).await;
    }
}
