//! Whole tasks on their way from one store to another.

pub(crate) mod adopt;
pub(crate) mod transfer;
