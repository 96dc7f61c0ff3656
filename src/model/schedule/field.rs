//! One field of a cron expression: `*`, `5`, `1-5`, `*/15`, `10-40/10`, `MON,WED`.

use std::fmt;

use super::set::Set;

/// Which field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CronField {
    /// 0 to 59; present in expressions with six fields only.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31, or `L` for the last day of the month.
    DayOfMonth,
    /// 1 to 12, or a name such as `JAN`.
    Month,
    /// 0 to 7, or a name such as `MON`; 0 and 7 are Sunday.
    Weekday,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// What a field allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) values: Set,
    /// The last day of the month, whatever its number is.
    pub(super) last_day: bool,
    /// The field has `*` (or `?`), with or without a step.
    pub(super) any: bool,
}

/// Why a field cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidField {
    /// It is not a value, a range or `*`.
    #[error("cron: expected {expected} as {field}, got {given:?}", expected = .field.form())]
    Unreadable {
        /// The field.
        field: CronField,
        /// The part that cannot be read.
        given: String,
    },
    /// A number outside of the range of the field.
    #[error("cron: expected {expected} as {field}, got {given}", expected = .field.form())]
    OutOfRange {
        /// The field.
        field: CronField,
        /// The number.
        given: String,
    },
    /// A range whose end lies before its start.
    #[error(
        "cron: expected a range that grows as {field}, got {given:?}; write two ranges with a \
         comma between them"
    )]
    Backwards {
        /// The field.
        field: CronField,
        /// The range.
        given: String,
    },
    /// A step of zero, or one that is no number, or longer than the field's largest number.
    #[error(
        "cron: expected a step from 1 to {most} as {field}, got {given:?}",
        most = .field.longest_step()
    )]
    Step {
        /// The field.
        field: CronField,
        /// The step.
        given: String,
    },
    /// A form that other programs know and delayd does not: `W`, `#`, `H`, or `L` elsewhere.
    #[error(
        "cron: {given:?} as {field} is not supported; expected numbers, names, *, ranges, steps \
         and lists, and L only as the last day of the month"
    )]
    Unsupported {
        /// The field.
        field: CronField,
        /// The part with the form.
        given: String,
    },
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "the second",
            Self::Minute => "the minute",
            Self::Hour => "the hour",
            Self::DayOfMonth => "the day of the month",
            Self::Month => "the month",
            Self::Weekday => "the weekday",
        })
    }
}

impl CronField {
    /// The smallest and the largest number.
    const fn range(self) -> (u32, u32) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::Weekday => (0, 7),
        }
    }

    /// The longest step.
    const fn longest_step(self) -> u32 {
        self.range().1
    }

    /// The accepted values, for error messages.
    const fn form(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "* or numbers from 0 to 59",
            Self::Hour => "* or numbers from 0 to 23",
            Self::DayOfMonth => "*, numbers from 1 to 31, or L",
            Self::Month => "*, numbers from 1 to 12, or names from JAN to DEC",
            Self::Weekday => "*, numbers from 0 to 7, or names from SUN to SAT",
        }
    }

    /// Reads the field: parts with commas between them.
    pub(super) fn read(self, text: &str) -> Result<Allowed, InvalidField> {
        let mut allowed = Allowed { values: Set::EMPTY, last_day: false, any: false };
        for part in text.split(',') {
            self.read_part(part, &mut allowed)?;
        }
        Ok(allowed)
    }

    fn read_part(self, part: &str, allowed: &mut Allowed) -> Result<(), InvalidField> {
        let (least, most) = self.range();
        if self == Self::DayOfMonth && part.eq_ignore_ascii_case("L") {
            allowed.last_day = true;
            return Ok(());
        }
        let (span, step) = match part.split_once('/') {
            None => (part, None),
            Some((span, step)) => (span, Some(self.step(step)?)),
        };
        let is_any = span == "*" || (span == "?" && self.is_day());
        let (from, to) = if is_any {
            allowed.any = true;
            // Sunday stands once in the range.
            (least, if self == Self::Weekday { 6 } else { most })
        } else {
            match span.split_once('-') {
                // `5/15` counts from 5 to the end of the range.
                None => {
                    let from = self.number(span)?;
                    (from, if step.is_some() { self.end(from) } else { from })
                }
                Some((from, to)) => {
                    let (from, end) = (self.number(from)?, self.number(to)?);
                    // In `FRI-SUN`, Sunday is the day after Saturday.
                    let is_sunday = self == Self::Weekday && end == 0 && from > 0;
                    (from, if is_sunday { 7 } else { end })
                }
            }
        };
        if from > to {
            return Err(InvalidField::Backwards { field: self, given: span.to_owned() });
        }
        for number in (from..=to).step_by(step.unwrap_or(1) as usize) {
            let is_sunday = self == Self::Weekday && number == 7;
            allowed.values.insert(if is_sunday { 0 } else { number });
        }
        Ok(())
    }

    const fn is_day(self) -> bool {
        matches!(self, Self::DayOfMonth | Self::Weekday)
    }

    /// The end of a range without an end.
    const fn end(self, from: u32) -> u32 {
        match self {
            Self::Weekday if from < 7 => 6,
            _ => self.range().1,
        }
    }

    fn step(self, text: &str) -> Result<u32, InvalidField> {
        digits(text)
            .filter(|step| (1..=self.longest_step()).contains(step))
            .ok_or_else(|| InvalidField::Step { field: self, given: text.to_owned() })
    }

    fn number(self, text: &str) -> Result<u32, InvalidField> {
        let (least, most) = self.range();
        if let Some(number) = digits(text) {
            return match (least..=most).contains(&number) {
                true => Ok(number),
                false => Err(InvalidField::OutOfRange { field: self, given: text.to_owned() }),
            };
        }
        let names: &[&str] = match self {
            Self::Month => &MONTHS,
            Self::Weekday => &WEEKDAYS,
            _ => &[],
        };
        if let Some(index) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(least + u32::try_from(index).expect("there are at most twelve names"));
        }
        let given = text.to_owned();
        let is_foreign = text.contains(['#', '?'])
            || ["L", "W", "LW", "H"].iter().any(|form| text.eq_ignore_ascii_case(form))
            || text
                .strip_suffix(['L', 'W', 'l', 'w'])
                .is_some_and(|rest| digits(rest).is_some() || names.contains(&rest));
        Err(match is_foreign {
            true => InvalidField::Unsupported { field: self, given },
            false => InvalidField::Unreadable { field: self, given },
        })
    }
}

/// A number of one to four digits, without a sign.
fn digits(text: &str) -> Option<u32> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
