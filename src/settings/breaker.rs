//! The keys of a circuit breaker, which several sections have.

use serde::Deserialize;

use super::check::{Wrong, ensure, within, within_spans};
use crate::model::breaker;
use delayd_wire::Span;

/// A section such as `[callback.breaker]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// The ratio of failed calls within `window` that opens it, 0.01 to 1.
    pub failure_ratio: f64,
    /// The minimum number of calls for the ratio, 1 to 1,000,000.
    pub min_calls: u32,
    /// The length of the window, 100 ms to 1 h.
    pub window: Span,
    /// Failures in a row that open it, 1 to 1,000,000.
    pub consecutive_failures: u32,
    /// The initial open time, 10 ms to `open_max`.
    pub open: Span,
    /// The maximum open time, up to 1 h.
    pub open_max: Span,
    /// Concurrent probes when half-open, 1 to 1,000.
    pub half_open_probes: u32,
}

impl Breaker {
    /// Validates the section `section`.
    pub(super) fn check(&self, section: &str) -> Result<(), Wrong> {
        let key = |name: &str| format!("{section}.{name}");
        ensure(&key("failure_ratio"), (0.01..=1.0).contains(&self.failure_ratio), || {
            "must be from 0.01 to 1".into()
        })?;
        within(&key("min_calls"), self.min_calls, 1..=1_000_000)?;
        within_spans(&key("window"), self.window, "100ms", "1h")?;
        within(&key("consecutive_failures"), self.consecutive_failures, 1..=1_000_000)?;
        within_spans(&key("open_max"), self.open_max, "10ms", "1h")?;
        within_spans(&key("open"), self.open, "10ms", "1h")?;
        ensure(&key("open"), self.open <= self.open_max, || {
            format!("must not be longer than {section}.open_max")
        })?;
        within(&key("half_open_probes"), self.half_open_probes, 1..=1_000)
    }

    /// The parameters for the breaker.
    pub fn params(&self) -> breaker::Params {
        breaker::Params {
            failure_ratio: self.failure_ratio,
            min_calls: self.min_calls,
            window: self.window.0,
            consecutive_failures: self.consecutive_failures,
            open: self.open.0,
            open_max: self.open_max.0,
            half_open_probes: self.half_open_probes,
        }
    }
}
