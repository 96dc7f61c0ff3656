//! Nominal moments compared with a slow walk over every second around clock changes, and properties
//! that hold for all rules.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::cron::Cron;
use super::{LocalCursor, Nominal, Recurrence, Rule};
use crate::model::clock::UnixMillis;

/// Zones with changes of an hour, of half an hour, at midnight and of a whole day.
const ZONES: &[&str] = &[
    "America/New_York",
    "America/Havana",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Europe/Dublin",
    "UTC",
];

/// Moments near clock changes: where a walk begins.
const BEGINS: &[&str] = &[
    "2026-03-08T04:00Z",
    "2026-11-01T02:00Z",
    "2026-03-08T02:00Z",
    "2026-10-03T12:00Z",
    "2026-04-04T12:00Z",
    "2026-03-28T22:00Z",
    "2026-10-24T22:00Z",
    "2026-04-23T20:00Z",
    "2026-10-29T18:00Z",
    "2026-02-14T23:00Z",
    "2026-03-21T23:00Z",
    "2011-12-30T06:00Z",
    "2028-02-28T20:00Z",
];

/// How many minutes a slow walk takes.
const MINUTES: i64 = 36 * 60;

fn zone(name: &str) -> TimeZone {
    jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap()
}

fn cron(cron: &str, zone: &str) -> Recurrence {
    Recurrence::parse(&Rule { cron: Some(cron), zone, ..every(Duration::ZERO) }).unwrap()
}

fn every<'a>(every: Duration) -> Rule<'a> {
    Rule {
        cron: None,
        every: (!every.is_zero()).then_some(every),
        zone: "UTC",
        start: None,
        end: None,
        anchor: UnixMillis(1_795_234_567_042),
    }
}

/// Every minute of a day and a half is looked at, with the offset of that minute.
fn slow(rule: &str, name: &str, begin: Timestamp) -> Vec<Nominal> {
    let (zone, cron) = (zone(name), Cron::parse(rule).unwrap());
    let matches = |local: DateTime| cron.at_or_after(local) == Some(local);
    let mut found = Vec::new();
    let mut seen = Vec::new();
    let mut previous: Option<DateTime> = None;
    // Two days before the begin, so that the second pass of a repeated time is known as one.
    for minute in -2 * 1440..MINUTES {
        let moment = begin + jiff::SignedDuration::from_mins(minute);
        let local = zone.to_datetime(moment);
        let second_pass = seen.contains(&local);
        let is_skipped = |previous: DateTime| {
            let mut skipped = previous + jiff::SignedDuration::from_mins(1);
            while skipped < local {
                if matches(skipped) {
                    return true;
                }
                skipped += jiff::SignedDuration::from_mins(1);
            }
            false
        };
        let fires = match cron.by_elapsed_time() {
            true => matches(local),
            false => (matches(local) && !second_pass) || previous.is_some_and(is_skipped),
        };
        if fires && minute > 0 {
            let moment = UnixMillis(moment.as_millisecond());
            found.push(Nominal { cursor: LocalCursor { local, second_pass }, moment });
        }
        seen.push(local);
        // The longest change is two hours, except for the skipped day.
        if seen.len() > 130 {
            seen.remove(0);
        }
        previous = Some(local);
    }
    found
}

fn field(least: u32, most: u32, any: &'static str) -> impl Strategy<Value = String> {
    let number = least..=most;
    prop_oneof![
        2 => Just(any.to_owned()),
        3 => number.clone().prop_map(|number| number.to_string()),
        2 => (number.clone(), number.clone())
            .prop_map(|(one, other)| format!("{}-{}", one.min(other), one.max(other))),
        1 => (1..=(most - least)).prop_map(|step| format!("*/{step}")),
        1 => (number.clone(), number.clone(), number)
            .prop_map(|(one, other, third)| format!("{one},{other},{third}")),
        1 => (least..=most, 1..=(most - least)).prop_map(|(from, step)| format!("{from}/{step}")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let weekday = prop_oneof![3 => Just("*".to_owned()), 1 => field(0, 7, "?")];
    let day =
        prop_oneof![3 => Just("*".to_owned()), 1 => field(1, 28, "?"), 1 => Just("L".to_owned())];
    (field(0, 59, "*"), field(0, 4, "*"), day, weekday)
        .prop_map(|(minute, hour, day, weekday)| format!("{minute} {hour} {day} * {weekday}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_over_every_minute_finds_the_same_moments(
        rule in expression(),
        zone in prop::sample::select(ZONES),
        begin in prop::sample::select(BEGINS),
    ) {
        let begin: Timestamp = begin.parse().unwrap();
        let end = begin.as_millisecond() + MINUTES * 60_000;
        let recurrence = cron(&rule, zone);
        let mut found = Vec::new();
        let mut next = recurrence.first_after(UnixMillis(begin.as_millisecond()));
        while let Some(nominal) = next.filter(|nominal| nominal.moment.0 < end) {
            found.push(nominal);
            next = recurrence.next_after(&nominal.cursor);
        }
        prop_assert_eq!(&found, &slow(&rule, zone, begin));
        // How many are missed, seen from later ones.
        if let Some(first) = found.first() {
            for index in [found.len() / 2, found.len() - 1] {
                let missed = recurrence.missed(&first.cursor, found[index].moment);
                prop_assert_eq!(missed, index as u64);
            }
        }
    }

    #[test]
    fn a_distance_has_no_drift(
        millis in 1_000_u64..=366 * 86_400_000,
        past in 0_u64..100 * 366 * 86_400_000,
    ) {
        let rule = every(Duration::from_millis(millis));
        let recurrence = Recurrence::parse(&rule).unwrap();
        let now = rule.anchor + Duration::from_millis(past);
        let next = recurrence.first_after(now).unwrap();
        let steps = past / millis + 1;
        prop_assert_eq!(next.moment, rule.anchor + Duration::from_millis(steps * millis));
        prop_assert_eq!(recurrence.resolve(&next.cursor), next.moment);
        let first = recurrence.first_after(rule.anchor).unwrap();
        prop_assert_eq!(recurrence.missed(&first.cursor, next.moment), steps - 1);
        let (after, passed) = recurrence.advance(&first.cursor, now);
        let expected = next.moment.max(first.moment + Duration::from_millis(millis));
        prop_assert_eq!(after.unwrap().moment, expected);
        prop_assert_eq!(passed, (steps - 1).saturating_sub(1));
    }
}
