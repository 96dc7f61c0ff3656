//! One file for each family of calls: from a request's bytes to a store's verb, and back to an
//! answer.

pub(crate) mod dead;
pub(crate) mod destination;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod migration;
pub(crate) mod task;
pub(crate) mod topic;
