//! The metrics of exported traces.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::label_value;

label_value! {
    /// Why a span was not exported.
    pub SpanDrop {
        /// Too many spans waited for the collector.
        Queue = "queue",
        /// The collector did not take it.
        Export = "export",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: SpanDrop,
}

/// The counters of exported traces.
#[derive(Debug)]
pub struct TraceMetrics {
    /// Spans that the collector took.
    pub exported: Counter,
    dropped: Family<DropLabels, Counter>,
}

impl TraceMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { exported: Counter::default(), dropped: Family::default() };
        registry.register(
            "trace_spans_exported",
            "Spans that the collector of `trace.endpoint` took",
            metrics.exported.clone(),
        );
        registry.register(
            "trace_spans_dropped",
            "Spans that were not exported: too many waited for the collector, or it did not take \
             them",
            metrics.dropped.clone(),
        );
        for &reason in SpanDrop::ALL {
            drop(metrics.dropped.get_or_create(&DropLabels { reason }));
        }
        metrics
    }

    /// Counts spans that were not exported.
    pub fn dropped(&self, reason: SpanDrop, count: u64) {
        self.dropped.get_or_create(&DropLabels { reason }).inc_by(count);
    }
}
