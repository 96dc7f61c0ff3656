//! Copies the file of a store into another file, beside the delayd that has it.
//!
//! `VACUUM INTO` reads one committed state in a read transaction, also while tasks are added. The
//! log cannot restart meanwhile and grows. The online backup of SQLite would begin again with each
//! commit of another process. A file with a damaged page makes the copy fail.

use std::fs::{File, OpenOptions};
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Embedded;
use super::disk::{fault, schema};
use crate::store::{Error, Result};

impl Embedded {
    /// Copies the store at `path` into `to`, which is complete on the disk afterwards. Replaces
    /// `to`. Returns the bytes of the copy.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if there is no such store, [`Error::Unavailable`] if `to` cannot be
    /// written.
    pub fn back_up(path: &Path, to: &Path) -> Result<u64> {
        schema::ensure_there(path)?;
        let explain = |failure| fault::explain(path, &failure);
        let db = schema::open_reader(path).map_err(explain)?;
        schema::ensure_is_ours(&db, path)?;
        let failed = |error: IoError| {
            Error::Unavailable(format!("cannot write the backup {}: {error}", to.display()))
        };
        let part = PartialCopy::create(to).map_err(failed)?;
        let name = part.path.to_str().ok_or_else(|| failed(ErrorKind::InvalidFilename.into()))?;
        db.execute("VACUUM INTO ?", [name]).map_err(|failure| {
            match fault::translate(&failure) {
                corrupt @ Error::Corrupt(_) => corrupt,
                error => failed(IoError::other(error)),
            }
        })?;
        part.finish(to).map_err(failed)
    }
}

/// The copy until it is complete. Dropping it removes it.
struct PartialCopy {
    path: PathBuf,
    file: File,
}

impl PartialCopy {
    /// Creates an empty file beside `to`, which only this user can read.
    fn create(to: &Path) -> std::io::Result<Self> {
        let mut path = to.as_os_str().to_owned();
        path.push(format!(".{:08x}.part", rand::random::<u32>()));
        let path = PathBuf::from(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    /// Makes the copy durable and gives it its name. Returns its bytes.
    fn finish(self, to: &Path) -> std::io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        std::fs::rename(&self.path, to)?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(bytes)
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        // After `finish` nothing has this name.
        let _ = std::fs::remove_file(&self.path);
    }
}
