//! A circuit breaker: stops calls to a side that keeps failing, and later tries it with a few
//! calls.
//!
//! ```text
//!            too many failures                    its time is over
//! Closed ───────────────────────▶ Open ───────────────────────────────▶ HalfOpen
//!   ▲                               ▲  one probe fails, or never ends ──────┤
//!   └───────────────────────────────┼──── enough probes succeed ────────────┘
//! ```
//!
//! Enough are `half_open_probes`. One is enough if no other probe is made for as long as the
//! breaker was open: where calls are rare, it would otherwise be half-open for hours.
//!
//! It is used per destination of callbacks ([`crate::limits::DestinationLimits`]) and around each
//! Redis server. A [`Breaker`] is pure: every method gets the time, and nothing happens between two
//! calls. [`SharedBreaker`] puts a lock around one and hands out permits.
//!
//! # What opens it
//!
//! - `consecutive_failures` in a row; or
//! - of at least `min_calls` calls that *began* within the window, the share `failure_ratio`
//!   failed. An overdue call (past its deadline, and not ended) counts as failed. Otherwise a dead
//!   destination would look idle.
//!
//! Each time it opens without having been closed for a whole window, it stays open twice as long as
//! before, from `open` to `open_max`.
//!
//! # Invariants
//!
//! - A call counts only in the state in which it began. A late failure neither opens a breaker that
//!   has closed since, nor extends the time of an open one.
//! - When half-open, at most `half_open_probes` calls run. Each has a deadline, after which it
//!   counts as failed, so that a lost probe cannot block the breaker. An unused probe is given back
//!   without a verdict.
//! - An unused breaker does nothing and needs no timer: it looks at the time when a method is
//!   called.
//!
//! *Absent on purpose*: what counts as a failure (the callers decide), waiting, and logs.

use std::time::Duration;

use delayd_wire::Span;
use serde::{Deserialize, Deserializer};

mod machine;
mod shared;
mod window;

pub use delayd_wire::BreakerState as State;
pub use machine::{Breaker, Ticket};
pub use shared::{Pass, Refused, SharedBreaker};

/// The parameters of a breaker; a section of the configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The failure ratio that opens it, above 0 and up to 1.
    pub failure_ratio: f64,
    /// The minimum number of calls for the ratio, from 1.
    pub min_calls: u32,
    /// The length of the window.
    #[serde(deserialize_with = "duration")]
    pub window: Duration,
    /// The consecutive failures that open it, from 1.
    pub consecutive_failures: u32,
    /// The initial open time.
    #[serde(deserialize_with = "duration")]
    pub open: Duration,
    /// The maximum open time.
    #[serde(deserialize_with = "duration")]
    pub open_max: Duration,
    /// Concurrent probes, and the number of successes that close it; from 1.
    pub half_open_probes: u32,
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    Span::deserialize(from).map(|span| span.0)
}

impl Default for Params {
    /// The defaults of `[callback.breaker]`.
    fn default() -> Self {
        Self {
            failure_ratio: 0.5,
            min_calls: 20,
            window: Duration::from_secs(10),
            consecutive_failures: 5,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            half_open_probes: 3,
        }
    }
}

/// What the end of a call says about the health of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target is healthy.
    Success,
    /// The target has failed.
    Failure,
}
