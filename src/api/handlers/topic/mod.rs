//! The calls under `/delay/topic/`.

pub(crate) mod list;
pub(crate) mod manage;
pub(crate) mod policy;
