//! The error of the validation of a section, and checks that sections share.

use std::fmt::Display;
use std::ops::RangeInclusive;

use delayd_wire::Span;

/// A value that was parsed, but is not allowed.
#[derive(Debug)]
pub(super) struct Wrong {
    /// The path of the key.
    pub(super) path: Vec<String>,
    /// The rule; begins with a verb.
    pub(super) reason: String,
}

impl Wrong {
    /// Returns an error for the value at a dotted path.
    pub(super) fn at(path: &str, reason: impl Into<String>) -> Self {
        Self { path: path.split('.').map(str::to_owned).collect(), reason: reason.into() }
    }
}

/// Refuses a value outside its range.
pub(super) fn within<T: PartialOrd + Display>(
    path: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Wrong> {
    ensure(path, range.contains(&value), || {
        format!("must be from {} to {}", range.start(), range.end())
    })
}

/// Refuses a duration outside its range. The ends are given and shown as in a configuration file.
pub(super) fn within_spans(
    path: &str,
    value: Span,
    shortest: &str,
    longest: &str,
) -> Result<(), Wrong> {
    let end = |text: &str| text.parse::<Span>().expect("an end of a range is a duration");
    ensure(path, (end(shortest)..=end(longest)).contains(&value), || {
        format!("must be from {shortest} to {longest}")
    })
}

/// Refuses a value unless `right` is true.
pub(super) fn ensure(
    path: &str,
    right: bool,
    reason: impl FnOnce() -> String,
) -> Result<(), Wrong> {
    if right { Ok(()) } else { Err(Wrong::at(path, reason())) }
}
