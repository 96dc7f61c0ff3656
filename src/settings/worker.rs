//! `[worker]`: how this instance works on tasks.

use std::time::Duration;

use serde::Deserialize;

use super::check::{Wrong, ensure, within, within_spans};
use crate::store::MAX_LEASE;
use delayd_wire::{Lease, Span};

/// The section `[worker]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Whether this instance works on due tasks.
    pub enabled: bool,
    /// The lease of a task, longer than 1 s and at most [`MAX_LEASE`].
    #[serde(deserialize_with = "Lease::span")]
    pub lease: Span,
    /// How long the worker of an idle lane keeps running, 100 ms to 24 h.
    pub idle_stop: Span,
    /// The maximum number of tasks per claim, 1 to 4096.
    pub claim_batch: usize,
}

impl Worker {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let in_range = self.lease.0 > Duration::from_secs(1) && self.lease.0 <= MAX_LEASE;
        ensure("worker.lease", in_range, || {
            format!("must be longer than 1s and at most {}", Span(MAX_LEASE))
        })?;
        within_spans("worker.idle_stop", self.idle_stop, "100ms", "24h")?;
        within("worker.claim_batch", self.claim_batch, 1..=4096)
    }
}
