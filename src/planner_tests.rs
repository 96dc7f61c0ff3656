use super::*;
use crate::model::task::{Destination, Options, StoreId};

/// 2026-11-25T00:00:00Z.
const START: UnixMillis = UnixMillis(1_795_564_800_000);

fn at(seconds: i64) -> UnixMillis {
    UnixMillis(START.0 + seconds * 1_000)
}

/// A schedule of every minute, last planned for `cursor` seconds after the start.
fn schedule(misfire: MisfireRule, cursor: Option<&str>, since: i64, now: i64) -> Schedule {
    let definition = Definition {
        cron: Some("* * * * *".into()),
        every_ms: None,
        zone: "UTC".into(),
        start: None,
        end: Some(at(86_400)),
        misfire,
        overlap: Overlap::Skip,
        destination: "sn".parse::<Destination>().unwrap(),
        options: Options::default(),
        content: "{}".into(),
    };
    Schedule {
        name: "a".parse().unwrap(),
        definition: definition.text(),
        revision: 7,
        set: START,
        since: at(since),
        cursor: cursor.map(Into::into),
        before: None,
        paused: None,
        look: None,
        origin: None,
        recent: Vec::new(),
        now: at(now),
    }
}

fn planned(schedule: &Schedule) -> Plan {
    let topic = TopicEntry { topic: "t".parse().unwrap(), shards: 1 };
    plan_of(&topic, schedule).unwrap()
}

/// The moment in seconds, the missed moments, and the new `since`.
fn next_of(plan: &Plan) -> (i64, u64, i64) {
    let next = plan.next.as_ref().unwrap();
    let occurrence = next.task.options.schedule.as_ref().unwrap();
    let seconds = |moment: UnixMillis| (moment.0 - START.0) / 1_000;
    (seconds(occurrence.moment), occurrence.missed, seconds(next.since))
}

#[test]
fn the_first_moment_is_after_the_set() {
    assert_eq!(next_of(&planned(&schedule(MisfireRule::Once, None, 0, 0))), (60, 0, 0));
}

#[test]
fn one_occurrence_stands_for_all_missed_moments() {
    let late = schedule(MisfireRule::Once, Some("2026-11-25T00:01:00[UTC]"), 0, 330);
    let plan = planned(&late);
    assert_eq!(next_of(&plan), (120, 3, 330), "120, and 180, 240 and 300 were missed");
    assert_eq!(plan.missed, Some((4, at(330))), "if that of 60 waits, it stands for four");
}

#[test]
fn all_missed_moments_are_made_up_for_the_oldest_first() {
    let late = schedule(MisfireRule::All, Some("2026-11-25T00:01:00[UTC]"), 0, 330);
    let plan = planned(&late);
    assert_eq!((next_of(&plan), plan.missed), ((120, 0, 0), None));
    let later = schedule(MisfireRule::All, Some("2026-11-25T00:01:00[UTC]"), 0, 66_000);
    let newest = 66_000 - 999 * 60;
    assert_eq!(next_of(&planned(&later)), (newest, 99, 0), "only the newest 1,000");
}

#[test]
fn a_moment_that_was_counted_as_missed_is_not_planned() {
    let counted = schedule(MisfireRule::Once, Some("2026-11-25T00:01:00[UTC]"), 330, 340);
    let plan = planned(&counted);
    assert_eq!((next_of(&plan), plan.missed), ((360, 0, 330), None));
}

#[test]
fn a_schedule_ends() {
    let over = schedule(MisfireRule::Once, Some("2026-11-26T00:00:00[UTC]"), 0, 90_000);
    assert_eq!(planned(&over).next, None);
}

#[test]
fn a_waiting_occurrence_is_looked_at_before_the_next_moment() {
    let look = |now: i64| {
        let plan = planned(&schedule(MisfireRule::Once, Some("2026-11-25T00:01:00[UTC]"), 0, now));
        plan.look_again.since(at(now)).as_millis()
    };
    assert_eq!((look(80), look(118), look(119)), (10_000, 500, 500));
}

/// A schedule whose zone is changed from Berlin to London fires at 02:30 of both on one day.
#[test]
fn a_local_time_of_another_zone_is_another_occurrence() {
    let id_in = |zone: &str| {
        let mut schedule = schedule(MisfireRule::Once, None, 0, 0);
        let mut definition = Definition::read(&schedule.definition).unwrap();
        (definition.cron, definition.zone) = (Some("30 2 * * *".into()), zone.into());
        schedule.definition = definition.text();
        let options = planned(&schedule).next.unwrap().task.options;
        options.webhook_id(StoreId(1), &"t".parse().unwrap(), TaskId(5))
    };
    assert_ne!(id_in("Europe/Berlin"), id_in("Europe/London"));
    assert_eq!(id_in("Europe/Berlin"), id_in("Europe/Berlin"));
}

/// A planner with old zone data, in which the local time that was planned last is still to come,
/// plans the next local time, and not the same one again.
#[test]
fn a_planner_with_other_zone_data_plans_no_local_time_twice() {
    let mut late = schedule(MisfireRule::Once, Some("2026-11-25T00:05:00[UTC]"), 0, 60);
    assert_eq!(next_of(&planned(&late)).0, 360, "after the cursor, though 120 is still to come");
    // The other way round: moments up to `since` were passed over.
    late = schedule(MisfireRule::Once, Some("2026-11-25T00:01:00[UTC]"), 240, 245);
    assert_eq!(next_of(&planned(&late)).0, 300);
}

/// The plan of a moment that a failover forgot has the webhook-id of the forgotten one, even if it
/// is made later and by another rule for what was missed.
#[test]
fn a_plan_that_is_made_again_later_names_the_same_occurrence() {
    let id_at = |now: i64| {
        let late = schedule(MisfireRule::Once, Some("2026-11-25T00:01:00[UTC]"), 0, now);
        let options = planned(&late).next.unwrap().task.options;
        options.webhook_id(StoreId(1), &"t".parse().unwrap(), TaskId(now as u64))
    };
    assert_eq!((id_at(61), id_at(300)), (id_at(130), id_at(130)));
}

/// With the clock set back, the planner waits until it has caught up: no local time fires twice.
#[test]
fn a_clock_that_is_set_back_repeats_nothing() {
    let back = schedule(MisfireRule::All, Some("2026-11-25T01:00:00[UTC]"), 0, 60);
    let plan = planned(&back);
    assert_eq!((next_of(&plan).0, plan.missed), (3_660, None));
}
