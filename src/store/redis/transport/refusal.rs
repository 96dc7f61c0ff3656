//! Why a command was not executed: it may belong to another server.

use deadpool_redis::redis::RedisError;

use super::address::Address;
use super::fault::of_redis;
use crate::store::Error;

/// Why a command was not executed.
#[derive(Clone, Debug)]
pub(crate) enum CommandRefusal {
    /// That node has its slot now.
    Moved(Address),
    /// Its slot is moving to that node, and its key is already there.
    Ask(Address),
    /// Its slot is moving to another node, and its keys are on both.
    TryAgain,
    /// Anything else.
    Failed(Error),
}

impl CommandRefusal {
    /// The meaning of an error for a command that was sent to the server at `asked`.
    pub(crate) fn of(error: &RedisError, asked: &Address) -> Self {
        let to = || error.redirect_node().and_then(|(address, _)| Address::read(address, asked));
        let refusal = match error.code() {
            Some("MOVED") => to().map(Self::Moved),
            Some("ASK") => to().map(Self::Ask),
            Some("TRYAGAIN") => Some(Self::TryAgain),
            _ => None,
        };
        refusal.unwrap_or_else(|| Self::Failed(of_redis(error)))
    }

    /// The error that a caller of the store gets if no other server can be tried.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Moved(_) | Self::Ask(_) | Self::TryAgain => {
                Error::Moving("a slot of the cluster is being moved".into())
            }
        }
    }
}
