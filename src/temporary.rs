//! A folder of this process that goes with it.

use std::io;
use std::path::{Path, PathBuf};

/// The folder; dropping it removes it with all that is in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one among the system's temporary ones; its name begins with `what`.
    ///
    /// # Errors
    /// If the system does not let it be made.
    pub fn create(what: &str) -> io::Result<Self> {
        let name = format!("{what}-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(name);
        // Not `create_dir_all`: a folder that someone else made is not ours to use and remove.
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("delayd: the folder {} is left behind: {e}", self.0.display());
        }
    }
}
