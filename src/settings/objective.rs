//! `[objective]`: the lateness that tasks may have, and the share of tasks that should meet it.

use serde::Deserialize;

use super::check::{Wrong, ensure, within_spans};
use delayd_wire::Span;

/// The section `[objective]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// The longest lateness that delayd and the store may cause, 1 ms to 2 h.
    pub lateness: Span,
    /// The ratio of tasks that must meet it, 0.5 to 0.99999.
    pub target: f64,
}

impl Objective {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within_spans("objective.lateness", self.lateness, "1ms", "2h")?;
        ensure("objective.target", (0.5..=0.99999).contains(&self.target), || {
            "must be from 0.5 to 0.99999".into()
        })
    }
}
