//! Why there is no such topic here.

use crate::store;

/// Why a topic could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A new topic would be one too many.
    #[error("there are {0} topics already, and limits.topics allows no more")]
    TooMany(usize),
    /// The store's own failure.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// As a failure of the store: nobody who only reads is one topic too many.
    pub fn into_store(self) -> store::Error {
        match self {
            Self::Store(error) => error,
            Self::TooMany(_) => store::Error::Full(self.to_string()),
        }
    }
}
