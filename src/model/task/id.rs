//! The id of a task.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::InvalidName;

/// The id of a task, from 1. Below 2^53, so JSON readers that use doubles keep it exact.
///
/// Ids come from a counter that is never below `Unix seconds × 1,000,000`. They grow, never wrap,
/// and can be read as a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u64);

impl TaskId {
    /// The maximum id: 2^53 − 1.
    pub const MAX: Self = Self((1 << 53) - 1);
    /// Ids per second of the clock.
    pub const PER_SECOND: u64 = 1_000_000;
    /// How far an id may be ahead of the clock. Keyed adds in a topic of many lanes may use more
    /// than a million ids a second (docs/adr/0005-ids.md), for months. The counter follows the ids
    /// in the store, so one that is no id of delayd could leave it no room.
    pub const AHEAD: Duration = Duration::from_secs(10 * 366 * 86_400);
}

impl FromStr for TaskId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.parse() {
            Ok(number) if (1..=Self::MAX.0).contains(&number) => Ok(Self(number)),
            _ => Err(InvalidName("must be a whole number from 1 to 9007199254740991".into())),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
