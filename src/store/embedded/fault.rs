//! What SQLite's failures mean, and the one failure that ends the process.
//!
//! After an I/O error, a failed fsync among them, nobody can say what is on disk: nothing is retried, every later
//! call fails, and the application is told to stop. A fresh start reads what the disk really holds.

use rusqlite::ErrorCode;
use tokio::sync::watch;

use crate::store::{Error, Result};

/// Whether the store may still be used. Shared by all of its threads.
#[derive(Debug)]
pub(super) struct Health {
    fatal: watch::Sender<bool>,
}

impl Health {
    pub(super) fn new() -> Self {
        Self { fatal: watch::Sender::new(false) }
    }

    /// Turns true when the store can no longer be trusted.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.fatal.subscribe()
    }

    /// An error once the store can no longer be trusted.
    pub(super) fn check(&self) -> Result<()> {
        if *self.fatal.borrow() {
            return Err(Error::Unavailable("an I/O error ended the work on the file; restart the process".into()));
        }
        Ok(())
    }

    /// Ends the work on the file.
    pub(super) fn condemn(&self, why: &str) {
        if !self.fatal.send_replace(true) {
            tracing::error!("The embedded store cannot go on: {why}");
        }
    }

    /// Translates a failure, and ends the work if it is one that leaves the disk's content unknown.
    pub(super) fn judge(&self, failure: &rusqlite::Error) -> Error {
        if failure.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            self.condemn(&failure.to_string());
        }
        translate(failure)
    }
}

/// Ends the work on the file if the thread that holds it panics: its queue would fill up unseen.
pub(super) struct PanicGuard<'a>(pub(super) &'a Health);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.condemn("one of its threads panicked");
        }
    }
}

/// What a failure means to a caller of the store.
pub(super) fn translate(failure: &rusqlite::Error) -> Error {
    match failure.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full(failure.to_string()),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt(failure.to_string()),
        Some(_) => Error::Unavailable(failure.to_string()),
        // No failure of SQLite, but a value that no version of this program stores.
        None => Error::Corrupt(failure.to_string()),
    }
}
