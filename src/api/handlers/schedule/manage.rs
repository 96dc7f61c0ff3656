//! `get`, `list`, `pause`, `resume` and `delete` of recurring schedules.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{Nothing, ScheduleShown, Schedules};

use super::{locate, names, no_schedule, page, plan, read, shown};
use crate::api::auth::Caller;
use crate::api::handlers::task::get as task;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields;
use crate::model::schedule::Definition;
use crate::store::{Pause, Reader, Schedules as _};

/// How many schedules a page has by default, and at most.
const PAGE: u32 = 100;
const MOST_LISTED: u32 = 1000;

/// The cursor is the last schedule of the previous page: its name decides its lane.
pub(crate) use delayd_wire::ScheduleListRequest as ListRequest;
pub(crate) use delayd_wire::ScheduleRequest as Request;

/// `POST /delay/schedule/get`
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<ScheduleShown>, Error> {
    let Request { topic, schedule } = request;
    let (topic, name) = names(topic, &schedule)?;
    let _place = api.place(&api.gets, &caller).await?;
    let (_, lane, schedule) = locate(&api, Reader::Viewer, &topic, &name).await?;
    let definition = Definition::read(&schedule.definition);
    let options = definition.as_ref().map(|rule| rule.options.clone()).unwrap_or_default();
    Ok(Success::of(ScheduleShown {
        options: Some(task::options(&options, &caller)),
        content: definition.and_then(|rule| caller.content(rule.content)),
        ..shown(&api, &lane, schedule, &caller).await?
    }))
}

/// `POST /delay/schedule/list`: lane by lane, and in a lane by name.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<ListRequest>,
) -> Result<Success<Schedules>, Error> {
    let ListRequest { topic, limit, cursor } = request;
    let limit = limit.map_or(Ok(PAGE), |limit| limit.whole("limit", 1..=MOST_LISTED))? as usize;
    let cursor = fields::cursor(cursor)?;
    let _place = api.place(&api.scans, &caller).await?;
    let known = api.topics.reload(&topic).await?.ok_or_else(Error::no_topic)?;
    let (page, cursor) = page(&api, &known, cursor, limit).await?;
    let mut schedules = Vec::with_capacity(page.len());
    for (lane, schedule) in page {
        schedules.push(shown(&api, &lane, schedule, &caller).await?);
    }
    Ok(Success::of(Schedules { schedules, cursor }))
}

/// `POST /delay/schedule/pause`: removes the occurrence that was never handed out.
pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<ScheduleShown>, Error> {
    set_paused(&api, &caller, request, Some(Pause::Operator)).await
}

/// `POST /delay/schedule/resume`: the next moment is the first after now.
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<ScheduleShown>, Error> {
    set_paused(&api, &caller, request, None).await
}

async fn set_paused(
    api: &Arc<Api>,
    caller: &Caller,
    request: Request,
    pause: Option<Pause>,
) -> Result<Success<ScheduleShown>, Error> {
    let Request { topic, schedule } = request;
    let (topic, name) = names(topic, &schedule)?;
    let (known, lane, _) = locate(api, Reader::Worker, &topic, &name).await?;
    let changed = api.store.pause_schedule(&lane, &name, pause).await?;
    let mut schedule = changed.ok_or_else(no_schedule)?;
    if pause.is_none() {
        plan(api, &known.entry, &schedule).await;
        // What was planned belongs to the answer.
        schedule = read(api, Reader::Worker, &lane, &name).await?.unwrap_or(schedule);
    }
    let what = if pause.is_some() { "paused" } else { "resumed" };
    tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} is {what} by hand");
    shown(api, &lane, schedule, caller).await.map(Success::of)
}

/// `POST /delay/schedule/delete`: an occurrence that was handed out runs to its end.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    Json(request): Json<Request>,
) -> Result<Success<Nothing>, Error> {
    let Request { topic, schedule } = request;
    let (topic, name) = names(topic, &schedule)?;
    // Not read first: one that cannot be read is deleted too.
    let lane = name.lane_in(&topic, api.topic(&topic).await?.entry.shards);
    let mut is_deleted = api.store.delete_schedule(&lane, &name).await?;
    if !is_deleted {
        // This instance's entry of the topic may be outdated.
        let known = api.topics.reload(&topic).await?.ok_or_else(Error::no_topic)?;
        let now = name.lane_in(&topic, known.entry.shards);
        is_deleted = now != lane && api.store.delete_schedule(&now, &name).await?;
    }
    match is_deleted {
        true => {
            tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} is deleted");
            Ok(Success::of(Nothing {}))
        }
        false => Err(no_schedule()),
    }
}
