//! The format of stored data. It tells programs of different versions that share a store what they
//! may write.

use super::{Error, Result};

/// The newest format that this program knows, and the format of a new store. A change that programs
/// of an older format would damage is used only once the store has the new format
/// (`delayd format --raise`).
pub const FORMAT: u32 = 2;

/// The first format with recurring schedules.
pub const FORMAT_OF_SCHEDULES: u32 = 2;

/// A store's format, and the newest that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The store's format.
    pub stored: u32,
    /// The newest format that this program knows.
    pub newest: u32,
}

impl Formats {
    /// The formats of a store that has this one.
    pub(super) fn of(stored: u32) -> Self {
        Self { stored, newest: FORMAT }
    }

    /// Whether the store's format is older than the newest known one.
    pub fn can_rise(self) -> bool {
        self.stored < self.newest
    }
}

/// Refuses a store whose format this program does not know.
///
/// # Errors
/// [`Error::Misconfigured`], which names both formats.
pub(super) fn ensure_known(stored: u32, store: &str) -> Result<()> {
    if stored <= FORMAT {
        return Ok(());
    }
    Err(Error::Misconfigured(format!(
        "{store} has format {stored}, and this version of delayd knows formats up to {FORMAT}: \
         use a newer version"
    )))
}
