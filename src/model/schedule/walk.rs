//! From local times that match a cron expression to moments, over clock changes.

use jiff::civil::{DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::cron::{Cron, SECOND};
use super::cursor::LocalCursor;

/// A nominal moment in whole seconds.
pub(super) type NominalMoment = (LocalCursor, Timestamp);

/// The moments of a cron expression in a zone.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) cron: Cron,
    pub(super) zone: TimeZone,
}

impl Walk {
    /// The first moment that is later than `now`.
    pub(super) fn after_moment(&self, now: Timestamp) -> Option<NominalMoment> {
        match self.cron.by_elapsed_time() {
            true => self.after_elapsed(now),
            false => self.after_local(self.zone.to_datetime(now), now),
        }
    }

    /// The first moment that is later than the cursor, and than `floor`.
    pub(super) fn after_cursor(
        &self,
        cursor: &LocalCursor,
        floor: Timestamp,
    ) -> Option<NominalMoment> {
        if self.cron.by_elapsed_time() {
            return self.after_elapsed(resolve(&self.zone, cursor).max(floor));
        }
        // A fixed time is planned in the first pass only. After a second pass, local times that
        // are greater than the cursor may lie before it.
        let floor = match cursor.second_pass {
            true => resolve(&self.zone, cursor).max(floor),
            false => floor,
        };
        self.after_local(cursor.local.max(self.zone.to_datetime(floor)), floor)
    }

    /// For fixed times: the first one that is later than `local` as a local time, and whose moment
    /// is later than `floor`.
    fn after_local(&self, mut local: DateTime, floor: Timestamp) -> Option<NominalMoment> {
        loop {
            local = self.cron.at_or_after(whole(local).checked_add(SECOND).ok()?)?;
            let ambiguous = self.zone.to_ambiguous_timestamp(local);
            let found = match ambiguous.offset() {
                AmbiguousOffset::Unambiguous { offset } => {
                    (local, offset.to_timestamp(local).ok()?)
                }
                AmbiguousOffset::Fold { before, .. } => (local, before.to_timestamp(local).ok()?),
                // All skipped times of a gap, and one at its end, are one moment.
                AmbiguousOffset::Gap { before, after } => {
                    let end = end_of_gap(&self.zone, local, before, after)?;
                    (after.to_datetime(end), end)
                }
            };
            if found.1 > floor {
                return Some((LocalCursor { local: found.0, second_pass: false }, found.1));
            }
        }
    }

    /// For `*` in hour or minute: the first moment after `now` whose local time matches. Between
    /// two clock changes, local time runs as fast as elapsed time.
    fn after_elapsed(&self, now: Timestamp) -> Option<NominalMoment> {
        let mut from = Timestamp::from_second(now.as_millisecond().div_euclid(1000) + 1).ok()?;
        loop {
            let offset = self.zone.to_offset(from);
            let local = self.cron.at_or_after(offset.to_datetime(from))?;
            let moment = offset.to_timestamp(local).ok()?;
            match self.zone.following(from).next() {
                Some(change) if change.timestamp() <= moment => from = change.timestamp(),
                _ => {
                    let second_pass = matches!(
                        self.zone.to_ambiguous_timestamp(local).offset(),
                        AmbiguousOffset::Fold { after, .. } if after == offset
                    );
                    return Some((LocalCursor { local, second_pass }, moment));
                }
            }
        }
    }

    /// The moments of the day, and those of the hour, that begin with this one: the last of them,
    /// and how many they are. None unless it is the first, and no clock change is near.
    pub(super) fn blocks(
        &self,
        (cursor, moment): &NominalMoment,
    ) -> [Option<(NominalMoment, u64)>; 2] {
        let (date, time) = (cursor.local.date(), cursor.local.time());
        let (first, last) = (self.cron.first_time(), self.cron.last_time());
        let offset = self.zone.to_offset(*moment);
        let is_unchanged = |begin: Time, length: SignedDuration| {
            let begin = offset.to_timestamp(date.to_datetime(begin)).ok()?;
            let change = self.zone.following(begin.checked_sub(SECOND).ok()?).next();
            let end = begin.checked_add(length).ok()?;
            change.is_none_or(|change| change.timestamp() > end).then_some(())
        };
        let until = |time: Time, count: u64| {
            let local = date.to_datetime(time);
            let cursor = LocalCursor { local, second_pass: cursor.second_pass };
            Some(((cursor, offset.to_timestamp(local).ok()?), count))
        };
        let hour = |minute, second| Time::constant(time.hour(), minute, second, 0);
        if time != hour(first.minute(), first.second()) {
            return [None, None];
        }
        let of_hour = is_unchanged(hour(0, 0), HOUR)
            .and_then(|()| until(hour(last.minute(), last.second()), self.cron.times_per_hour()));
        let of_day = (time == first)
            .then(|| is_unchanged(Time::midnight(), DAY))
            .flatten()
            .and_then(|()| until(last, self.cron.times_per_day()));
        [of_day, of_hour]
    }
}

/// An hour and a day without a clock change.
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Without the fraction of a second.
fn whole(local: DateTime) -> DateTime {
    let Ok(local) = local.with().subsec_nanosecond(0).build() else { return local };
    local
}

/// The moment of a cursor in a zone. For a local time that is skipped, the end of the gap.
pub(super) fn resolve(zone: &TimeZone, cursor: &LocalCursor) -> Timestamp {
    let local = cursor.local;
    let at = |offset: Offset| offset.to_timestamp(local).ok();
    let moment = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => at(offset),
        AmbiguousOffset::Fold { before, after } => {
            at(if cursor.second_pass { after } else { before })
        }
        AmbiguousOffset::Gap { before, after } => end_of_gap(zone, local, before, after),
    };
    // Only the first and the last day that can be written have local times without a moment.
    moment.unwrap_or(if local.year() < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// The moment of the clock change that skips a local time.
fn end_of_gap(
    zone: &TimeZone,
    local: DateTime,
    before: Offset,
    after: Offset,
) -> Option<Timestamp> {
    // The change lies between the moments that the local time has with the two offsets.
    let (early, late) = (after.to_timestamp(local).ok()?, before.to_timestamp(local).ok()?);
    let mut changes = zone.following(early).map(|change| (change.timestamp(), change.offset()));
    let change = changes.find(|(moment, offset)| *offset == after || *moment > late)?.0;
    Some(change.min(late))
}
