//! The metrics of the audit log.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::label_value;

label_value! {
    /// Why an entry is not in the store.
    pub AuditDrop {
        /// Too many entries waited for the store.
        Queue = "queue",
        /// Too many requests were refused.
        Rate = "rate",
        /// The store took no entries while the program stopped.
        Stop = "stop",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: AuditDrop,
}

/// The counters of the audit log.
#[derive(Debug)]
pub struct AuditMetrics {
    dropped: Family<DropLabels, Counter>,
}

impl AuditMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { dropped: Family::default() };
        registry.register(
            "audit_dropped",
            "Audit entries that are not in the store: too many waited for it, too many requests \
             were refused, or it took none while the program stopped",
            metrics.dropped.clone(),
        );
        for &reason in AuditDrop::ALL {
            drop(metrics.dropped.get_or_create(&DropLabels { reason }));
        }
        metrics
    }

    /// Counts entries that are not in the store.
    pub fn dropped(&self, reason: AuditDrop, count: u64) {
        self.dropped.get_or_create(&DropLabels { reason }).inc_by(count);
    }
}
