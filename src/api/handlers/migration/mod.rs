//! The move of whole tasks from one store to another.

pub(crate) mod adopt;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
