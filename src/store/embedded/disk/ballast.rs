//! A file without content beside the database. It is deleted when the disk is full, so that claims
//! and settles have room.
//!
//! Its blocks are really allocated: a sparse file would give nothing back.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rand::Rng;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The size of one write if blocks cannot be allocated without writing.
const CHUNK: usize = 64 << 10;

/// The size of a block in a file's metadata, whatever the file system's own blocks are.
const BLOCK: u64 = 512;

#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    bytes: u64,
    held: bool,
}

impl Ballast {
    /// The ballast of a database, as the previous process left it.
    pub(crate) fn beside(database: &Path, bytes: u64) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-ballast");
        let path = PathBuf::from(path);
        let held = std::fs::metadata(&path)
            .is_ok_and(|file| file.len() == bytes && file.blocks() * BLOCK >= bytes);
        Self { path, bytes, held }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Allocates the file. If that fails, nothing of it remains.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        let taken = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&self.path)
            .and_then(|file| allocate(&file, self.bytes));
        self.held = taken.is_ok();
        if !self.held {
            self.remove();
        }
        taken
    }

    /// Deletes the file. Returns whether that freed anything.
    pub(crate) fn release(&mut self) -> bool {
        let was_held = std::mem::take(&mut self.held);
        self.remove();
        was_held
    }

    fn remove(&self) {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("Cannot remove {}: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Some file systems cannot.
        Err(Errno::OPNOTSUPP) => fill(file, bytes),
        allocated => Ok(allocated?),
    }
}

/// Writes random bytes, because a file system that compresses would store nothing of zeros.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let part = left.min(CHUNK);
        rand::rng().fill_bytes(&mut chunk[..part]);
        file.write_all(&chunk[..part])?;
        left -= part;
    }
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ballast_is_really_allocated_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("delayd.db");
        let file = folder.path().join("delayd.db-ballast");
        let mut ballast = Ballast::beside(&database, 100_000);
        assert!(!ballast.is_held());
        ballast.take().unwrap();
        let metadata = std::fs::metadata(&file).unwrap();
        assert_eq!(metadata.len(), 100_000);
        assert!(metadata.blocks() * BLOCK >= 100_000, "{} blocks", metadata.blocks());
        assert!(Ballast::beside(&database, 100_000).is_held(), "the next process finds it");
        assert!(!Ballast::beside(&database, 200_000).is_held(), "another size is taken anew");
        assert!(ballast.release());
        assert!(!file.exists());
        assert!(!ballast.release());
    }

    #[test]
    fn where_blocks_cannot_be_allocated_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast");
        fill(&File::create(&path).unwrap(), 100_000).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), 100_000);
        assert!(metadata.blocks() * BLOCK >= 100_000, "{} blocks", metadata.blocks());
    }

    #[test]
    fn a_sparse_file_is_no_ballast() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("delayd.db");
        File::create(folder.path().join("delayd.db-ballast")).unwrap().set_len(1 << 20).unwrap();
        assert!(!Ballast::beside(&database, 1 << 20).is_held());
    }
}
