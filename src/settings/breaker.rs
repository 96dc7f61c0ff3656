//! The ranges of the keys of a circuit breaker, which several sections have.

use super::check::{Wrong, ensure, within, within_spans};
use crate::model::breaker::Params;
use delayd_wire::Span;

/// Validates the section `section`.
pub(super) fn check(breaker: &Params, section: &str) -> Result<(), Wrong> {
    let key = |name: &str| format!("{section}.{name}");
    ensure(&key("failure_ratio"), (0.01..=1.0).contains(&breaker.failure_ratio), || {
        "must be from 0.01 to 1".into()
    })?;
    within(&key("min_calls"), breaker.min_calls, 1..=1_000_000)?;
    within_spans(&key("window"), Span(breaker.window), "100ms", "1h")?;
    within(&key("consecutive_failures"), breaker.consecutive_failures, 1..=1_000_000)?;
    within_spans(&key("open_max"), Span(breaker.open_max), "10ms", "1h")?;
    within_spans(&key("open"), Span(breaker.open), "10ms", "1h")?;
    ensure(&key("open"), breaker.open <= breaker.open_max, || {
        format!("must not be longer than {section}.open_max")
    })?;
    within(&key("half_open_probes"), breaker.half_open_probes, 1..=1_000)
}
