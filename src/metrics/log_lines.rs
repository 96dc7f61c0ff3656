//! Lines of the log, by level.
//!
//! The log starts before the metrics exist, so its counters belong to the process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

const LEVELS: [(Level, &str); 3] =
    [(Level::ERROR, "error"), (Level::WARN, "warn"), (Level::INFO, "info")];

static LINES: [AtomicU64; LEVELS.len()] = [const { AtomicU64::new(0) }; LEVELS.len()];

/// Counts the lines of the log.
#[derive(Clone, Copy, Debug)]
pub struct CountLines;

impl<S: Subscriber> Layer<S> for CountLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if let Some(at) = LEVELS.iter().position(|(known, _)| *known == level) {
            LINES[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct Lines;

impl Collector for Lines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "log_lines",
            "Lines of the log, by level; the levels debug and trace are not counted",
            None,
            MetricType::Counter,
        )?;
        for ((_, name), lines) in LEVELS.iter().zip(&LINES) {
            let labels = [("level", *name)];
            let line = family.encode_family(&labels)?;
            ConstCounter::new(lines.load(Ordering::Relaxed)).encode(line)?;
        }
        Ok(())
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Lines));
}
