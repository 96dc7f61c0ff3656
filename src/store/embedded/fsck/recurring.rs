//! Checks that each recurring schedule can be read, and that a planner looks at it unless it is
//! paused.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};

use super::remedy::Remedy;
use super::{PAGE, Page, Stage, read_lane, read_text};
use crate::model::clock::UnixMillis;
use crate::model::task::ScheduleName;
use crate::store::Flaw;
use crate::store::embedded::schedules::{self, Stored};
use crate::store::embedded::sql::recurring::{self as sql, checked};
use crate::store::embedded::sql::{only, topic};
use crate::store::embedded::values::rows;

pub(super) fn look(
    db: &Connection,
    after: &(String, i64, String),
    now: UnixMillis,
) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    if !schedules::exist(db)? {
        return Ok(page);
    }
    let mut select = db.prepare_cached(checked::SQL)?;
    let mut found = select.query((&after.0, after.1, &after.2, rows(PAGE)))?;
    let (mut count, mut last) = (0, after.clone());
    while let Some(row) = found.next()? {
        let read = |column| Ok::<_, rusqlite::Error>(read_text(row, column)?.unwrap_or_default());
        (count, last) =
            (count + 1, (read(checked::topic)?, row.get(checked::shard)?, read(checked::name)?));
        let lane = read_lane(row, (checked::topic, checked::shard))?;
        let name = last.2.parse::<ScheduleName>().ok();
        let state = serde_json::from_str::<Stored>(&read(checked::state)?).ok();
        let (Some(lane), Some(name), Some(state)) = (lane.as_ref(), name, state) else {
            page.find(Flaw::UnreadableSchedule, lane.as_ref(), &last.2, Vec::new());
            continue;
        };
        let shards: Option<i64> =
            db.prepare_cached(topic::SHARDS)?.query_row([&last.0], only).optional()?;
        let shards = shards.and_then(|shards| u16::try_from(shards).ok());
        if shards
            .filter(|shards| *shards > 0)
            .is_some_and(|shards| name.lane_in(&lane.topic, shards) != *lane)
        {
            page.find(Flaw::ScheduleMisplaced, Some(lane), &name, Vec::new());
        }
        let set_look = |look: Option<UnixMillis>| {
            let key = [Value::from(last.0.clone()), last.1.into(), last.2.clone().into()];
            let look = look.map_or(Value::Null, |look| look.0.into());
            vec![Remedy::new(sql::SET_LOOK, [vec![look], key.to_vec()].concat())]
        };
        let look: Option<UnixMillis> = row.get(checked::look)?;
        match (state.is_paused(), look) {
            (false, None) => {
                page.find(Flaw::ScheduleWithoutPlan, Some(lane), &name, set_look(Some(now)));
            }
            (true, Some(_)) => {
                page.find(Flaw::PlanWithoutSchedule, Some(lane), &name, set_look(None));
            }
            _ => {}
        }
    }
    page.rest = (count == PAGE).then_some(Stage::Recurring { after: last });
    Ok(page)
}
