//! A configuration file, as read at one moment.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::layers::Layer;

/// A file that was read. Two are equal if their texts are equal.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    path: PathBuf,
    /// The text, or the error from reading it.
    text: Result<String, String>,
}

impl File {
    /// Reads the file. An error is returned only when settings are made of it.
    pub fn read(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            text: std::fs::read_to_string(path).map_err(|error| error.to_string()),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses an empty file that replaces one with settings.
    ///
    /// # Errors
    /// [`Error::Emptied`].
    pub fn ensure_may_replace(&self, current: &Self) -> Result<(), Error> {
        let is_empty = |file: &Self| file.layer().is_ok_and(|layer| layer.is_empty());
        let is_emptied = is_empty(self) && !is_empty(current);
        if is_emptied { Err(Error::Emptied { path: self.path.clone() }) } else { Ok(()) }
    }

    pub(super) fn layer(&self) -> Result<Layer, Error> {
        match &self.text {
            Ok(text) => Layer::of_text(&self.path.display().to_string(), text),
            Err(reason) => Err(Error::File {
                path: self.path.clone(),
                source: io::Error::other(reason.clone()),
            }),
        }
    }
}

impl fmt::Debug for File {
    /// Omits the text, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}
