//! The heart: one lane's task sleeps until something is due, claims it, and hands it out.
//!
//! - `state` says what the lane does next: a pure state machine.
//! - `runner` does it, and says what came of it. It has the only `select!`.
//! - `nudge` is how the supervisor wakes the lane.

mod nudge;
mod runner;
mod state;

pub(super) use nudge::Nudge;
pub(super) use runner::{COMING, run};
