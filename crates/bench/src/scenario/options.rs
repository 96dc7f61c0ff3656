//! Options that several scenarios share.

use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use clap::builder::RangedU64ValueParser;
use delayd_wire::Span;

use crate::load::{self, Load, Pace};
use crate::progress::Progress;
use crate::wire::Peer;

/// Requests per connection before the measurement begins.
const WARM_UP: u64 = 20;

/// A closed loop for some time.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Closed {
    /// Concurrent requests; 1 sends one after the other
    #[arg(long, value_name = "N", default_value = "64", value_parser = connections())]
    pub(super) connections: usize,
    /// How long to measure
    #[arg(long = "for", value_name = "DURATION", default_value = "3s")]
    pub(super) span: Measured,
}

impl Closed {
    /// Sends requests to warm up, and then for the time of the measurement; `request` creates
    /// request number n. Calls `begin` between the two.
    pub(super) async fn run<T>(
        &self,
        peer: &Peer,
        progress: &Progress,
        request: impl Fn(u64) -> Bytes,
        begin: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Load, T, Load)> {
        let warm_up = self.connections as u64 * WARM_UP;
        progress.step("requests to warm up", warm_up);
        let pace = Pace::Count(warm_up);
        let warm = load::adds(peer, self.connections, pace, &request, progress).await?;
        let begun = begin().await?;
        progress.step("requests", 0);
        let pace = Pace::For(self.span.get());
        let load = load::adds(peer, self.connections, pace, &request, progress).await?;
        Ok((warm, begun, load))
    }
}

/// Connections.
pub(super) fn connections() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=10_000)
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
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Measured(Span);

impl Measured {
    pub(super) fn get(self) -> Duration {
        self.0.0
    }
}

impl FromStr for Measured {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span: Span = text.parse().map_err(|error| format!("{error}"))?;
        let allowed = Duration::from_millis(100)..=Duration::from_secs(3_600);
        let is_allowed = allowed.contains(&span.0);
        is_allowed.then_some(Self(span)).ok_or_else(|| "must be between 100ms and 1h".into())
    }
}
