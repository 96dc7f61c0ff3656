//! How late the first attempt of each task begins.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{durations, observe};

/// What is measured where tasks are handed out.
#[derive(Debug)]
pub struct LatenessMetrics(Histogram);

impl LatenessMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self(durations());
        registry.register_with_unit(
            "task_lateness",
            "Time from the due time of a task to the start of its first callback; a task that was \
             due before it was added is due when it was added",
            Unit::Seconds,
            metrics.0.clone(),
        );
        metrics
    }

    /// A first callback began this late.
    pub fn observe(&self, lateness: Duration) {
        observe(&self.0, lateness);
    }
}
