//! How much of a topic or a destination may run.

use delayd_wire::Rate;

/// The most calls at a time, and in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// The most calls at a time. For a destination, 0 is `callback.concurrency_per_service`.
    pub concurrency: usize,
    /// How many calls may begin in a time.
    pub rate: Option<Rate>,
}
