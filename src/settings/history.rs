//! `[history]`: how long ended tasks are remembered.

use serde::Deserialize;

use super::check::{Wrong, within_spans};
use crate::span::Span;

/// The section `[history]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// 1 s to 3650 days.
    pub keep: Span,
}

impl History {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within_spans("history.keep", self.keep, "1s", "3650d")
    }
}
