//! The handlers: one file for each family of calls.

pub(crate) mod audit;
pub(crate) mod dead;
pub(crate) mod destination;
mod everywhere;
pub(crate) mod forecast;
pub(crate) mod health;
pub(crate) mod instance;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod migration;
pub(crate) mod overview;
pub(crate) mod schedule;
pub(crate) mod task;
pub(crate) mod topic;
