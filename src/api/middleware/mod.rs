//! What every request passes before its handler and every answer after it.

pub(crate) mod body;
pub(crate) mod concurrency_limit;
pub(crate) mod context;
pub(crate) mod memory_budget;
pub(crate) mod pipeline;
pub(crate) mod response_budget;
