//! delayd: a standalone HTTP service for delay tasks.
//!
//! A caller adds a task with a due time. At that time delayd calls a service over HTTP, or a
//! consumer pulls the task. `docs/ARCHITECTURE.md` is the map. A task passes through [`api`] →
//! [`store`] → [`worker`] → [`callback`] → [`outcome`] → [`store`].

pub mod api;
pub mod app;
pub mod audit;
pub mod callback;
pub mod cli;
pub mod dns;
pub mod instances;
pub mod limits;
pub mod maintenance;
pub mod metrics;
pub mod model;
pub mod outcome;
pub mod planner;
pub mod sampler;
pub mod settings;
pub mod store;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod topic;
pub mod trace;
pub mod worker;

/// Makes ring the process's provider of cryptography. To be called before the first HTTP client is
/// built, by the binary and by tests; calling it again does nothing.
pub fn install_crypto() {
    // An error only says that there is a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
