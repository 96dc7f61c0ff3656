//! `[log]`: level and format of the logs.

use serde::Deserialize;

use super::check::Wrong;
use crate::telemetry;

/// The section `[log]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// A level, or directives such as `info,delayd=debug`.
    pub level: String,
    /// Text or JSON.
    pub format: LogFormat,
}

/// `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text.
    Text,
    /// JSON, one object per line.
    Json,
}

impl Log {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        telemetry::filter(&self.level)
            .map(|_| ())
            .map_err(|e| Wrong::at("log.level", e.to_string()))
    }
}
