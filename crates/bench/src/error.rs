//! The errors of a bench.

use std::net::SocketAddr;

use crate::wire::Answer;

/// Why a bench has no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service broke a promise.
    #[error("BROKEN PROMISE: {0}; so there are no figures")]
    Defect(String),
    /// The service refused a part of the load.
    #[error("the service answered {status}: {answer}")]
    Refused {
        /// The answer's status.
        status: u16,
        /// The beginning of the body.
        answer: String,
    },
    /// A connection failed.
    #[error("a connection to the service failed")]
    Broken(#[source] std::io::Error),
    /// The receiver cannot listen.
    #[error("cannot listen for callbacks on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
    /// The service could not be started.
    #[error("cannot start a delayd")]
    Child(#[source] std::io::Error),
    /// The started service does not listen.
    #[error("the started delayd does not listen; its output is above")]
    NoStart,
    /// A temporary folder cannot be created.
    #[error("cannot make a temporary folder")]
    Folder(#[source] std::io::Error),
    /// A request to Redis failed.
    #[error("Redis: {0}")]
    Redis(String),
    /// Any other problem.
    #[error("{0}")]
    Odd(String),
}

impl Error {
    pub(crate) fn refused(answer: &Answer<'_>) -> Self {
        let text = String::from_utf8_lossy(answer.body);
        Self::Refused { status: answer.status, answer: text.chars().take(300).collect() }
    }

    pub(crate) fn redis(error: redis::RedisError) -> Self {
        Self::Redis(error.to_string())
    }
}
