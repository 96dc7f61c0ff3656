//! Checks topics, lanes, destinations, and the counter of ids.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};

use super::remedy::Remedy;
use super::{Page, is_moment, read_lane, read_text};
use crate::model::task::{Destination, Lane, Topic, TopicPolicy};
use crate::store::embedded::schedules;
use crate::store::embedded::sql::destination::checked as destination;
use crate::store::embedded::sql::recurring::lanes as recurring;
use crate::store::embedded::sql::topic::checked as topic;
use crate::store::embedded::sql::{self, only};
use crate::store::{Flaw, TopicEntry};

pub(super) fn look(db: &Connection) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    look_at_topics(db, &mut page)?;
    look_at_destinations(db, &mut page)?;
    look_at_counter(db, &mut page)?;
    Ok(page)
}

fn look_at_topics(db: &Connection, page: &mut Page) -> rusqlite::Result<()> {
    let mut lanes: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut select = db.prepare_cached(sql::lane::all::SQL)?;
    let mut found = select.query([])?;
    while let Some(row) = found.next()? {
        let topic = read_text(row, sql::lane::all::topic)?.unwrap_or_default();
        lanes.entry(topic).or_default().push(row.get(sql::lane::all::shard)?);
        page.lanes += 1;
    }
    add_lanes_with_schedules(db, &mut lanes)?;
    let mut registered: BTreeMap<String, i64> = BTreeMap::new();
    let mut select = db.prepare_cached(sql::topic::checked::SQL)?;
    let mut found = select.query([])?;
    while let Some(row) = found.next()? {
        let (name, policy) =
            (read_text(row, topic::name)?.unwrap_or_default(), read_text(row, topic::policy)?);
        if policy.is_some_and(|policy| serde_json::from_str::<TopicPolicy>(&policy).is_err()) {
            page.find(Flaw::UnreadablePolicy, None, &name, Vec::new());
        }
        registered.insert(name, row.get(topic::shards)?);
    }
    let most = i64::from(TopicEntry::MAX_SHARDS);
    let write = |topic: &str, shards: i64| {
        vec![Remedy::new(sql::topic::SET_SHARDS, [Value::from(topic.to_owned()), shards.into()])]
    };
    let seen = |topic: &str| {
        lanes
            .get(topic)
            .and_then(|shards| shards.last())
            .map_or(1, |last| (last + 1).clamp(1, most))
    };
    for (topic, shards) in &registered {
        let is_name = topic.parse::<Topic>().is_ok();
        if !is_name || !(1..=most).contains(shards) {
            let remedies = if is_name { write(topic, seen(topic)) } else { Vec::new() };
            page.find(Flaw::UnreadableTopic, None, topic, remedies);
        }
    }
    for (topic, shards) in &lanes {
        let Ok(name) = topic.parse::<Topic>() else {
            page.find(Flaw::UnreadableTopic, None, topic, Vec::new());
            continue;
        };
        match registered.get(topic) {
            None => page.find(Flaw::UnregisteredTopic, None, topic, write(topic, seen(topic))),
            Some(registered) if (1..=most).contains(registered) => {
                for shard in shards.iter().filter(|shard| *shard >= registered) {
                    let lane =
                        u16::try_from(*shard).ok().map(|shard| Lane { topic: name.clone(), shard });
                    let remedies =
                        if *shard < most { write(topic, seen(topic)) } else { Vec::new() };
                    page.find(Flaw::LaneOutsideTopic, lane.as_ref(), topic, remedies);
                }
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Adds the lanes that have recurring schedules, but no tasks yet.
fn add_lanes_with_schedules(
    db: &Connection,
    lanes: &mut BTreeMap<String, Vec<i64>>,
) -> rusqlite::Result<()> {
    if !schedules::exist(db)? {
        return Ok(());
    }
    let mut select = db.prepare_cached(recurring::SQL)?;
    let mut found = select.query([])?;
    while let Some(row) = found.next()? {
        let topic = read_text(row, recurring::topic)?.unwrap_or_default();
        let shards = lanes.entry(topic).or_default();
        shards.push(row.get(recurring::shard)?);
        shards.sort_unstable();
        shards.dedup();
    }
    Ok(())
}

fn look_at_destinations(db: &Connection, page: &mut Page) -> rusqlite::Result<()> {
    let mut select = db.prepare_cached(destination::SQL)?;
    let mut found = select.query([])?;
    while let Some(row) = found.next()? {
        let (id, called): (i64, i64) = (row.get(destination::id)?, row.get(destination::called)?);
        let (stored, exact): (Option<i64>, Option<i64>) =
            (row.get(destination::earliest)?, row.get(destination::exact)?);
        let (name, lane) = (
            read_text(row, destination::name)?.unwrap_or_default(),
            read_lane(row, (destination::topic, destination::shard))?,
        );
        let set_called = |called: bool| {
            vec![Remedy::new(sql::destination::SET_CALLED, [i64::from(called).into(), id.into()])]
        };
        let lane = lane.as_ref();
        match name.parse::<Destination>() {
            // A destination that is not called does no harm.
            Err(_) if called != 0 => {
                page.find(Flaw::UnreadableDestination, lane, &name, set_called(false))
            }
            Ok(parsed) if called != i64::from(!parsed.is_pull()) => {
                page.find(Flaw::CalledWrong, lane, &name, set_called(!parsed.is_pull()));
            }
            _ => {}
        }
        if stored != exact {
            let flaw =
                if exact.is_none() { Flaw::ListedWithoutSchedule } else { Flaw::EarliestWrong };
            page.find(flaw, lane, &name, vec![Remedy::earliest(id)]);
        }
    }
    Ok(())
}

fn look_at_counter(db: &Connection, page: &mut Page) -> rusqlite::Result<()> {
    let last: Option<i64> = db.query_row(sql::meta::LAST_ID, [], only).optional()?;
    if !last.is_some_and(is_moment) {
        page.find(
            Flaw::UnreadableCounter,
            None,
            "last_id",
            vec![Remedy::new(sql::meta::RESTORE_LAST_ID, [])],
        );
    }
    Ok(())
}
