//! A configuration that is made of files, and replaced when they change.

use std::sync::{Arc, Mutex, PoisonError};

use super::pem::InvalidFile;

/// A configuration, and the contents of the files of which it was made.
#[derive(Debug)]
pub(super) struct Current<Contents, Config>(Mutex<(Contents, Arc<Config>)>);

impl<Contents: PartialEq, Config> Current<Contents, Config> {
    pub(super) fn new(
        contents: Contents,
        configure: impl FnOnce(&Contents) -> Result<Config, InvalidFile>,
    ) -> Result<Self, InvalidFile> {
        let config = Arc::new(configure(&contents)?);
        Ok(Self(Mutex::new((contents, config))))
    }

    /// Replaces the configuration if the contents are others. Returns whether they are.
    ///
    /// # Errors
    /// Those of `configure`; the old configuration stays.
    pub(super) fn replace(
        &self,
        contents: Contents,
        configure: impl FnOnce(&Contents) -> Result<Config, InvalidFile>,
    ) -> Result<bool, InvalidFile> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == contents {
            return Ok(false);
        }
        let config = Arc::new(configure(&contents)?);
        *current = (contents, config);
        Ok(true)
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}
