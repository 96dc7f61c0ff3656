//! `[log]`: level and format of the logs.

use serde::Deserialize;

use super::check::Wrong;
use super::value::choice;
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

choice! {
    /// `log.format`.
    LogFormat {
        /// Text.
        Text = "text",
        /// JSON, one object per line.
        Json = "json",
    }
}

impl Log {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        telemetry::filter(&self.level)
            .map(|_| ())
            .map_err(|e| Wrong::at("log.level", e.to_string()))
    }
}
