//! Helpers of the unit tests of several modules.

pub(crate) mod seeds;
