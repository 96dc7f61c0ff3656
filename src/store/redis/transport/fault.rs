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
        Some("NOAUTH") => Error::Misconfigured(format!("Redis refuses the login: {text}")),
        Some("NOPERM") => Error::Misconfigured(format!(
            "the user of store.redis.urls may not do this on Redis: {text}"
        )),
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
        code => match code.and_then(trouble) {
            Some(trouble) => Error::Unavailable(format!("{trouble}: {text}")),
            None => Error::Unavailable(text),
        },
    }
}

/// What keeps a server from executing commands, by the code of its error. Without these words, an
/// operator would have to know the codes of Redis.
fn trouble(code: &str) -> Option<&'static str> {
    Some(match code {
        "BUSY" => "Redis is busy: a script or function has run for too long",
        "LOADING" => "Redis is still loading its data",
        "MASTERDOWN" => "this Redis is a replica, and its primary is away",
        "READONLY" => "this Redis is a replica, not the primary",
        "CLUSTERDOWN" => "a part of the cluster is away",
        "NOREPLICAS" => "Redis accepts no writes: it has fewer replicas than it was told to have",
        "MISCONF" => "Redis accepts no writes: it cannot save its data",
        _ => return None,
    })
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

/// The error that Redis answers with this line.
#[cfg(test)]
pub(crate) fn refusal(line: &str) -> RedisError {
    let answer = deadpool_redis::redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
    answer.and_then(Value::extract_error).expect_err("it is an error")
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

    #[test]
    fn the_trouble_of_a_server_is_named() {
        let check = |answer: &str, expected: &str| {
            let error = of_redis(&refusal(answer)).to_string();
            assert!(error.contains(expected), "{answer} is {error}");
        };
        check("BUSY Redis is busy running a script", "a script or function has run for too long");
        check("LOADING Redis is loading the dataset", "still loading");
        check("MASTERDOWN Link with MASTER is down", "its primary is away");
        check("READONLY You can't write against a read only replica.", "not the primary");
        check("CLUSTERDOWN The cluster is down", "a part of the cluster");
        check("NOREPLICAS Not enough good replicas to write.", "fewer replicas");
        check("MISCONF Errors writing to the AOF file", "cannot save");
        check("OOM command not allowed", "maxmemory");
        check("NOAUTH Authentication required.", "refuses the login");
        check("NOPERM this user has no permissions to run the 'info' command", "may not do this");
        check("OTHER words", "words");
    }

    /// The message was only "Connection refused", whichever of several servers refused.
    #[test]
    fn the_server_of_an_error_is_named() {
        let error = at("127.0.0.1:1", Error::Unavailable("Connection refused".into()));
        assert_eq!(error.to_string(), "store unavailable: 127.0.0.1:1: Connection refused");
        assert!(matches!(at("a", Error::Full("b".into())), Error::Full(text) if text == "b"));
    }
}
