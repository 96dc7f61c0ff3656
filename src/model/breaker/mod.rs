//! The circuit breaker: whoever keeps failing is left alone for a while, then tried with a few
//! calls.
//!
//! ```text
//!            too many failures                    its time is over
//! Closed ───────────────────────▶ Open ───────────────────────────────▶ HalfOpen
//!   ▲                               ▲  one probe fails, or never ends ──────┤
//!   └───────────────────────────────┼──── enough probes succeed ────────────┘
//! ```
//!
//! One machine, used twice: per destination of callbacks ([`crate::limits::DestinationLimits`]) and
//! around a Redis server. A [`Breaker`] is pure: every method is told the time, and nothing happens
//! between two calls of it. [`SharedBreaker`] puts a lock around one and hands out permits.
//!
//! # What opens it
//!
//! - `consecutive_failures` in a row; or
//! - of the calls that *began* within the window, at least `min_calls`, the share `failure_ratio`
//!   failed. A call that is overdue (past its own deadline, and not ended) counts as failed, so
//!   that a black hole does not look quiet.
//!
//! Each time it opens without having been closed for a window's length, it stays open twice as long
//! as the time before, from `open` to `open_max`.
//!
//! # Invariants
//!
//! - A call counts only in the state in which it began: a late failure neither opens a breaker that
//!   has closed since nor prolongs the time of an open one.
//! - Half-open, at most `half_open_probes` are out. Each has a deadline, after which it counts as
//!   failed: a probe that is lost cannot wedge the breaker. One that was taken and not used is
//!   given back without a verdict.
//! - A breaker that nobody asks does nothing and needs no timer: time is looked at when somebody
//!   comes.
//!
//! What is absent on purpose: what a failure is (the callers say), waiting, and logs.

use std::time::Duration;

mod machine;
mod shared;
mod window;

pub use delayd_wire::BreakerState as State;
pub use machine::{Breaker, Ticket};
pub use shared::{Pass, Refused, SharedBreaker};

/// The settings of a breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The share of failed calls that opens it, above 0 and up to 1.
    pub failure_ratio: f64,
    /// Of how many calls at least that share must be, from 1.
    pub min_calls: u32,
    /// How far back calls count.
    pub window: Duration,
    /// How many failures in a row open it, from 1.
    pub consecutive_failures: u32,
    /// How long it stays open for the first time.
    pub open: Duration,
    /// The longest time it stays open.
    pub open_max: Duration,
    /// How many calls try whether the other side is back, and how many of them have to succeed;
    /// from 1.
    pub half_open_probes: u32,
}

impl Default for Params {
    /// Those of `[callback.breaker]`.
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

/// How a call ended, as far as the other side's health goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The other side is well.
    Success,
    /// The other side is in trouble.
    Failure,
}
