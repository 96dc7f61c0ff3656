//! The meaning of Redis' errors.

use std::fmt::Display;

use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::handshake::of_alert;
use crate::store::Error;

/// Whether the server does not know the script. It did nothing.
pub(crate) fn is_forgotten(answer: &std::result::Result<Value, RedisError>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Whether the server is no longer usable: not a writable primary, or it refuses us.
pub(crate) fn is_no_primary(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "LOADING" | "MASTERDOWN" | "NOAUTH"))
}

/// Whether the node's map of the cluster differs from ours, or a part of the cluster is
/// unreachable.
pub(crate) fn is_of_the_map(error: &RedisError) -> bool {
    matches!(error.code(), Some("MOVED" | "CLUSTERDOWN"))
}

/// The error that a caller of the store gets.
pub(crate) fn of_redis(error: &RedisError) -> Error {
    if let Some(refused) = of_alert(error) {
        return refused;
    }
    let text = cause(error);
    match error.code() {
        Some("OOM") => Error::Full("Redis has reached its maxmemory".into()),
        Some("NOAUTH" | "NOPERM") => {
            Error::Misconfigured(format!("Redis refuses the login: {text}"))
        }
        code if code == Some("WRONGPASS") || error.kind() == ErrorKind::AuthenticationFailed => {
            Error::Misconfigured(format!(
                "Redis refuses the login: {text}. Check user and password in store.redis.urls, \
                 and percent-encode their special \
                 characters (@ as %40)"
            ))
        }
        _ if error.kind() == ErrorKind::InvalidClientConfig => Error::Misconfigured(text),
        // The server has rejected the command, which can never work: a key of another type, or an
        // error inside a script.
        Some("ERR" | "WRONGTYPE") => Error::Corrupt(text),
        _ => Error::Unavailable(text),
    }
}

/// The same error, with the server's address.
pub(crate) fn at(address: impl Display, error: Error) -> Error {
    match error {
        Error::Unavailable(text) => Error::Unavailable(format!("{address}: {text}")),
        Error::Misconfigured(text) => Error::Misconfigured(format!("{address}: {text}")),
        other => other,
    }
}

/// The error's first line.
pub(crate) fn cause(error: &RedisError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The error for a silent server.
pub(crate) fn silent() -> Error {
    Error::Unavailable("Redis does not answer in time".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_says_how_a_password_is_written() {
        let refused =
            RedisError::from((ErrorKind::AuthenticationFailed, "Password authentication failed"));
        let Error::Misconfigured(text) = of_redis(&refused) else { panic!("{refused}") };
        assert!(
            text.starts_with("Redis refuses the login: ") && text.contains("percent-encode"),
            "{text}"
        );
    }

    /// The message was only "Connection refused", whichever of several servers refused.
    #[test]
    fn the_server_of_an_error_is_named() {
        let error = at("127.0.0.1:1", Error::Unavailable("Connection refused".into()));
        assert_eq!(error.to_string(), "store unavailable: 127.0.0.1:1: Connection refused");
        assert!(matches!(at("a", Error::Full("b".into())), Error::Full(text) if text == "b"));
    }
}
