//! Writes a snapshot into the gauges of `GET /metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::snapshot::{Snapshot, WITHIN};
use crate::metrics::{Metrics, ServiceSample};
use crate::model::culprit::Culprit;
use crate::store::Counts;

pub(super) fn set(metrics: &Metrics, snapshot: &Snapshot) {
    let gauges = &metrics.sampled;
    gauges.set_timestamps(snapshot.at.0, snapshot.oldest.0);
    let Counts { scheduled, leased, delivered, dead, cancelled, expired, .. } = snapshot.tasks;
    gauges.set_tasks([scheduled, leased, delivered, dead, cancelled, expired]);
    gauges.set_late(snapshot.late);
    for (culprit, overdue) in Culprit::OF_WAITING.into_iter().zip(&snapshot.overdue) {
        gauges.set_overdue(culprit, overdue.count, overdue.oldest.map_or(0, |oldest| oldest.0));
    }
    let mut services: BTreeMap<Arc<str>, ServiceSample> = BTreeMap::new();
    // Configured services come first: labels are few, and callers could use them up with hosts.
    let (configured, others): (Vec<_>, Vec<_>) =
        snapshot.destinations.iter().partition(|(_, figures)| figures.is_configured);
    for (destination, figures) in configured.into_iter().chain(others) {
        let label = gauges.label(destination.as_str());
        let mean = metrics.callbacks.mean_seconds(&label);
        let service = services
            .entry(label)
            .or_insert_with(|| ServiceSample { is_configured: true, ..ServiceSample::default() });
        service.waiting += figures.waiting;
        service.is_held |= figures.is_held;
        service.is_configured &= figures.is_configured;
        for (at, (_, span)) in WITHIN.iter().enumerate() {
            service.forecast[at] += figures.within[at];
            service.capacity[at] += figures.capacity(*span, mean, snapshot.workers);
        }
    }
    gauges.set_services(services);
}
