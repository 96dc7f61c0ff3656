//! Reads when a task is to be due, in the ways in which a request can say it.

use std::time::Duration;

use delayd_wire::{Number, Span};

use crate::api::wire::cost::spend;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::model::clock::UnixMillis;
use crate::model::written_time::{self, InvalidTime, WrittenTime};
use crate::model::zone::Zone;
use crate::store::Moment;

/// Lower Unix seconds (before the year 2001) can only be a delay in the wrong field.
const EARLIEST_SECONDS: f64 = 1e9;
/// Higher Unix seconds (from the year 5138) can only be milliseconds.
const FIRST_MILLIS: f64 = 1e11;

/// How far ahead a task may be due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarthestDue {
    /// This process's clock.
    pub(crate) now: UnixMillis,
    /// The latest due time, from now.
    pub(crate) max_delay: Duration,
}

/// When a task is due, and the zone in which the answer shows it.
#[derive(Debug, PartialEq)]
pub(crate) struct DueTime {
    pub(crate) moment: Moment,
    /// `None`: UTC.
    pub(crate) zone: Option<Zone>,
}

/// The fields `at` and `zone`, as given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    pub(crate) at: Option<&'a str>,
    pub(crate) zone: Option<&'a str>,
}

impl<'a> Written<'a> {
    /// The fields of a request.
    pub(crate) fn of(at: &'a Option<String>, zone: &'a Option<String>) -> Self {
        Self { at: at.as_deref(), zone: zone.as_deref() }
    }

    /// Whether one of the two is given.
    pub(crate) fn is_given(self) -> bool {
        self.at.is_some() || self.zone.is_some()
    }

    /// The time, if `at` is given.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming the field.
    pub(crate) fn read(self, reach: FarthestDue) -> Result<Option<DueTime>, Error> {
        let Some(text) = self.at else {
            return match self.zone {
                None => Ok(None),
                Some(_) => Err(Error::invalid("zone: expected a local time in at beside it")),
            };
        };
        spend(text.len().min(written_time::MAX_TEXT));
        let read = written_time::read(text, self.zone).map_err(|invalid| match invalid {
            InvalidTime::Time(says) => Error::Invalid(format!("at: {says}")),
            InvalidTime::Zone(says) => Error::Invalid(format!("zone: {says}")),
        });
        let WrittenTime { moment, zone } = read?;
        check_range(moment, "at", reach)?;
        Ok(Some(DueTime { moment: Moment::At(moment), zone: Some(zone) }))
    }
}

/// The due time, from one of the three fields.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn due(
    timing_moment: Option<Number>,
    delay: Option<Span>,
    written: Written<'_>,
    reach: FarthestDue,
) -> Result<DueTime, Error> {
    match (timing_moment, delay, written.read(reach)?) {
        (Some(Number(seconds)), None, None) => at_seconds(seconds, reach)
            .map(|moment| DueTime { moment: Moment::At(moment), zone: None }),
        (None, Some(delay), None) => {
            let after = within(delay, "delay", Duration::ZERO..=reach.max_delay)?;
            Ok(DueTime { moment: Moment::After(after), zone: None })
        }
        (None, None, Some(due)) => Ok(due),
        _ => Err(Error::invalid("delay, timing_moment and at: give exactly one of the three")),
    }
}

/// The due time of a call that takes no delay.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn moment(
    timing_moment: Option<Number>,
    written: Written<'_>,
    reach: FarthestDue,
) -> Result<DueTime, Error> {
    if timing_moment.is_some() == written.at.is_some() {
        return Err(Error::invalid("timing_moment: expected either timing_moment or at"));
    }
    due(timing_moment, None, written, reach)
}

/// The moment of `timing_moment`.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn at_seconds(seconds: f64, reach: FarthestDue) -> Result<UnixMillis, Error> {
    if seconds < EARLIEST_SECONDS {
        return Err(Error::invalid(
            "timing_moment: must be Unix seconds; a number below 1000000000 looks like a delay, \
             which belongs into `delay`",
        ));
    }
    if seconds >= FIRST_MILLIS {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a larger number is out of range either way"
        )]
        let as_millis = UnixMillis(seconds as i64).rfc3339();
        return Err(Error::Invalid(format!(
            "timing_moment: must be Unix seconds; {seconds} is beyond the year 5000, so it can \
             only be milliseconds ({as_millis}): divide it by 1000"
        )));
    }
    // Below FIRST_MILLIS, a double holds seconds much more precisely than to a millisecond.
    #[allow(clippy::cast_possible_truncation, reason = "just checked to be below 10^14")]
    let moment = UnixMillis((seconds * 1000.0).round() as i64);
    check_range(moment, "timing_moment", reach)?;
    Ok(moment)
}

fn check_range(moment: UnixMillis, field: &str, reach: FarthestDue) -> Result<(), Error> {
    if moment > reach.now + reach.max_delay {
        let max = Span(reach.max_delay);
        return Err(Error::Invalid(format!("{field}: must be at most {max} from now")));
    }
    Ok(())
}
