//! Value parsers that several scenarios share.

use clap::builder::RangedU64ValueParser;
use std::time::Duration;

use crate::task::LEAST_CONTENT;
use delayd_wire::Span;

/// Connections.
pub(super) fn connections() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=10_000)
}

/// Concurrent calls: the maximum of the setting is a million, and a sixteenth is reserved.
pub(super) fn calls() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=900_000)
}

/// Bytes of a content.
pub(super) fn bytes() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(u64::from(LEAST_CONTENT)..=u64::from(u16::MAX))
}

/// Tasks of a scenario.
pub(super) fn tasks() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=100_000_000)
}

/// Tasks per second.
pub(super) fn rate() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=1_000_000)
}

/// Topics.
pub(super) fn topics() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=10_000)
}

/// The duration of a measurement.
pub(super) fn span(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3_600);
    if allowed.contains(&span.0) { Ok(span) } else { Err("must be between 100ms and 1h".into()) }
}
