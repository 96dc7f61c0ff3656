//! A secret argument: `--token`, `--secret`.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A text that `Debug` does not show. It is validated after parsing, because errors of clap repeat
/// the value.
#[derive(Clone)]
pub(super) struct Hidden(String);

impl Hidden {
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The option, or `None` if it is empty: an empty variable counts as absent.
    pub(super) fn unless_empty(option: Option<Self>) -> Option<Self> {
        option.filter(|hidden| !hidden.0.trim().is_empty())
    }
}

impl FromStr for Hidden {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
