//! Middleware: what every request passes around its handler.
//!
//! `router` puts the layers together. `admission` adds a [`call::AdmittedCall`] to a request.

pub(crate) mod admission;
pub(crate) mod audit;
pub(crate) mod audit_target;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod catch_panic;
pub(crate) mod deadline;
pub(crate) mod request_log;
pub(crate) mod response_budget;
pub(crate) mod route;
pub(crate) mod router;
