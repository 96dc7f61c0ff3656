//! A file system without free space.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that takes the free space. Dropping it frees the space again.
#[derive(Debug)]
pub struct Full(PathBuf);

impl Full {
    /// Leaves no free byte in the file system of a folder.
    pub fn of(folder: &Path) -> Self {
        Self::but(folder, 0)
    }

    /// Leaves `bytes` free, for another process to fill.
    pub fn but(folder: &Path, bytes: u64) -> Self {
        let path = folder.join("filler");
        let mut filler = File::create(&path).unwrap();
        for chunk in [1 << 20, 1 << 12, 1] {
            while filler.write_all(&vec![0; chunk]).is_ok() {}
        }
        filler.set_len(filler.metadata().unwrap().len() - bytes).unwrap();
        Self(path)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // Its file system may be gone with its process.
        let _ = fs::remove_file(&self.0);
    }
}
