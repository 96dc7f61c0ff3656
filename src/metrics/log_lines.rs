//! Lines of the log, by level.
//!
//! The log starts before the metrics exist, so its counters belong to the process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

const LEVELS: [(Level, &str); 3] =
    [(Level::ERROR, "error"), (Level::WARN, "warn"), (Level::INFO, "info")];

static LINES: [AtomicU64; LEVELS.len()] = [const { AtomicU64::new(0) }; LEVELS.len()];

/// The most warnings and errors that are remembered.
const MOST: usize = 20;

/// The most bytes of one of them.
const LONGEST: usize = 500;

/// The last warnings and errors, the oldest first.
static LAST: Mutex<VecDeque<(Instant, bool, String)>> = Mutex::new(VecDeque::new());

/// A warning or an error of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How long ago it was written.
    pub age: Duration,
    /// Whether it is an error.
    pub is_error: bool,
    /// Its message, shortened.
    pub message: String,
}

/// What the log has said since the start of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFigures {
    /// The number of errors.
    pub errors: u64,
    /// The number of warnings.
    pub warnings: u64,
    /// The last of both, the newest first.
    pub last: Vec<LogLine>,
}

/// What the log has said.
pub fn log_figures() -> LogFigures {
    let count = |at: usize| LINES[at].load(Ordering::Relaxed);
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let line = |(at, is_error, message): &(Instant, bool, String)| LogLine {
        age: at.elapsed(),
        is_error: *is_error,
        message: message.clone(),
    };
    LogFigures { errors: count(0), warnings: count(1), last: last.iter().rev().map(line).collect() }
}

/// Finds the message of an event.
struct MessageVisitor(String);

impl Visit for MessageVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
            self.0.truncate(self.0.floor_char_boundary(LONGEST));
        }
    }
}

fn remember(event: &Event<'_>, is_error: bool) {
    let mut message = MessageVisitor(String::new());
    event.record(&mut message);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == MOST {
        last.pop_front();
    }
    last.push_back((Instant::now(), is_error, message.0));
}

/// Counts the lines of the log, and remembers the last warnings and errors.
#[derive(Clone, Copy, Debug)]
pub struct CountLines;

impl<S: Subscriber> Layer<S> for CountLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if let Some(at) = LEVELS.iter().position(|(known, _)| *known == level) {
            LINES[at].fetch_add(1, Ordering::Relaxed);
            if level <= Level::WARN {
                remember(event, level == Level::ERROR);
            }
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
