//! The metrics of recurring schedules.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of recurring schedules.
#[derive(Clone, Debug, Default)]
pub struct ScheduleMetrics {
    planned: Counter,
    missed: Counter,
    failures: Counter,
    unreadable: Gauge,
}

impl ScheduleMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "schedule_occurrences",
            "Occurrences of recurring schedules that this instance planned. Not counted: those of \
             run",
            metrics.planned.clone(),
        );
        registry.register(
            "schedule_missed",
            "Moments of recurring schedules that have no occurrence of their own, because they \
             were missed. Counted when the occurrence that stands for them is handed out",
            metrics.missed.clone(),
        );
        registry.register(
            "schedule_plan_failures",
            "Times that the occurrence of a recurring schedule was not planned, because the store \
             did not respond, was full, or failed. It is planned again each second",
            metrics.failures.clone(),
        );
        registry.register(
            "schedules_unreadable",
            "Recurring schedules that are due and that this instance cannot read: a later version \
             set them, or their time zone is unknown here. They are not planned",
            metrics.unreadable.clone(),
        );
        metrics
    }

    /// Counts an occurrence that was planned.
    pub fn planned(&self) {
        self.planned.inc();
    }

    /// Counts the missed moments of an occurrence that is handed out for the first time.
    pub fn missed(&self, moments: u64) {
        self.missed.inc_by(moments);
    }

    /// Counts a plan that failed.
    pub fn plan_failed(&self) {
        self.failures.inc();
    }

    /// Sets how many schedules cannot be read.
    pub fn set_unreadable(&self, schedules: usize) {
        self.unreadable.set(i64::try_from(schedules).unwrap_or(i64::MAX));
    }
}
