//! The audit log: a capped log of administrative actions.

use std::fmt;
use std::str::FromStr;

pub use delayd_wire::AuditEntry;

use crate::model::task::InvalidName;
use crate::store::Result;

/// How many entries a store keeps. The Redis store may keep some more.
pub const MAX_AUDIT: usize = 10_000;

contract! {
    /// The part of a store that keeps the audit log.
    pub trait Audit {
        /// Appends all entries or none, and removes the oldest beyond [`MAX_AUDIT`]. After an error
        /// that leaves open whether the store took them, they may be in the log.
        async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> => Maintain;

        /// At most `limit` entries that are older than the cursor, the newest first. An entry that
        /// cannot be read is left out, so fewer than `limit` entries do not mean the end.
        async fn audit(
            &self,
            before: Option<AuditCursor>,
            limit: usize,
        ) -> Result<AuditLogged> => Read;
    }
}

/// A page of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditLogged {
    /// The newest first.
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<AuditCursor>,
}

/// The position of an entry. Later entries have greater positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditCursor(pub u64, pub u64);

impl fmt::Display for AuditCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

impl FromStr for AuditCursor {
    type Err = InvalidName;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidName> {
        let read = || {
            let (first, second) = text.split_once('-')?;
            Some(Self(first.parse().ok()?, second.parse().ok()?))
        };
        read()
            .ok_or_else(|| InvalidName("must be the cursor of the previous page, unchanged".into()))
    }
}
