//! The arguments that name a moment, for `add`, `update`, `nack` and lists.

use delayd_wire::Number;

use crate::model::clock::UnixMillis;
use crate::model::written_time;
use delayd_wire::Span;

/// What a command prints if [`At::has_passed`].
pub(super) const PASSED: &str = "the given time has passed, so the task is due now";

/// The due time: exactly one of the two.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("due").required(true).multiple(false).args(["after", "at"]))]
pub(super) struct DueArgs {
    /// Due after this time: seconds, or 1500ms, 10s, 5m, 2h, 7d
    #[arg(long = "in", value_name = "DURATION", conflicts_with = "zone")]
    after: Option<Span>,
    #[command(flatten)]
    at: At,
}

impl DueArgs {
    /// The value of the field `delay`.
    pub(super) fn delay(&self) -> Option<Span> {
        self.after
    }

    /// The value of the field `timing_moment`: a time that is a number.
    pub(super) fn timing_moment(&self) -> Option<Number> {
        self.at.seconds()
    }

    /// The value of the field `at`: a time that is a text.
    pub(super) fn at(&self) -> Option<String> {
        self.at.words()
    }

    /// The value of the field `zone`.
    pub(super) fn zone(&self) -> Option<String> {
        self.at.zone.clone()
    }

    /// As [`At::has_passed`].
    pub(super) fn has_passed(&self, due: delayd_wire::UnixMillis) -> bool {
        self.at.has_passed(due)
    }
}

/// The due time of a call that takes no delay.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("due").required(true).args(["at"]))]
pub(super) struct DueAt {
    #[command(flatten)]
    pub(super) at: At,
}

/// A moment as a person writes it.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct At {
    /// Due at this time: 2026-11-23T20:00:00+08:00, '2026-11-23 20:00' with --zone, or Unix seconds
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,
    /// The time zone of --at, such as Asia/Shanghai
    #[arg(long, value_name = "ZONE", requires = "at")]
    pub(super) zone: Option<String>,
}

impl At {
    /// The time as Unix seconds, if it is a number.
    pub(super) fn seconds(&self) -> Option<Number> {
        seconds(self.at.as_deref()?).ok()
    }

    /// The time as text, if it is no number.
    pub(super) fn words(&self) -> Option<String> {
        self.at.clone().filter(|text| seconds(text).is_err())
    }

    /// Whether the service has set the due time to `due`, its present time, because this time lies
    /// before it.
    pub(super) fn has_passed(&self, due: delayd_wire::UnixMillis) -> bool {
        let read = |text| written_time::read(text, self.zone.as_deref());
        #[allow(clippy::cast_possible_truncation, reason = "a larger number is out of range")]
        let moment = match self.seconds().map(|seconds| seconds.0) {
            Some(seconds) => Some((seconds * 1_000.0).round() as i64),
            None => self.at.as_deref().and_then(|text| read(text).ok()).map(|read| read.moment.0),
        };
        // A fraction of a millisecond may be rounded up.
        moment.is_some_and(|moment| moment + 1 < due.0)
    }

    /// The time as text, for a call without the field `timing_moment`.
    pub(super) fn text(&self) -> Option<String> {
        let text = self.at.as_deref()?;
        let millis = seconds(text).ok().map(|seconds| seconds.0 * 1_000.0);
        #[allow(clippy::cast_possible_truncation, reason = "a larger number is out of range")]
        let number = millis.map(|millis| UnixMillis(millis.ceil() as i64).rfc3339());
        Some(number.unwrap_or_else(|| text.to_owned()))
    }
}

/// Parses a number.
pub(super) fn seconds(text: &str) -> Result<Number, &'static str> {
    match serde_json::from_str(text) {
        Ok(number) => Ok(number),
        Err(_) => Err("must be a number of Unix seconds, such as 1795236367 or 1795236367.25"),
    }
}
