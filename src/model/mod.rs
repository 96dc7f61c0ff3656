//! The domain model, without I/O. All other modules may use it.
//!
//! - [`task`]: names, options and states of a task.
//! - [`breaker`]: the three-state circuit breaker.
//! - [`clock`]: the clock, which tests replace.
//! - [`culprit`]: who delays a task.
//! - [`glob`]: patterns with `*`, for topics and hosts.
//! - [`lateness`]: who delayed a task, and for how long.
//! - [`origin`]: origins of web pages.
//! - [`schedule`]: when recurring schedules fire.
//! - [`token`]: access tokens and their scopes.
//! - [`trace`]: trace contexts.
//! - [`written_time`]: times as people write them.
//! - [`zone`]: time zones.
//!
//! Values of requests and answers (durations, rates, backoffs, settings of a topic) are types of
//! `delayd_wire`.

pub mod breaker;
pub mod clock;
pub mod coding;
pub mod culprit;
pub mod glob;
pub mod lateness;
pub mod origin;
pub mod schedule;
pub mod task;
pub mod token;
pub mod trace;
pub mod version;
pub mod written_time;
pub mod zone;
