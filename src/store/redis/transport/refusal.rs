//! Why a command was not carried out, as its sender needs to know: it may belong to another server.

use deadpool_redis::redis::RedisError;

use super::address::Address;
use super::fault::of_redis;
use crate::store::Error;

/// Why a command was not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Its slot lies on that node now.
    Moved(Address),
    /// Its slot is on the way to that node, and its key is already there.
    Ask(Address),
    /// Its slot is on the way to another node, some of its keys here and some there.
    TryAgain,
    /// Anything else.
    Failed(Error),
}

impl Refusal {
    /// What the error says of a command sent to the server at `asked`.
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

    /// What it means to a caller of the store, where it cannot be helped.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Moved(_) | Self::Ask(_) | Self::TryAgain => {
                Error::Moving("a slot of the cluster is being moved".into())
            }
        }
    }
}
