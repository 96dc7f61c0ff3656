//! Why there are no figures.

use std::net::SocketAddr;

use crate::wire::Answer;

/// What keeps a bench from telling figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service broke a promise.
    #[error("NOT AS PROMISED: {0}; so there are no figures")]
    Defect(String),
    /// It refused a part of the load.
    #[error("the service answered {status}: {answer}")]
    Refused {
        /// The answer's status.
        status: u16,
        /// The beginning of its body.
        answer: String,
    },
    /// A connection failed.
    #[error("a connection to the service failed")]
    Broken(#[source] std::io::Error),
    /// The receiver has no place.
    #[error("cannot listen for callbacks on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
    /// The service could not be started.
    #[error("cannot start a delayd")]
    Child(#[source] std::io::Error),
    /// It was started, and did not listen.
    #[error("the delayd that was started does not listen; what it said stands above")]
    NoStart,
    /// No temporary folder.
    #[error("cannot make a temporary folder")]
    Folder(#[source] std::io::Error),
    /// Redis could not be asked.
    #[error("Redis: {0}")]
    Redis(String),
    /// Whatever else keeps a scenario from its end.
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
