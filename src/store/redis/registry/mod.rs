//! Topics: their entries in the registry, and the lanes that follow them.

pub(crate) mod entry;
pub(crate) mod opening;
pub(crate) mod reconcile;
pub(crate) mod recover;
pub(crate) mod topic;
