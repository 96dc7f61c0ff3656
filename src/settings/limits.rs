//! `[limits]`: the limits of requests.

use serde::Deserialize;

use super::check::{Wrong, ensure, within, within_spans};
use super::value::Size;
use delayd_wire::Span;

/// The section `[limits]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The maximum body of a request, 1 KiB to 64 MiB.
    pub body: Size,
    /// The maximum content of a task, 1 B to 64 MiB, at most `body`.
    pub content: Size,
    /// The maximum number of tasks per batch, 1 to 10,000.
    pub batch: usize,
    /// The maximum body of a batch, 1 KiB to 256 MiB.
    pub batch_body: Size,
    /// The memory for all requests, and for all answers: 1 MiB to 4095 MiB, at least three times
    /// `body` and `batch_body`.
    pub bodies: Size,
    /// The maximum delay of a task, 1 s to 36,500 days.
    pub max_delay: Span,
    /// How long an idempotency key is kept, 1 s to 30 days.
    pub idempotency_window: Span,
    /// The maximum number of topics, 1 to 1,000,000.
    pub topics: usize,
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within("limits.body", self.body, Size::kib(1)..=Size::mib(64))?;
        within("limits.content", self.content, Size(bytesize::ByteSize::b(1))..=Size::mib(64))?;
        ensure("limits.content", self.content <= self.body, || {
            format!("must not be larger than limits.body ({})", self.body)
        })?;
        within("limits.batch", self.batch, 1..=10_000)?;
        within("limits.batch_body", self.batch_body, Size::kib(1)..=Size::mib(256))?;
        within("limits.bodies", self.bodies, Size::mib(1)..=Size::mib(4095))?;
        let longest = self.body.max(self.batch_body);
        ensure("limits.bodies", self.bodies.bytes() / 3 >= longest.bytes(), || {
            format!("must be at least three times limits.body and limits.batch_body ({longest})")
        })?;
        within_spans("limits.max_delay", self.max_delay, "1s", "36500d")?;
        within_spans("limits.idempotency_window", self.idempotency_window, "1s", "30d")?;
        within("limits.topics", self.topics, 1..=1_000_000)
    }
}
