//! The error codes of failed calls.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The `dm_error` of an answer: 0 for success, otherwise the reason of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ErrorCode {
    /// Success.
    Ok = 0,
    /// The request is invalid.
    Invalid = 1000,
    /// The token is missing or unknown.
    Unauthenticated = 1001,
    /// The token does not allow this call.
    Forbidden = 1003,
    /// The task, topic, service or route does not exist.
    NotFound = 1004,
    /// The route takes another HTTP method.
    MethodNotAllowed = 1005,
    /// The task's current state does not allow this call.
    Conflict = 1009,
    /// The record is of a task that this store itself has leased to the mover.
    OwnTask = 1010,
    /// The body or the content is too long.
    TooLarge = 1013,
    /// The content type is not JSON, or the body is compressed.
    MediaType = 1015,
    /// The idempotency key was used with another request.
    KeyReused = 1022,
    /// A quota or a rate limit is exceeded.
    UsedUp = 1029,
    /// An internal error.
    Internal = 2000,
    /// Temporarily unavailable. The call may or may not have been carried out.
    Unavailable = 2003,
}

impl ErrorCode {
    /// The codes of failures, in numeric order.
    pub const FAILURES: [Self; 13] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Conflict,
        Self::OwnTask,
        Self::TooLarge,
        Self::MediaType,
        Self::KeyReused,
        Self::UsedUp,
        Self::Internal,
        Self::Unavailable,
    ];

    /// The number.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number. An unknown number counts as [`ErrorCode::Internal`].
    pub fn of(number: u64) -> Self {
        let is_it = |code: &Self| u64::from(code.number()) == number;
        std::iter::once(Self::Ok).chain(Self::FAILURES).find(is_it).unwrap_or(Self::Internal)
    }

    /// Reads the code of a failure and refuses that of success. An entry of a batch that succeeded
    /// but cannot be read must not count as failed.
    pub(crate) fn of_failure<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Self::deserialize(deserializer)? {
            Self::Ok => Err(D::Error::custom("expected an error code, got 0")),
            code => Ok(code),
        }
    }

    /// The HTTP status of answers with this code.
    pub const fn status(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict | Self::OwnTask => 409,
            Self::TooLarge => 413,
            Self::MediaType => 415,
            Self::KeyReused => 422,
            Self::UsedUp => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    /// Whether the same call may succeed later. Answers with such a code have a `Retry-After`
    /// header.
    pub const fn passes(self) -> bool {
        matches!(self, Self::UsedUp | Self::Unavailable)
    }

    /// The description in the OpenAPI document.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "the call was carried out",
            Self::Invalid => {
                "the body is not JSON, or a field is missing, unknown, of the wrong type or out of \
                 range"
            }
            Self::Unauthenticated => "the token is missing or unknown",
            Self::Forbidden => {
                "the token's scopes or topics do not allow this, or the Origin is a page of \
                 another site"
            }
            Self::NotFound => "the task, topic, service or route does not exist",
            Self::MethodNotAllowed => "the route takes another method",
            Self::Conflict => "the task's current state, in `state`, does not allow this",
            Self::OwnTask => {
                "the record is of a task that this store itself has leased to the mover"
            }
            Self::TooLarge => "the body or the content is longer than its limit",
            Self::MediaType => "the content type is not JSON, or the body is compressed",
            Self::KeyReused => "the idempotency key was used with another request",
            Self::UsedUp => "a quota or the token's rate is exceeded",
            Self::Internal => "an internal error; search the log for `request_id`",
            Self::Unavailable => {
                "the store is unavailable or full, or this instance is shutting down or \
                 overloaded. The call is not confirmed: repeat it"
            }
        }
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.number())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_code() {
        for code in ErrorCode::FAILURES {
            assert_eq!(ErrorCode::of(code.number().into()), code);
        }
        assert!(ErrorCode::FAILURES.is_sorted());
        assert_eq!(
            (ErrorCode::of(0), ErrorCode::of(7), ErrorCode::of(1 << 40)),
            (ErrorCode::Ok, ErrorCode::Internal, ErrorCode::Internal)
        );
    }
}
