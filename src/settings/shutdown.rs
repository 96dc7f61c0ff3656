//! `[shutdown]`: how the service stops.

use serde::Deserialize;

use super::check::{Wrong, within_spans};
use delayd_wire::Span;

/// The section `[shutdown]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// How long `/readyz` answers 503 before the drain begins, 0 s to 10 min.
    pub delay: Span,
    /// The time for running calls, 0 s to 10 min.
    pub grace: Span,
}

impl Shutdown {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within_spans("shutdown.delay", self.delay, "0s", "10m")?;
        within_spans("shutdown.grace", self.grace, "0s", "10m")
    }
}
