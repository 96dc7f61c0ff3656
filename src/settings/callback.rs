//! `[callback]`: how services are called.

use serde::Deserialize;

use super::breaker;
use super::check::{Wrong, ensure, within, within_spans};
use super::value::Parsed;
use crate::callback::HostPattern;
use crate::model::breaker::Params;
use delayd_wire::Span;
use delayd_wire::{Backoff, InvalidBackoff};

/// The maximum of the limit of concurrent calls.
pub(super) const MOST_CALLS: usize = 1_000_000;

/// The section `[callback]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// The timeout of a call, 100 ms to 10 min.
    pub timeout: Span,
    /// The timeout of connecting, 10 ms to 60 s; `timeout` limits it as well.
    pub connect_timeout: Span,
    /// The maximum number of concurrent calls, from 1.
    pub concurrency: usize,
    /// The same per service, from 1; `concurrency` limits it as well.
    pub concurrency_per_service: usize,
    /// The maximum `Retry-After` that is obeyed, up to a day.
    pub retry_after_max: Span,
    /// The hosts that absolute URLs of tasks may name.
    pub allow_hosts: Vec<Parsed<HostPattern>>,
    /// Whether such a host must be on the public Internet.
    pub deny_private_hosts: bool,
    /// What happens after a failed call.
    pub retry: Retry,
    /// When the breaker of a service opens, and how it probes.
    pub breaker: Params,
}

/// The section `[callback.retry]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Attempts before a task is dead, 1 to 1000.
    pub max_attempts: u32,
    /// Statuses after which a task is dead at once, 300 to 599.
    pub final_statuses: Vec<u16>,
    /// The wait between attempts; validated.
    pub backoff: Backoff,
}

impl Callback {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within_spans("callback.timeout", self.timeout, "100ms", "10m")?;
        within_spans("callback.connect_timeout", self.connect_timeout, "10ms", "60s")?;
        within("callback.concurrency", self.concurrency, 1..=MOST_CALLS)?;
        within("callback.concurrency_per_service", self.concurrency_per_service, 1..=MOST_CALLS)?;
        within_spans("callback.retry_after_max", self.retry_after_max, "0s", "24h")?;
        breaker::check(&self.breaker, "callback.breaker")?;
        self.retry.check()
    }
}

impl Retry {
    fn check(&self) -> Result<(), Wrong> {
        within("callback.retry.max_attempts", self.max_attempts, 1..=1000)?;
        ensure(
            "callback.retry.final_statuses",
            self.final_statuses.iter().all(|s| (300..=599).contains(s)),
            || "must be a list of HTTP statuses from 300 to 599".into(),
        )?;
        let at_field =
            |e: InvalidBackoff| Wrong::at(&format!("callback.retry.backoff.{}", e.field), e.reason);
        self.backoff.check().map_err(at_field)
    }
}
