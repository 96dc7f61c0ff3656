//! Checks that each recurring schedule can be read, and that a planner looks at it unless it is
//! paused.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};

use super::{CheckPage, PAGE, Repair, read_lane, read_text, walk};
use crate::model::clock::UnixMillis;
use crate::model::task::ScheduleName;
use crate::store::Flaw;
use crate::store::embedded::schedules::{self, PlanState};
use crate::store::embedded::sql::recurring::{self as sql, checked};
use crate::store::embedded::sql::{only, topic};

pub(super) fn look(
    db: &Connection,
    after: &[Value],
    now: UnixMillis,
) -> rusqlite::Result<CheckPage> {
    if !schedules::exist(db)? {
        return Ok(CheckPage::default());
    }
    let first = ["".to_owned().into(), Value::Null, Value::Null];
    let after = if after.is_empty() { &first[..] } else { after };
    walk(db, checked::SQL, after, PAGE, |page, row| {
        let read = |column| Ok::<_, rusqlite::Error>(read_text(row, column)?.unwrap_or_default());
        let (topic, subject) = (read(checked::topic)?, read(checked::name)?);
        let shard: i64 = row.get(checked::shard)?;
        let key = vec![Value::from(topic.clone()), shard.into(), subject.clone().into()];
        let lane = read_lane(row, (checked::topic, checked::shard))?;
        let name = subject.parse::<ScheduleName>().ok();
        let state = serde_json::from_str::<PlanState>(&read(checked::state)?).ok();
        let (Some(home), Some(name), Some(state)) = (&lane, name, state) else {
            page.find(Flaw::UnreadableSchedule, lane, subject, false);
            return Ok(key);
        };
        let shards: Option<i64> =
            db.prepare_cached(topic::SHARDS)?.query_row([&topic], only).optional()?;
        let shards = shards.and_then(|shards| u16::try_from(shards).ok()).filter(|n| *n > 0);
        if shards.is_some_and(|shards| name.lane_in(&home.topic, shards) != *home) {
            page.find(Flaw::ScheduleMisplaced, lane.clone(), &name, false);
        }
        let (flaw, look) = match (state.is_paused(), row.get(checked::look)?) {
            (false, None::<i64>) => (Flaw::ScheduleWithoutPlan, Value::from(now.0)),
            (true, Some(_)) => (Flaw::PlanWithoutSchedule, Value::Null),
            _ => return Ok(key),
        };
        page.find(flaw, lane, &name, true);
        page.repairs.push(Repair::Row(sql::SET_LOOK, [vec![look], key.clone()].concat()));
        Ok(key)
    })
}
