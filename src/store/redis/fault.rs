//! What Redis' errors mean.

use deadpool_redis::PoolError;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::store::Error;

/// Whether the server does not know the script: it did nothing.
pub(super) fn is_forgotten(answer: &std::result::Result<Value, RedisError>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Whether the server is of no use to us any more: no writable primary, or not for us.
pub(super) fn is_no_primary(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "NOAUTH"))
}

/// What a connection that could not be had means to a caller of the store.
pub(super) fn of_pool(error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) => of_redis(&error),
        PoolError::Timeout(_) => Error::Unavailable("Redis does not answer in time".into()),
        other => Error::Unavailable(other.to_string()),
    }
}

/// What a Redis error means to a caller of the store.
pub(super) fn of_redis(error: &RedisError) -> Error {
    let text = cause(error);
    match error.code() {
        Some("OOM") => Error::Full("Redis has reached its maxmemory".into()),
        Some("WRONGPASS" | "NOAUTH" | "NOPERM") => Error::Misconfigured(format!("Redis refuses the login: {text}")),
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            Error::Misconfigured(format!("Redis refuses the login: {text}"))
        }
        _ if error.kind() == ErrorKind::InvalidClientConfig => Error::Misconfigured(text),
        // The server has looked at the command and it can never work: a key of another type, an error inside a script.
        Some("ERR" | "WRONGTYPE") => Error::Corrupt(text),
        _ => Error::Unavailable(text),
    }
}

/// The error's first line.
pub(super) fn cause(error: &RedisError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
