//! What every request passes before its handler, and every answer after it: tower services, one per
//! file.
//!
//! `pipeline` puts them together. A service holds references alone, so copying it costs nothing,
//! and none is boxed. What a request gains on its way is a field of [`route::Routed`].

pub(crate) mod admission;
pub(crate) mod answer_head;
pub(crate) mod body;
pub(crate) mod catch_panic;
pub(crate) mod concurrency_limit;
pub(crate) mod deadline;
pub(crate) mod memory_budget;
pub(crate) mod pipeline;
pub(crate) mod request_log;
pub(crate) mod response_budget;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod timeout;
pub(crate) mod topic_access;
