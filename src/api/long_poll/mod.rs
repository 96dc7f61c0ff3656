//! Pulls: claims for consumers, the queue per topic of those that wait, and the delivery of what
//! was claimed.
//!
//! ```text
//! pull ─▶ claim ─▶ delivery                          with nothing due, no task
//! pull with `wait` ─▶ queue ─▶ dispatcher ─▶ claim ─▶ delivery
//! ```

pub(crate) mod claim;
pub(crate) mod delivery;
pub(crate) mod dispatcher;
pub(crate) mod queue;
#[cfg(test)]
mod tests;
