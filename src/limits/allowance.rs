//! The limits of a topic or a destination.

use delayd_wire::Rate;

use crate::model::task::TopicPolicy;

/// The most calls at a time, and the rate at which calls may begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// The most calls at a time. For a destination, 0 is `callback.concurrency_per_service`.
    pub concurrency: usize,
    /// The rate at which calls may begin; `None`: no limit.
    pub rate: Option<Rate>,
}

impl Allowance {
    /// The limits of a topic; `None` if it has none.
    pub fn of_topic(policy: &TopicPolicy) -> Option<Self> {
        let is_limited = policy.rate.is_some() || policy.concurrency.is_some();
        is_limited.then(|| Self {
            concurrency: policy.concurrency.unwrap_or(usize::MAX),
            rate: policy.rate,
        })
    }
}
