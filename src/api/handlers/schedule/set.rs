//! `POST /delay/schedule/set`: creates or changes a recurring schedule.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use delayd_wire::{ScheduleChange, ScheduleMisfire, ScheduleOverlap, ScheduleShown, Span};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{millis, moment_in, names, plan, shown, zone_of};
use crate::api::auth::Caller;
use crate::api::handlers::task::new_task::{
    GivenOptions, TaskRules, check_headers, content, destination, on_dead,
};
use crate::api::handlers::task::placing::PLACINGS;
use crate::api::middleware::call::RawBody;
use crate::api::state::Api;
use crate::api::wire::cost::spend;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::api::wire::json;
use crate::api::wire::long_body::reading;
use crate::callback::new_target;
use crate::model::schedule::{Definition, MisfireRule, Overlap};
use crate::model::task::{Options, ScheduleName, Topic};
use crate::planner;
use crate::store::{self, NewSchedule, Reader, ScheduleSet, Schedules as _};

pub(crate) use delayd_wire::ScheduleSetRequest as Request;

/// The shortest and the longest distance of `every`.
const EVERY: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(366 * 86_400);

/// Fields of an add that a schedule cannot have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RefusedFields {
    key: Option<IgnoredAny>,
    idempotency_key: Option<IgnoredAny>,
    delay: Option<IgnoredAny>,
    timing_moment: Option<IgnoredAny>,
    at: Option<IgnoredAny>,
    flow: Option<IgnoredAny>,
}

impl RefusedFields {
    /// The sentence for the first of these fields that a body has.
    fn sentence(body: &[u8]) -> Option<&'static str> {
        spend(body.len());
        let Self { key, idempotency_key, delay, timing_moment, at, flow } =
            serde_json::from_slice(body).unwrap_or_default();
        let sentences = [
            (key, "key: expected no key, because schedule is the key of the occurrences"),
            (
                idempotency_key,
                "idempotency_key: expected none, because a set that equals what is stored changes \
                 nothing",
            ),
            (delay, "delay: expected cron or every, which say when the schedule fires"),
            (
                timing_moment,
                "timing_moment: expected cron or every, which say when the schedule fires; the \
                 first moment is limited by start",
            ),
            (
                at,
                "at: expected cron or every, which say when the schedule fires; the first moment \
                 is limited by start",
            ),
            (flow, "flow: expected none, because this version has no flows"),
        ];
        sentences.into_iter().find_map(|(field, sentence)| field.map(|_| sentence))
    }
}

/// `POST /delay/schedule/set`
pub(crate) async fn set(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RawBody(body): RawBody,
) -> Result<Success<ScheduleShown>, Error> {
    api.check_accepting()?;
    let checking = api.clone();
    let check = move |body: &[u8]| checking.checked(None, |rules| read(body, rules));
    let read = reading(body, check).await;
    let (topic, name, definition) = read.map_err(|error| api.explained(error, &caller))?;
    let text = definition.text();
    let mut tries = 0;
    let (known, result) = loop {
        let known = api.topics.ensure_for(&topic, 1, |share| caller.creator(share)).await?;
        let lane = name.lane_in(&topic, known.entry.shards);
        let stored =
            api.store.schedules(Reader::Worker, &lane, vec![name.clone()]).await?.pop().flatten();
        if stored.as_ref().is_none_or(|stored| stored.definition != text) {
            check_fires(&definition, &api)?;
        }
        let new = NewSchedule {
            name: name.clone(),
            definition: text.clone(),
            revision: rand::random(),
            moved: None,
        };
        tries += 1;
        match planner::set(&*api.store, &known.entry, new, stored.as_ref()).await {
            Err(store::Error::StaleEntry) if tries < PLACINGS => api.topics.reload(&topic).await?,
            result => break (known, result?),
        };
    };
    let (result, schedule) = match result {
        ScheduleSet::Created(schedule) => (ScheduleChange::Created, schedule),
        ScheduleSet::Changed(schedule) => (ScheduleChange::Changed, schedule),
        ScheduleSet::Unchanged(schedule) => (ScheduleChange::Unchanged, schedule),
        ScheduleSet::TooMany => {
            return Err(Error::TooManySchedules(store::MAX_SCHEDULES));
        }
        // Only of a schedule that is moved.
        ScheduleSet::Taken | ScheduleSet::Own => return Err(Error::TakenSchedule),
        ScheduleSet::OldFormat => {
            return Err(Error::Unavailable(
                "this store does not take schedules yet: stop all instances of older versions, and \
                 then run delayd format --raise",
            ));
        }
    };
    if result != ScheduleChange::Unchanged {
        tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} was set");
        plan(&api, &known.entry, &schedule).await;
    }
    let lane = name.lane_in(&topic, known.entry.shards);
    // What was planned belongs to the answer.
    let planned = api.store.schedules(Reader::Worker, &lane, vec![name]).await?.pop().flatten();
    let schedule = shown(&api, &lane, planned.unwrap_or(schedule), &caller).await?;
    Ok(Success::of(ScheduleShown { result: Some(result), ..schedule }))
}

/// Refuses a schedule that would never fire.
fn check_fires(definition: &Definition, api: &Api) -> Result<(), Error> {
    let now = api.clock.now();
    let recurrence =
        definition.recurrence(now).map_err(|error| Error::Invalid(error.to_string()))?;
    match recurrence.first_after(now) {
        Some(_) => Ok(()),
        None => Err(Error::invalid(
            "end: expected a moment after the next one at which the schedule would fire",
        )),
    }
}

/// Reads and checks a request.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn read(
    body: &[u8],
    rules: &TaskRules<'_>,
) -> Result<(Topic, ScheduleName, Definition), Error> {
    let request: Request = json::read(body)
        .map_err(|error| RefusedFields::sentence(body).map_or(error, Error::invalid))?;
    let (topic, name) = names(request.topic, &request.schedule)?;
    let zone = zone_of(request.zone)?;
    let moment = |field: &str, text: Option<String>| {
        text.map(|text| moment_in(&zone, &text, field)).transpose()
    };
    let mode = rules.mode(request.mode, &topic);
    let content = content(request.content, mode, rules.content_limit)?;
    let Request { max_attempts, timeout, backoff, headers, expires_after, .. } = request;
    let given = GivenOptions { max_attempts, timeout, backoff, headers, expires_after };
    let options = Options {
        on_dead: request
            .on_dead
            .map(|call| on_dead(call, "on_dead", rules.services))
            .transpose()?,
        ..given.read()?
    };
    let every = request.every.map(|every| within(every, "every", EVERY).map(Span)).transpose()?;
    let definition = Definition {
        cron: request.cron.map(|cron| cron.trim().to_owned()),
        every_ms: every.map(millis),
        start: moment("start", request.start)?,
        end: moment("end", request.end)?,
        misfire: match request.misfire.unwrap_or_default() {
            ScheduleMisfire::Once => MisfireRule::Once,
            ScheduleMisfire::All => MisfireRule::All,
        },
        overlap: match request.overlap.unwrap_or_default() {
            ScheduleOverlap::Allow => Overlap::Allow,
            ScheduleOverlap::Skip => Overlap::Skip,
        },
        destination: destination(mode, rules.services, || new_target(&content))?,
        options,
        content,
        zone,
    };
    check_headers(&definition.options.headers, &definition.destination, rules.services)?;
    definition.recurrence(rules.now).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok((topic, name, definition))
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
