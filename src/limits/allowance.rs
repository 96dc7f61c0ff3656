//! The limits of a topic or a destination.

use delayd_wire::Rate;

/// The most calls at a time, and the rate at which calls may begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// The most calls at a time. For a destination, 0 is `callback.concurrency_per_service`.
    pub concurrency: usize,
    /// The rate at which calls may begin; `None`: no limit.
    pub rate: Option<Rate>,
}
