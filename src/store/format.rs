//! The format of what a store keeps. It tells programs of different versions that share a store
//! what may be written.

use super::{Error, Result};

/// The newest format that this program knows. A new store has it. A change of what is stored that
/// programs of an older format would damage is used only once the store has the format of that
/// change (`delayd format --raise`).
pub const FORMAT: u32 = 1;

/// A store's format, and the newest that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// What the store has.
    pub stored: u32,
    /// What this program knows.
    pub newest: u32,
}

impl Formats {
    /// Those of a store with this format.
    pub(super) fn of(stored: u32) -> Self {
        Self { stored, newest: FORMAT }
    }

    /// Whether the store is of an older format than this program knows.
    pub fn can_rise(self) -> bool {
        self.stored < self.newest
    }
}

/// Refuses a store of a format that this program does not know.
///
/// # Errors
/// [`Error::Misconfigured`], which names both formats.
pub(super) fn ensure_known(stored: u32, store: &str) -> Result<()> {
    if stored <= FORMAT {
        return Ok(());
    }
    Err(Error::Misconfigured(format!(
        "{store} has format {stored}, and this version of delayd knows formats up to {FORMAT}: use a newer version"
    )))
}
