//! The move of whole tasks from one store to another.

pub(crate) mod adopt;
pub(crate) mod transfer;
