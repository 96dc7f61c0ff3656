//! `[history]`: how long ended tasks are kept.

use serde::Deserialize;

use super::check::{Wrong, within, within_spans};
use crate::worker::NotedAttempts;
use delayd_wire::Span;

/// The section `[history]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// How long ended tasks are kept, 1 s to 3650 days.
    pub keep: Span,
    /// Whether ended tasks keep their contents.
    pub contents: bool,
    /// Which attempts are recorded.
    pub attempts: NotedAttempts,
    /// The maximum number of ended tasks per topic, 1 to 1,000,000,000.
    pub max_per_topic: u64,
    /// The maximum number of ended tasks of all topics, 1 to 1,000,000,000.
    pub max: u64,
}

impl History {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within_spans("history.keep", self.keep, "1s", "3650d")?;
        within("history.max_per_topic", self.max_per_topic, 1..=1_000_000_000)?;
        within("history.max", self.max, 1..=1_000_000_000)
    }
}
