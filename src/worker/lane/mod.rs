//! One lane: sleeps until something is due, claims it, starts its calls.
//!
//! - `state` decides what the lane does next. It is a pure state machine.
//! - `runner` performs that, and reports what came of it. It has the only `select!`.
//! - `nudge` is the supervisor's way to wake the lane.

mod nudge;
mod runner;
mod state;

pub(super) use nudge::Nudge;
pub(super) use runner::{COMING, run};
