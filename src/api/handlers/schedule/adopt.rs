//! `POST /delay/schedule/adopt`: stores recurring schedules of another store, which continue here.
//!
//! A record is checked as a set is: its service must be configured here, or its host allowed. Each
//! record has a result of its own.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use delayd_wire::{
    AdoptedOptions, AdoptedSchedule, AtMost, ScheduleAdoptAnswer, ScheduleAdoptItem, ScheduleKept,
    SuccessAnswer,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::transfer::MOST;
use super::{names, plan};
use crate::api::auth::Caller;
use crate::api::handlers::migration::adopt::{moment, read_options_of, read_origin};
use crate::api::handlers::task::new_task;
use crate::api::handlers::task::placing::PLACINGS;
use crate::api::middleware::call::RawBody;
use crate::api::state::Api;
use crate::api::wire::batch::{ErrorTexts, failure_of_all};
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::json;
use crate::api::wire::long_body::{reading, size};
use crate::callback::target;
use crate::model::schedule::Definition;
use crate::model::task::{Mode, Topic};
use crate::store::{self, ContinuedSchedule, NewSchedule, ScheduleSet, Schedules as _};

pub(crate) use delayd_wire::ScheduleAdoptRequest as Request;

/// The longest text of a cursor: a local time and the name of a zone.
const LONGEST_CURSOR: usize = 128;

/// `POST /delay/schedule/adopt`. May be repeated.
pub(crate) async fn adopt(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    api.check_accepting()?;
    let reader = api.clone();
    let read = move |body: &[u8]| all_checked(&reader, body);
    let (topic, checked) = reading(body.clone(), read).await?;
    let mut results = Vec::with_capacity(checked.len());
    for checked in checked {
        results.push(match checked {
            Ok(new) => match keep(&api, &caller, &topic, new).await {
                // The caller repeats the whole call.
                Err(error) if error.is_unavailable() && results.iter().any(Result::is_ok) => {
                    error.log();
                    return Err(Error::Unconfirmed(
                        "the store failed after some records were stored: repeat the call",
                    ));
                }
                Err(error @ (Error::Store(_) | Error::Unavailable(_))) => return Err(error),
                kept => kept,
            },
            Err(error) => Err(error),
        });
    }
    if let Some(failure) = failure_of_all("records", &results) {
        return Ok(failure);
    }
    let failed = results.iter().filter(|result| result.is_err()).count();
    let mut texts = ErrorTexts::default();
    let item = |result: Result<ScheduleKept, Error>| match result {
        Ok(kept) => ScheduleAdoptItem::Kept(SuccessAnswer::of(kept)),
        Err(error) => {
            ScheduleAdoptItem::Failed { dm_error: error.code(), error_msg: texts.of(&error) }
        }
    };
    let results = results.into_iter().map(item).collect();
    Ok(Success::of(ScheduleAdoptAnswer { failed, results }).into_response())
}

pub(crate) type CheckedRecords = (Topic, Vec<Result<NewSchedule, Error>>);

/// Reads and checks the records.
pub(crate) fn all_checked(api: &Api, body: &[u8]) -> Result<CheckedRecords, Error> {
    let Request { topic, records } = json::read(body)?;
    let AtMost(records) = records;
    if records.is_empty() {
        return Err(Error::Invalid(format!("records: must hold 1 to {MOST} records")));
    }
    let checked = records.into_iter().map(|record| check(api, &topic, &record)).collect();
    Ok((topic, checked))
}

/// Stores a schedule, and plans its next occurrence.
async fn keep(
    api: &Api,
    caller: &Caller,
    topic: &Topic,
    new: NewSchedule,
) -> Result<ScheduleKept, Error> {
    let name = new.name.clone();
    let mut tries = 0;
    let (known, result) = loop {
        let known = api.topics.ensure_for(topic, 1, |share| caller.creator(share)).await?;
        tries += 1;
        match api.store.set_schedule(&known.entry, new.clone()).await {
            Err(store::Error::StaleEntry) if tries < PLACINGS => {
                api.topics.reload(topic).await?;
            }
            result => break (known, result?),
        }
    };
    let schedule = match result {
        ScheduleSet::Created(schedule) | ScheduleSet::Changed(schedule) => schedule,
        ScheduleSet::Unchanged(_) => {
            return Ok(ScheduleKept { schedule: name.to_string(), known: true });
        }
        ScheduleSet::Taken => return Err(Error::TakenSchedule),
        ScheduleSet::Own => return Err(Error::OwnSchedule),
        ScheduleSet::TooMany => return Err(Error::TooManySchedules(store::MAX_SCHEDULES)),
        // Not 503: the mover would wait for an operator, and the schedule would not fire meanwhile.
        ScheduleSet::OldFormat => {
            return Err(Error::invalid(
                "schedule: this store does not take schedules yet: stop all instances of older \
                 versions, and then run delayd format --raise",
            ));
        }
    };
    tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} continues here");
    plan(api, &known.entry, &schedule).await;
    Ok(ScheduleKept { schedule: name.to_string(), known: false })
}

