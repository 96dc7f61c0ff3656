//! The cases of failed calls.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The `dm_error` of an answer: 0, or why the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ErrorCode {
    /// It did not fail.
    Ok = 0,
    /// The body cannot be taken.
    Invalid = 1000,
    /// No token, or one that is not known.
    Unauthenticated = 1001,
    /// The token does not cover this.
    Forbidden = 1003,
    /// What was asked for does not exist.
    NotFound = 1004,
    /// The route takes another method.
    MethodNotAllowed = 1005,
    /// The task stands where this cannot be done.
    Conflict = 1009,
    /// The record is of a task that this very store has lent.
    OwnTask = 1010,
    /// The body or the content is too long.
    TooLarge = 1013,
    /// The content type is not JSON.
    MediaType = 1015,
    /// The idempotency key was used for something else.
    KeyReused = 1022,
    /// A quota or a rate is used up.
    UsedUp = 1029,
    /// A fault of the service.
    Internal = 2000,
    /// Not now. The call may or may not have been carried out.
    Unavailable = 2003,
}

impl ErrorCode {
    /// The cases of failure, in the order of their numbers.
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

    /// The code of a number. A number that is not known counts as [`ErrorCode::Internal`].
    pub fn of(number: u64) -> Self {
        let is_it = |code: &Self| u64::from(code.number()) == number;
        std::iter::once(Self::Ok).chain(Self::FAILURES).find(is_it).unwrap_or(Self::Internal)
    }

    /// Reads the case of a failure. Success is none: the entry of a batch that succeeded and cannot
    /// be understood is not to be taken for one that failed.
    pub(crate) fn of_failure<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Self::deserialize(deserializer)? {
            Self::Ok => {
                Err(D::Error::custom("expected the code of a failure, got that of success"))
            }
            code => Ok(code),
        }
    }

    /// The HTTP status of its answers.
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

    /// Whether the same call can succeed later. Answers of these cases have a `Retry-After`.
    pub const fn passes(self) -> bool {
        matches!(self, Self::UsedUp | Self::Unavailable)
    }

    /// When it is met.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "the call was carried out",
            Self::Invalid => {
                "the body is no JSON; a field is missing, unknown, of the wrong type or out of range"
            }
            Self::Unauthenticated => "no token, or one that is not known",
            Self::Forbidden => {
                "the token's scopes or topics do not cover this; or a page of another site asks"
            }
            Self::NotFound => "no such task, topic, service or route",
            Self::MethodNotAllowed => "the route takes another method",
            Self::Conflict => "the task stands where this cannot be done: `state` says where",
            Self::OwnTask => "a record to be adopted is of a task that this very store has lent",
            Self::TooLarge => "the body or the content is over its limit",
            Self::MediaType => "the content type is not JSON",
            Self::KeyReused => "the idempotency key was used for something else",
            Self::UsedUp => "a quota, or the token's rate, is used up",
            Self::Internal => "our fault; `request_id` finds it in the log",
            Self::Unavailable => {
                "the store is out of reach or full, or this instance is shutting down or overloaded. \
                 Not confirmed: repeat it"
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
