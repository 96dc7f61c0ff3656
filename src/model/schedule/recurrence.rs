//! The rule of a schedule, and its nominal moments.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::cron::{Cron, InvalidCron};
use super::cursor::LocalCursor;
use super::walk::{self, NominalMoment, Walk};
use crate::model::clock::UnixMillis;
use crate::model::zone::{UnknownZone, Zone};

/// The shortest and the longest distance of `every`.
const EVERY: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(366 * 86_400);

/// What a caller asked for, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// A cron expression. Either this or `every` is given.
    pub cron: Option<&'a str>,
    /// A distance, from a second to 366 days.
    pub every: Option<Duration>,
    /// The zone in which `cron` is meant: a name, or an offset.
    pub zone: &'a str,
    /// No nominal moment lies before it.
    pub start: Option<UnixMillis>,
    /// No nominal moment lies after it.
    pub end: Option<UnixMillis>,
    /// From when `every` counts if there is no `start`: when the store accepted the rule.
    pub anchor: UnixMillis,
}

/// Why a rule cannot be used. The text is the sentence for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// Neither or both of `cron` and `every`.
    #[error("cron: expected either cron or every, got {0}")]
    OneOf(&'static str),
    /// An invalid cron expression.
    #[error(transparent)]
    Cron(#[from] InvalidCron),
    /// A distance that is too short or too long.
    #[error("every: expected 1s to 366d, got {} ms", .0.as_millis())]
    Every(Duration),
    /// An unknown zone.
    #[error("zone: {0}")]
    Zone(#[from] UnknownZone),
    /// `end` before `start`.
    #[error("end: expected a moment that is not before start")]
    EndBeforeStart,
}

/// The nominal moments of a rule.
#[derive(Clone, Debug)]
pub struct Recurrence {
    steps: Steps,
    zone: TimeZone,
    /// The name of the zone that the local times of cursors are in.
    zone_name: Box<str>,
    start: Option<UnixMillis>,
    end: Option<UnixMillis>,
}

#[derive(Clone, Debug)]
enum Steps {
    Cron(Walk),
    Every { from: UnixMillis, millis: i64 },
}

/// A nominal moment, and its local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nominal {
    /// The nominal local time, which identifies the occurrence.
    pub cursor: LocalCursor,
    /// Its moment by the zone data of this program.
    pub moment: UnixMillis,
}

/// Nominal moments that have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The oldest that is kept.
    pub first: Nominal,
    /// How many are kept.
    pub count: u64,
    /// How many older ones are dropped.
    pub dropped: u64,
}

impl Recurrence {
    /// Reads a rule.
    pub fn parse(rule: &Rule<'_>) -> Result<Self, InvalidRule> {
        let zone = Zone::named(rule.zone)?.time_zone().clone();
        let steps = match (rule.cron, rule.every) {
            (Some(cron), None) => {
                Steps::Cron(Walk { cron: Cron::parse(cron)?, zone: zone.clone() })
            }
            (None, Some(every)) => {
                let millis = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
                if !EVERY.contains(&every) {
                    return Err(InvalidRule::Every(every));
                }
                Steps::Every { from: rule.start.unwrap_or(rule.anchor), millis }
            }
            (None, None) => return Err(InvalidRule::OneOf("neither")),
            (Some(_), Some(_)) => return Err(InvalidRule::OneOf("both")),
        };
        if rule.start.zip(rule.end).is_some_and(|(start, end)| end < start) {
            return Err(InvalidRule::EndBeforeStart);
        }
        let Rule { start, end, .. } = *rule;
        let zone_name = match steps {
            Steps::Cron(_) => rule.zone,
            Steps::Every { .. } => "UTC",
        };
        Ok(Self { steps, zone, zone_name: zone_name.into(), start, end })
    }

    /// The first nominal moment that is later than `now`. None if there is no further one.
    pub fn first_after(&self, now: UnixMillis) -> Option<Nominal> {
        let floor = self.start.map_or(now, |start| now.max(UnixMillis(start.0.saturating_sub(1))));
        let found = match &self.steps {
            Steps::Cron(walk) => walk.after_moment(timestamp(floor)).map(nominal),
            Steps::Every { from, millis } => step_after(*from, *millis, floor),
        };
        self.within(found)
    }

    /// The next nominal moment after the cursor, whether it has passed or not. None if there is no
    /// further one. Its local time is always later than that of the cursor (or in a later pass).
    pub fn next_after(&self, cursor: &LocalCursor) -> Option<Nominal> {
        self.next_after_both(cursor, UnixMillis(i64::MIN))
    }

    /// The nominal moment that follows the cursor if those that have passed at `now` are given up,
    /// and how many those are.
    pub fn advance(&self, cursor: &LocalCursor, now: UnixMillis) -> (Option<Nominal>, u64) {
        (self.next_after_both(cursor, now), self.missed(cursor, now))
    }

    fn next_after_both(&self, cursor: &LocalCursor, now: UnixMillis) -> Option<Nominal> {
        let floor = self.start.map_or(now, |start| now.max(UnixMillis(start.0.saturating_sub(1))));
        let found = match &self.steps {
            Steps::Cron(walk) => walk.after_cursor(cursor, timestamp(floor)).map(nominal),
            Steps::Every { from, millis } => {
                step_after(*from, *millis, self.resolve(cursor).max(floor))
            }
        };
        self.within(found)
    }

