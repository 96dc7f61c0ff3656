//! An argument that nobody else should read: `--token`, `--secret`.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// Any text. It is checked by who uses it: clap's own errors repeat what was given. `Debug` does
/// not show it.
#[derive(Clone)]
pub(super) struct Hidden(String);

impl Hidden {
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The option, unless its text is empty: a variable that is set to nothing counts as absent.
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
