//! The old store's side of a move of recurring schedules: `records` shows them or pauses them for
//! the mover, `moved` deletes them.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{AtMost, MovedSchedule, ScheduleRecord, ScheduleRecords, SchedulesEnded};

use super::page;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{self, parsed};
use crate::model::task::{Lane, ScheduleName, StoreId, read_hex};
use crate::store::{Admin, Pause, Reader, Schedule, Schedules as _, Signals};

/// The most schedules of a call.
pub(crate) const MOST: usize = 100;

pub(crate) use delayd_wire::{
    ScheduleMovedRequest as MovedRequest, ScheduleRecordsRequest as RecordsRequest,
};

/// `POST /delay/schedule/records`: lane by lane, and in a lane by name.
pub(crate) async fn records(
    State(api): State<Arc<Api>>,
    Json(request): Json<RecordsRequest>,
) -> Result<Success<ScheduleRecords>, Error> {
    let RecordsRequest { topic, hold, limit, cursor } = request;
    let most = MOST as u32;
    let limit = limit.map_or(Ok(most), |limit| limit.whole("limit", 1..=most))? as usize;
    let cursor = fields::cursor(cursor)?;
    let known = api.topics.reload(&topic).await?.ok_or_else(Error::no_topic)?;
    let (store, shards) = (api.store.id().await?, known.entry.shards);
    let mut records = Vec::new();
    if let Some(AtMost(names)) = hold {
        for name in names {
            let name: ScheduleName = parsed(&name, "hold")?;
            let lane = name.lane_in(&topic, shards);
            if let Some(held) = api.store.pause_schedule(&lane, &name, Some(Pause::Move)).await? {
                tracing::info!(
                    %topic, schedule = %name,
                    "Schedule {name} of topic {topic} is paused for a mover"
                );
                records.push(record(&api, &lane, held, store).await?);
            }
        }
        return Ok(Success::of(ScheduleRecords { records, cursor: None }));
    }
    // A topic that is not marked has no schedules, and it may have many lanes.
    if !known.has_schedules {
        return Ok(Success::of(ScheduleRecords { records, cursor: None }));
    }
    let (page, cursor) = page(&api, &known, cursor, limit).await?;
    for (lane, schedule) in page {
        records.push(record(&api, &lane, schedule, store).await?);
    }
    Ok(Success::of(ScheduleRecords { records, cursor }))
}

/// A schedule as another store adopts it: its occurrence that was never handed out counts as not
/// planned.
async fn record(
    api: &Api,
    lane: &Lane,
    schedule: Schedule,
    store: StoreId,
) -> Result<ScheduleRecord, Error> {
    let newest: Vec<_> = schedule.recent.iter().map(|planned| planned.task).take(1).collect();
    let newest = match newest.is_empty() {
        true => None,
        false => api.store.summaries(lane, newest).await?.pop().flatten(),
    };
    // A pause withdraws what was never handed out. What waits then was given back, and moves as a
    // task.
    let may_wait = schedule.paused.is_none();
    let waiting = newest.filter(|task| may_wait && !task.state.is_final() && task.attempts == 0);
    let (waiting, before) = waiting.zip(schedule.before).unzip();
    let (since, cursor) = before.unwrap_or((schedule.since, schedule.cursor));
    let kind = schedule.paused.map(|(kind, _)| kind);
    Ok(ScheduleRecord {
        topic: lane.topic.clone(),
        schedule: schedule.name.to_string(),
        revision: text_of(schedule.revision),
        set_ms: schedule.set.into(),
        since_ms: since.into(),
        cursor,
        paused: kind == Some(Pause::Operator),
        held: kind == Some(Pause::Move),
        waiting: waiting.map(|task| task.id.into()),
        origin: schedule.origin.unwrap_or(store).to_string(),
        definition: serde_json::from_str(&schedule.definition).unwrap_or_default(),
    })
}

fn text_of(revision: u64) -> String {
    format!("{revision:016x}")
}

/// `POST /delay/schedule/moved`: deletes schedules that another store has adopted. May be repeated.
pub(crate) async fn moved(
    State(api): State<Arc<Api>>,
    Json(request): Json<MovedRequest>,
) -> Result<Success<SchedulesEnded>, Error> {
    let MovedRequest { topic, schedules, back } = request;
    let AtMost(schedules) = schedules;
    let is_back = back.unwrap_or_default();
    let shards = api.topics.reload(&topic).await?.ok_or_else(Error::no_topic)?.entry.shards;
    let mut ended = SchedulesEnded { count: 0, stale: Vec::new() };
    for MovedSchedule { schedule, revision } in schedules {
        let name: ScheduleName = parsed(&schedule, "schedules.schedule")?;
        let revision = read_revision(&revision)?;
        let lane = name.lane_in(&topic, shards);
        let is_done = if is_back {
            end_hold(&api, &lane, &name).await?
        } else {
            let is_gone = api.store.forget_schedule(&lane, &name, revision).await?;
            if is_gone {
                tracing::info!(
                    %topic, schedule = %name,
                    "Schedule {name} of topic {topic} was moved to another store"
                );
            }
            is_gone
        };
        match is_done {
            true => ended.count += 1,
            false => ended.stale.push(name.to_string()),
        }
    }
    Ok(Success::of(ended))
}

/// Ends a mover's pause. An operator's stays.
async fn end_hold(api: &Api, lane: &Lane, name: &ScheduleName) -> Result<bool, Error> {
    let found =
        api.store.schedules(Reader::Worker, lane, vec![name.clone()]).await?.pop().flatten();
    let Some(schedule) = found else { return Ok(false) };
    if schedule.paused.is_some_and(|(kind, _)| kind == Pause::Move) {
        api.store.pause_schedule(lane, name, None).await?;
    }
    Ok(true)
}

fn read_revision(text: &str) -> Result<u64, Error> {
    read_hex(text)
        .ok_or_else(|| Error::invalid("schedules.revision: expected 16 hexadecimal digits"))
}
