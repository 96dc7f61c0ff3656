//! Errors that are logged only once, although their cause is read repeatedly.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The messages that were logged.
#[derive(Debug, Default)]
pub(super) struct LogOnce(Mutex<HashSet<String>>);

impl LogOnce {
    /// Logs the message as an error, unless it was logged before.
    pub(super) fn error(&self, message: &str) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(message.to_owned()) {
            tracing::error!("{message}");
        }
    }
}
