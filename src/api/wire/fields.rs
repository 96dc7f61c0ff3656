//! Checks of the fields of requests.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use delayd_wire::{OutOfRange, Span};

use crate::api::wire::error::Error;
use crate::model::task::{InvalidName, TaskId, Topic};

/// The cursor of a call over all topics: the last topic that was looked at. The topics are looked
/// at in the order of their names.
#[derive(Debug)]
pub(crate) struct LastTopic(pub(crate) Topic);

impl FromStr for LastTopic {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let wrong = |_| InvalidName("must be the cursor of the previous call, unchanged".into());
        text.parse().map(Self).map_err(wrong)
    }
}

/// Parses a text, such as a cursor or the name of a schedule.
///
/// # Errors
/// [`Error::Invalid`], naming `field`.
pub(crate) fn parsed<T: FromStr<Err = InvalidName>>(text: &str, field: &str) -> Result<T, Error> {
    text.parse().map_err(|error| Error::Invalid(format!("{field}: {error}")))
}

/// Parses the cursor of a request, if it is given.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn cursor<T: FromStr<Err = InvalidName>>(
    text: Option<String>,
) -> Result<Option<T>, Error> {
    text.map(|text| parsed(&text, "cursor")).transpose()
}

/// The ids of a list. 0 is none.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn ids<C: FromIterator<TaskId>>(ids: Vec<delayd_wire::TaskId>) -> Result<C, Error> {
    let given = |id: delayd_wire::TaskId| match id.0 {
        0 => Err(Error::invalid("task_ids: is missing")),
        _ => Ok(id.into()),
    };
    ids.into_iter().map(given).collect()
}

/// The duration, if it is within `range`.
///
/// # Errors
/// [`Error::Invalid`], naming `field`.
pub(crate) fn within(
    Span(given): Span,
    field: &str,
    range: RangeInclusive<Duration>,
) -> Result<Duration, Error> {
    if range.contains(&given) {
        return Ok(given);
    }
    let text = |duration| Span(duration).to_string();
    let (from, to) = range.into_inner();
    let (from, to, given) = (text(from), text(to), text(given));
    Err(OutOfRange { field: field.into(), what: "", from, to, given }.into())
}

impl From<OutOfRange> for Error {
    fn from(error: OutOfRange) -> Self {
        Self::Invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_keeps_to_its_range() {
        let range = Duration::from_millis(100)..=Duration::from_secs(600);
        assert!(within(Span::seconds(600), "timeout", range.clone()).is_ok());
        let error = within(Span::seconds(601), "timeout", range).unwrap_err().to_string();
        assert_eq!(error, "timeout: must be from 100ms to 10m, not 601s");
    }
}
