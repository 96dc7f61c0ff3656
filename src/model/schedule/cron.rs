//! Cron expressions, and the local times that match them. Clock changes are not looked at here.

use jiff::civil::{Date, DateTime, Time};

use super::field::{Allowed, CronField, InvalidField};
use super::set::Set;

/// The longest expression, in bytes.
const LONGEST: usize = 256;

#[cfg(test)]
thread_local! {
    /// How many dates were compared with an expression.
    pub(super) static DATES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The short forms and what they stand for.
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A cron expression with five fields (minute, hour, day of month, month, weekday) or six (second
/// first).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    times: DayTimes,
    days: Days,
    /// Whether it goes by elapsed time over a clock change: the minute or the hour has `*`.
    by_elapsed_time: bool,
}

/// The times of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DayTimes {
    hours: Set,
    minutes: Set,
    seconds: Set,
}

/// The days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Days {
    months: Set,
    days: Allowed,
    weekdays: Allowed,
}

/// Why a cron expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCron {
    /// Too long to be read.
    #[error("cron: expected at most {LONGEST} bytes, got {0}")]
    TooLong(usize),
    /// Not five or six fields.
    #[error(
        "cron: expected five fields (minute, hour, day of month, month, weekday) or six (second \
         first), got {0}"
    )]
    Fields(usize),
    /// An unknown short form.
    #[error(
        "cron: expected @yearly, @monthly, @weekly, @daily or @hourly, got {0:?}; for a fixed \
         distance use every"
    )]
    Macro(String),
    /// A field that cannot be read.
    #[error(transparent)]
    CronField(#[from] InvalidField),
    /// No month has a day that matches.
    #[error("cron: expected an expression that fires, got one whose days no month has")]
    NeverFires,
}

impl Cron {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidCron> {
        if text.len() > LONGEST {
            return Err(InvalidCron::TooLong(text.len()));
        }
        let text = text.trim_ascii();
        let text = match text.starts_with('@') {
            false => text,
            true => MACROS
                .into_iter()
                .find(|(name, _)| text.eq_ignore_ascii_case(name))
                .map(|(_, meaning)| meaning)
                .ok_or_else(|| InvalidCron::Macro(text.to_owned()))?,
        };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => {
                (second, [minute, hour, day, month, weekday])
            }
            _ => return Err(InvalidCron::Fields(fields.len())),
        };
        let seconds = CronField::Second.read(second)?.values;
        let minutes = CronField::Minute.read(minute)?;
        let hours = CronField::Hour.read(hour)?;
        let days = Days {
            days: CronField::DayOfMonth.read(day)?,
            months: CronField::Month.read(month)?.values,
            weekdays: CronField::Weekday.read(weekday)?,
        };
        if days.is_empty() {
            return Err(InvalidCron::NeverFires);
        }
        Ok(Self {
            times: DayTimes { hours: hours.values, minutes: minutes.values, seconds },
            days,
            by_elapsed_time: minutes.any || hours.any,
        })
    }

    pub(super) fn by_elapsed_time(&self) -> bool {
        self.by_elapsed_time
    }

    /// The first local time that matches and is at least `from`, a time in whole seconds.
    pub(super) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let date = self.days.at_or_after(from.date())?;
        if date > from.date() {
            return Some(date.to_datetime(self.times.first()));
        }
        if let Some(time) = self.times.at_or_after(from.time()) {
            return Some(date.to_datetime(time));
        }
        let date = self.days.at_or_after(date.tomorrow().ok()?)?;
        Some(date.to_datetime(self.times.first()))
    }

    /// How many times of each day match.
    pub(super) fn times_per_day(&self) -> u64 {
        u64::from(self.times.hours.len()) * self.times_per_hour()
    }

    /// How many times of each matching hour match.
    pub(super) fn times_per_hour(&self) -> u64 {
        u64::from(self.times.minutes.len()) * u64::from(self.times.seconds.len())
    }

    pub(super) fn first_time(&self) -> Time {
        self.times.first()
    }

    pub(super) fn last_time(&self) -> Time {
        self.times.last()
    }
}

/// One second.
pub(super) const SECOND: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

impl DayTimes {
    fn first(&self) -> Time {
        self.edge(Set::first)
    }

    fn last(&self) -> Time {
        self.edge(Set::last)
    }

    fn edge(&self, of: fn(Set) -> Option<u32>) -> Time {
        let value = |set| of(set).expect("a field that was read has a value");
        time(value(self.hours), value(self.minutes), value(self.seconds))
    }

    fn at_or_after(&self, from: Time) -> Option<Time> {
        let part = |number: i8| u32::try_from(number).expect("parts of a time are not negative");
        let (hour, minute, second) = (part(from.hour()), part(from.minute()), part(from.second()));
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_or_after(second)
            {
                return Some(time(hour, minute, second));
            }
            if let Some(minute) = self.minutes.at_or_after(minute + 1) {
                return Some(time(hour, minute, self.seconds.first()?));
            }
        }
        let hour = self.hours.at_or_after(hour + 1)?;
        Some(time(hour, self.minutes.first()?, self.seconds.first()?))
    }
}

fn time(hour: u32, minute: u32, second: u32) -> Time {
    let part = |number: u32| i8::try_from(number).expect("parts of a time are below 60");
    Time::constant(part(hour), part(minute), part(second), 0)
}

impl Days {
    /// Whether no date matches. A restricted weekday comes in every month, and a day with `*` is
    /// each first of a month or more.
    fn is_empty(&self) -> bool {
        let most = |month| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let has_day = |month| {
            self.months.contains(month)
                && self.days.values.first().is_some_and(|day| day <= most(month))
        };
        self.weekdays.any && !self.days.last_day && !(1..=12).any(has_day)
    }

    /// The first matching date that is at least `from`. The work is bounded: for 29 February there
    /// are at most eight years to go, of which it looks at February only.
    fn at_or_after(&self, from: Date) -> Option<Date> {
        let (mut year, mut month) = (from.year(), from.month());
        let mut day = from.day();
        loop {
            match self.months.at_or_after(u32::try_from(month).ok()?) {
                Some(found) => {
                    let found = i8::try_from(found).ok()?;
                    if found > month {
                        (month, day) = (found, 1);
                    }
                }
                None => {
                    (year, month, day) = (year.checked_add(1)?, 1, 1);
                    continue;
                }
            }
            let first = Date::new(year, month, 1).ok()?;
            for day in day..=first.days_in_month() {
                let date = Date::new(year, month, day).ok()?;
                if self.contains(date) {
                    return Some(date);
                }
            }
            (year, month) = if month == 12 { (year.checked_add(1)?, 1) } else { (year, month + 1) };
            day = 1;
        }
    }

    /// Whether a date of a matching month matches. As in cron, a date needs to match only one of
    /// day and weekday if both are restricted, and both if one has `*`.
    fn contains(&self, date: Date) -> bool {
        #[cfg(test)]
        DATES.set(DATES.get() + 1);
        let of_month = u32::try_from(date.day()).is_ok_and(|day| self.days.values.contains(day))
            || (self.days.last_day && date.day() == date.days_in_month());
        let weekday = u32::try_from(date.weekday().to_sunday_zero_offset());
        let of_week = weekday.is_ok_and(|weekday| self.weekdays.values.contains(weekday));
        match self.days.any || self.weekdays.any {
            true => of_month && of_week,
            false => of_month || of_week,
        }
    }
}
