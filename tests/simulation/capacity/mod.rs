//! The capacity model: the real workers in virtual time over a Redis that takes time for each
//! script and runs them one after the other. `docs/performance/capacity.md` has its results.
//!
//! - [`costs`]: how long each script takes.
//! - [`fine_time`]: sleeps of microseconds. [`server`]: the queue of one server.
//! - [`lanes`]: the tasks in Redis. [`redis`]: all that instances share. [`store`]: the store of
//!   one instance.
//! - [`setup`]: what a run simulates. [`run`]: runs it. [`figures`]: what it measured.
//!
//! `capacity_main.rs` runs it for all sizes of the documentation, and measures the costs.

pub(crate) mod costs;
pub(crate) mod figures;
mod fine_time;
mod lanes;
mod redis;
pub(crate) mod run;
mod server;
pub(crate) mod setup;
mod store;
#[cfg(test)]
mod tests;
