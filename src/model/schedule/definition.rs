//! What a recurring schedule says: when it has moments, and the task of each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{InvalidRule, Recurrence, Rule};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Options};

/// The definition of a recurring schedule. Its text is stored; two equal texts are one definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The cron expression. There is one, or an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The time zone of the cron expression.
    pub zone: String,
    /// The first moment that is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<UnixMillis>,
    /// The last moment that is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<UnixMillis>,
    /// What becomes of moments that were missed.
    pub misfire: MisfireRule,
    /// What becomes of an occurrence that falls due while an earlier one runs.
    pub overlap: Overlap,
    /// Where the tasks go.
    pub destination: Destination,
    /// The options of the tasks.
    #[serde(default)]
    pub options: Options,
    /// The content of the tasks, byte for byte.
    pub content: String,
}

/// What becomes of moments that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MisfireRule {
    /// One occurrence stands for all of them.
    #[default]
    Once,
    /// Each has an occurrence, the oldest first; at most the newest 1,000.
    All,
}

/// What becomes of an occurrence that falls due while an earlier one runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is handed out.
    #[default]
    Allow,
    /// It expires.
    Skip,
}

impl Definition {
    /// The text that is stored.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a definition is plain data")
    }

    /// Reads a stored text. `None` if this version cannot read it.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The moments. Intervals without a start count from `anchor`.
    ///
    /// # Errors
    /// [`InvalidRule`] says which field is wrong.
    pub fn recurrence(&self, anchor: UnixMillis) -> Result<Recurrence, InvalidRule> {
        Recurrence::parse(&Rule {
            cron: self.cron.as_deref(),
            every: self.every_ms.map(Duration::from_millis),
            zone: &self.zone,
            start: self.start,
            end: self.end,
            anchor,
        })
    }
}