    fn within(&self, found: Option<Nominal>) -> Option<Nominal> {
        found.filter(|found| self.end.is_none_or(|end| found.moment <= end))
    }

    /// The text that names the occurrence of a cursor: its local time and the zone's name. Without
    /// the zone, a schedule whose zone is changed would use some names twice.
    pub fn named(&self, cursor: &LocalCursor) -> String {
        format!("{cursor}[{}]", self.zone_name)
    }

    /// The cursor that [`Self::named`] has named.
    pub fn cursor_of(&self, name: &str) -> Option<LocalCursor> {
        let (cursor, _) = name.strip_suffix(']')?.split_once('[')?;
        cursor.parse().ok()
    }

    /// The moment of a cursor by the zone data of this program.
    pub fn resolve(&self, cursor: &LocalCursor) -> UnixMillis {
        let moment = match &self.steps {
            Steps::Cron(walk) => walk::resolve(&walk.zone, cursor),
            Steps::Every { .. } => walk::resolve(&TimeZone::UTC, cursor),
        };
        UnixMillis(moment.as_millisecond())
    }

    /// How many nominal moments are later than the cursor and not later than `now`.
    pub fn missed(&self, cursor: &LocalCursor, now: UnixMillis) -> u64 {
        self.skip(cursor, now, u64::MAX).1
    }

    /// The newest `keep` nominal moments that are later than the cursor and not later than `now`.
    /// None if there are none.
    pub fn backlog(&self, cursor: &LocalCursor, now: UnixMillis, keep: u64) -> Option<Backlog> {
        let missed = self.missed(cursor, now);
        let count = missed.min(keep);
        let dropped = missed - count;
        let first = self.next_after(&self.skip(cursor, now, dropped).0)?;
        (count > 0).then_some(Backlog { first, count, dropped })
    }

    /// Passes over at most `most` nominal moments that are not later than `now`: where it arrives,
    /// and how many it passed. Days and hours without a clock change are counted as a whole.
    fn skip(&self, cursor: &LocalCursor, now: UnixMillis, most: u64) -> (LocalCursor, u64) {
        let now = self.end.map_or(now, |end| now.min(end));
        let (mut at, mut passed) = (*cursor, 0);
        while passed < most
            && let Some(next) = self.next_after(&at).filter(|next| next.moment <= now)
        {
            let many = self.many_from(&next, now, most - passed);
            let (last, count) = many.unwrap_or((next.cursor, 1));
            (at, passed) = (last, passed + count);
        }
        (at, passed)
    }

    /// Several nominal moments from `first` on, none of them later than `now`: the last one, and
    /// how many they are, at most `most`.
    fn many_from(&self, first: &Nominal, now: UnixMillis, most: u64) -> Option<(LocalCursor, u64)> {
        match &self.steps {
            Steps::Cron(walk) => {
                let found = (first.cursor, timestamp(first.moment));
                let fits = |((_, moment), count): &(NominalMoment, u64)| {
                    *count <= most && moment.as_millisecond() <= now.0
                };
                let block = walk.blocks(&found).into_iter().flatten().find(fits)?;
                Some((block.0.0, block.1))
            }
            Steps::Every { millis, .. } => {
                let further = (now.0.saturating_sub(first.moment.0)) / millis;
                let further = further.min(i64::try_from(most - 1).unwrap_or(i64::MAX));
                let last = first.moment.0.checked_add(further.checked_mul(*millis)?)?;
                let count = u64::try_from(further).ok()? + 1;
                Some((at(UnixMillis(last))?.cursor, count))
            }
        }
    }

    /// The moment as RFC 3339 with the offset of the zone, `2026-03-29T03:00:00+02:00`. After the
    /// year 9999, the number.
    pub fn shown(&self, moment: UnixMillis) -> String {
        match Timestamp::from_millisecond(moment.0) {
            Ok(timestamp) => {
                timestamp.display_with_offset(self.zone.to_offset(timestamp)).to_string()
            }
            Err(_) => moment.to_string(),
        }
    }
}

/// The moment, or the first or last that jiff can hold.
fn timestamp(moment: UnixMillis) -> Timestamp {
    let edge = if moment.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(moment.0).unwrap_or(edge)
}

fn nominal((cursor, moment): NominalMoment) -> Nominal {
    Nominal { cursor, moment: UnixMillis(moment.as_millisecond()) }
}

/// The first of `from`, `from + millis`, … that is later than `floor`.
fn step_after(from: UnixMillis, millis: i64, floor: UnixMillis) -> Option<Nominal> {
    let steps = (floor.0.saturating_sub(from.0)).div_euclid(millis).saturating_add(1).max(0);
    at(UnixMillis(from.0.checked_add(steps.checked_mul(millis)?)?))
}

/// A nominal moment in UTC.
fn at(moment: UnixMillis) -> Option<Nominal> {
    let timestamp = Timestamp::from_millisecond(moment.0).ok()?;
    let local: DateTime = Offset::UTC.to_datetime(timestamp);
    Some(Nominal { cursor: LocalCursor { local, second_pass: false }, moment })
}
