//! Reads the scripts' answers.

use deadpool_redis::redis::{FromRedisValue, Value};

use crate::model::task::State;
use crate::store::{Error, Result};

/// The error for an answer that none of our scripts gives.
pub(super) fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("a script answered: {error}"))
}

pub(super) fn text(value: Value) -> Result<String> {
    String::from_redis_value(value).map_err(corrupt)
}

pub(super) fn state(name: &str) -> Result<State> {
    State::ALL.into_iter().find(|state| state.as_str() == name).ok_or_else(|| corrupt(name))
}
