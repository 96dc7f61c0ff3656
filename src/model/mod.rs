//! What the service is about, without I/O: every other module may use it.
//!
//! - [`task`]: a task's names, options and states.
//! - [`breaker`]: the three-state circuit breaker.
//! - [`clock`]: the clock that the service reads, which tests replace.
//! - [`glob`]: patterns with `*`, for topics and hosts.
//! - [`token`]: access tokens and their scopes.
//!
//! Values that stand in requests and answers (durations, rates, backoffs, settings of a topic) are
//! types of `delayd_wire`.

pub mod breaker;
pub mod clock;
pub mod glob;
pub mod task;
pub mod token;
