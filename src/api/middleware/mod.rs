//! Middleware: one tower service per file, around every handler.
//!
//! `pipeline` composes them. A service holds only references, so copying it is free, and none is
//! boxed. What a service adds to a request is a field of [`route::Routed`].

pub(crate) mod admission;
pub(crate) mod answer_head;
pub(crate) mod audit;
pub(crate) mod audit_target;
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