fn check(api: &Api, topic: &Topic, record: &RawValue) -> Result<NewSchedule, Error> {
    let longest = 6 * api.bounds().content_limit + api.bounds().body_limit;
    if record.get().len() > longest {
        return Err(Error::TooLarge(format!("the record is larger than {}", size(longest))));
    }
    let record: AdoptedSchedule = json::read(record.get().as_bytes())?;
    let (of, name) = names(record.topic, &record.schedule)?;
    if of != *topic {
        return Err(Error::invalid("topic: expected the topic of the request in each record"));
    }
    let set = moment(record.set_ms, "set_ms")?;
    let since = moment(record.since_ms, "since_ms")?;
    let origin = read_origin(&record.origin, "origin")?;
    let definition = definition(api, &record.definition)?;
    let recurrence = definition
        .recurrence(set)
        .map_err(|error| Error::Invalid(format!("definition.{error}")))?;
    let cursor = record.cursor;
    // The Redis store ends a cursor at a space. Each day since the cursor is looked at, so it has
    // a first day.
    let is_cursor = |text: &String| {
        let is_word = text.len() <= LONGEST_CURSOR && text.bytes().all(|b| b.is_ascii_graphic());
        let cursor = recurrence.cursor_of(text).filter(|_| is_word);
        cursor.is_some_and(|cursor| recurrence.resolve(&cursor).0 >= 0)
    };
    if cursor.as_ref().is_some_and(|text| !is_cursor(text)) {
        return Err(Error::invalid(
            "cursor: expected a local time and a zone, such as 2026-11-25T02:30:00[Europe/Berlin]",
        ));
    }
    let is_paused = record.paused.unwrap_or_default();
    let moved = Some(ContinuedSchedule { origin, set, since, cursor, is_paused });
    Ok(NewSchedule { name, definition: definition.text(), revision: rand::random(), moved })
}

/// The fields of a definition. One with a field that this version does not know would mean
/// something else here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "only their names count")]
struct DefinitionFields {
    cron: Option<IgnoredAny>,
    every_ms: Option<IgnoredAny>,
    zone: IgnoredAny,
    start: Option<IgnoredAny>,
    end: Option<IgnoredAny>,
    misfire: IgnoredAny,
    overlap: IgnoredAny,
    destination: IgnoredAny,
    options: Option<AdoptedOptions>,
    content: IgnoredAny,
}

/// Reads and checks a definition.
fn definition(api: &Api, raw: &RawValue) -> Result<Definition, Error> {
    let longest = 6 * api.bounds().content_limit + api.bounds().body_limit;
    let DefinitionFields { options, .. } = json::read_field(raw, "definition", longest)?;
    let options = options.map(|given| read_options_of(given, &api.services)).transpose()?;
    let options = options.unwrap_or_default();
    let is_task = options.origin.is_some()
        || options.schedule.is_some()
        || options.removed.is_some()
        || options.on_dead.as_ref().is_some_and(|call| call.task_id.is_some());
    if is_task {
        return Err(Error::invalid("definition.options: expected those of a schedule"));
    }
    let read: Definition = json::read_field(raw, "definition", longest)?;
    let read = Definition { options, ..read };
    let limit = api.bounds().content_limit;
    if read.content.len() > limit {
        return Err(Error::TooLarge(format!("content: is larger than {}", size(limit))));
    }
    let mode = if read.destination.is_pull() { Mode::Pull } else { Mode::Push };
    let named = new_task::destination(mode, &api.services, || target(&read.content))?;
    if named != read.destination {
        return Err(Error::Invalid(format!(
            "definition.destination: expected {named}, which its content names"
        )));
    }
    Ok(read)
}
