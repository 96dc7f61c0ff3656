//! Pulls: claims for consumers, a wait queue per topic, and the delivery of claimed tasks.
//!
//! ```text
//! pull             ─▶ claim ─▶ delivery
//! pull with `wait` ─▶ queue ─▶ dispatcher ─▶ claim ─▶ delivery
//! ```

pub(crate) mod claim;
pub(crate) mod delivery;
pub(crate) mod dispatcher;
pub(crate) mod queue;
#[cfg(test)]
mod tests;
