//! The metrics of pending settles, dropped notes and the clock.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The metrics of pending settles, dropped notes and the clock.
#[derive(Clone, Debug, Default)]
pub struct WorkerMetrics {
    /// Settles that the store has not answered.
    pub settles_pending: Gauge,
    /// Notes of attempts that were not written.
    pub notes_dropped: Counter,
    /// Jumps of this instance's clock.
    pub clock_jumps: Counter,
    clock_offset: Gauge<f64, AtomicU64>,
}

impl WorkerMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "settles_pending",
            "Results of callbacks that the store has not confirmed yet. Until it does, the task \
             counts as leased",
            metrics.settles_pending.clone(),
        );
        registry.register_with_unit(
            "clock_offset",
            "Time of the store's clock minus time of this instance's clock, by the last poll; 0 \
             if the difference is shorter than the poll took. With several Redis servers, it is \
             that of the server that answered last",
            Unit::Seconds,
            metrics.clock_offset.clone(),
        );
        registry.register(
            "clock_jumps",
            "How often this instance's wall clock jumped by half a second or more, seen once a \
             second against the monotonic clock",
            metrics.clock_jumps.clone(),
        );
        registry.register(
            "notes_dropped",
            "Notes of attempts that were not written, because too many waited or the store failed",
            metrics.notes_dropped.clone(),
        );
        metrics
    }

    /// Sets how far the store's clock is ahead of this instance's.
    pub fn clock_is_ahead(&self, milliseconds: i64) {
        self.clock_offset.set(milliseconds as f64 / 1_000.0);
    }

    /// The time of the store's clock minus that of this instance's clock, in milliseconds.
    pub fn clock_offset_ms(&self) -> i64 {
        (self.clock_offset.get() * 1_000.0).round() as i64
    }
}
