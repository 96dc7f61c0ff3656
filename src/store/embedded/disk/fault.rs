//! The meaning of SQLite's failures, and the failure that ends the process.
//!
//! After an I/O error, including a failed fsync, the content of the disk is unknown. Nothing is
//! retried, every later call fails, and the application is told to stop. A fresh start reads what
//! is really on disk.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};
use rustix::io::Errno;
use tokio::sync::watch;

use crate::store::{Error, Result};

/// Whether the store may still be used. Shared by all of its threads.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    fatal: watch::Sender<bool>,
}

impl StoreHealth {
    pub(crate) fn new() -> Self {
        Self { fatal: watch::Sender::new(false) }
    }

    /// Becomes true when the store can no longer be trusted.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.fatal.subscribe()
    }

    /// Fails once the store can no longer be trusted.
    pub(crate) fn check(&self) -> Result<()> {
        if *self.fatal.borrow() {
            return Err(Error::Unavailable(
                "an I/O error ended the work on the file; restart the process".into(),
            ));
        }
        Ok(())
    }

    /// Stops all work on the file.
    pub(crate) fn condemn(&self, why: &str) {
        if !self.fatal.send_replace(true) {
            tracing::error!("The embedded store has stopped: {why}");
        }
    }

    /// Translates a failure. Stops all work if the failure leaves the disk's content unknown.
    pub(crate) fn judge(&self, failure: &rusqlite::Error) -> Error {
        let error = translate(failure);
        if failure.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
            && !matches!(error, Error::Full(_))
        {
            self.condemn(&failure.to_string());
        }
        error
    }
}

/// Stops all work if the thread that holds the guard panics: otherwise its queue would fill up
/// unnoticed.
pub(crate) struct PanicGuard<'a>(pub(crate) &'a StoreHealth);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.condemn("one of its threads panicked");
        }
    }
}

/// The meaning of a failure at the start. Only a failure that no restart can fix is an error of the
/// configuration.
pub(crate) fn explain(path: &Path, failure: &rusqlite::Error) -> Error {
    let at = path.display();
    if failure.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return Error::Misconfigured(format!(
            "{at} is no store of delayd: name another file in store.embedded.path"
        ));
    }
    match translate(failure) {
        Error::Full(reason) => Error::Full(format!("no room to open {at}: {reason}")),
        Error::Corrupt(reason) => Error::Corrupt(format!(
            "{at} is damaged ({reason}): restore a backup, or move it away with its -wal and \
                start with a new one"
        )),
        _ if failure.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
            Error::Unavailable(format!("the disk failed while {at} was opened: {failure}"))
        }
        _ => cannot_open(path, failure),
    }
}

/// The error of a file that exists and cannot be opened.
pub(crate) fn cannot_open(path: &Path, failure: &rusqlite::Error) -> Error {
    let advice = match failure.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => {
            "; look at the owner and the mode of the file and its folder"
        }
        _ => "",
    };
    Error::Misconfigured(format!("cannot open the store {}: {failure}{advice}", path.display()))
}

/// The meaning of a failure for a caller of the store. Must be called on the thread that met it,
/// before its next system call.
pub(crate) fn translate(failure: &rusqlite::Error) -> Error {
    match failure.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full(failure.to_string()),
        // The log's index (`-shm`) could not grow. It holds nothing that has to be on disk.
        Some(_) if is_index_without_room(failure) => Error::Full(failure.to_string()),
        Some(_) if is_over_quota(failure) => {
            Error::Full(format!("the disk quota is used up: {failure}"))
        }
        // Only rows that no version of this program stores violate constraints.
        Some(
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation,
        ) => Error::Corrupt(failure.to_string()),
        Some(_) => Error::Unavailable(failure.to_string()),
        // Not a failure of SQLite, but a value that no version of this program stores.
        None => Error::Corrupt(failure.to_string()),
    }
}

fn is_index_without_room(failure: &rusqlite::Error) -> bool {
    failure.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE)
}

/// Whether a write was refused because of the user's quota. SQLite recognizes a full disk only by
/// ENOSPC, and calls this an I/O error. The system's own error is still readable, because only
/// another failure replaces it (`sqlite3_system_errno` reads it too). A refused write leaves
/// nothing unknown, unlike an fsync that fails with the same error.
fn is_over_quota(failure: &rusqlite::Error) -> bool {
    failure.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_WRITE)
        && Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::DQUOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_condemns_and_a_full_disk_does_not() {
        let check = |code: i32, is_fatal: bool, is_full: bool| {
            let health = StoreHealth::new();
            let error = health.judge(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
            assert_eq!(
                (health.check().is_err(), matches!(error, Error::Full(_))),
                (is_fatal, is_full),
                "{code}"
            );
        };
        check(ffi::SQLITE_IOERR_FSYNC, true, false);
        check(ffi::SQLITE_IOERR_WRITE, true, false);
        check(ffi::SQLITE_IOERR_READ, true, false);
        check(ffi::SQLITE_IOERR_TRUNCATE, true, false);
        check(ffi::SQLITE_FULL, false, true);
        check(ffi::SQLITE_IOERR_SHMSIZE, false, true);
        check(ffi::SQLITE_BUSY, false, false);
        check(ffi::SQLITE_CORRUPT, false, false);
    }
}
