//! The settings of traces.

use std::fmt;
use std::time::Duration;

/// The settings of traces.
#[derive(Clone)]
pub struct Params {
    /// The collector's base address; none: nothing is exported.
    pub endpoint: Option<String>,
    /// The names and values of further headers of each export.
    pub headers: Vec<(String, String)>,
    /// How long one export may take.
    pub timeout: Duration,
    /// The share of adds without a caller's context that are exported, with their attempts.
    pub sample_ratio: f64,
    /// Attempts of tasks with a shorter delay continue the trace of the add.
    pub continue_below: Duration,
    /// The id of this instance.
    pub instance: String,
}

/// `Debug` shows no header: a value may be a password.
impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Params").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// The exporter could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the exporter cannot be built: {0}")]
pub struct ExporterError(pub(super) String);
