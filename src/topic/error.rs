//! Why a topic is not available.

use crate::store;

/// Why a topic is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There are as many topics as `limits.topics` allows.
    #[error("there are {0} topics already, and limits.topics allows no more")]
    TooMany(usize),
    /// The token may create no more topics: it has created as many as its share of
    /// `limits.topics` allows.
    #[error("the token has created {0} topics, its share of limits.topics")]
    TooManyOfToken(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// As an error of the store, for callers that create no topic.
    pub fn into_store(self) -> store::Error {
        match self {
            Self::Store(error) => error,
            Self::TooMany(_) | Self::TooManyOfToken(_) => store::Error::Full(self.to_string()),
        }
    }
}
