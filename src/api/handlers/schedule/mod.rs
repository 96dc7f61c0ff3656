//! The calls under `/delay/schedule/`: recurring schedules.
//!
//! A schedule is found by its topic and name, which decide its lane. The store keeps it, and
//! `crate::planner` adds its occurrences.

use std::sync::Arc;

use delayd_wire::{
    ScheduleMisfire, ScheduleMoment, ScheduleOccurrence, ScheduleOverlap, ScheduleShown, Span,
};

use crate::api::auth::Caller;
use crate::api::state::Api;
use crate::api::wire::cost::spend;
use crate::api::wire::error::Error;
use crate::api::wire::fields::parsed;
use crate::api::wire::shown::{last_outcome, sn_of};
use crate::model::clock::UnixMillis;
use crate::model::schedule::{Definition, MisfireRule, Nominal, Overlap, Recurrence};
use crate::model::task::{Lane, ScheduleName, Topic};
use crate::model::written_time::{self, InvalidTime, MAX_TEXT};
use crate::model::zone::Zone;
use crate::planner;
use crate::store::{Admin, Planned, Reader, Registered, Schedule, Schedules as _, TopicEntry};

pub(crate) mod adopt;
pub(crate) mod manage;
pub(crate) mod preview;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod transfer;

/// The next moments that `get` and `list` show.
const NEXT: usize = 3;

/// How many bytes of definitions a page reads, unless a single one is longer.
const MAX_BYTES: usize = 4 << 20;

fn no_schedule() -> Error {
    Error::NotFound("schedule: there is no such schedule in this topic".into())
}

/// The topic and the schedule that a request names.
fn names(topic: Topic, schedule: &str) -> Result<(Topic, ScheduleName), Error> {
    Ok((topic, parsed(schedule, "schedule")?))
}

/// Reads a schedule. If it is not found, this instance's entry of the topic may be outdated: the
/// entry is read again.
async fn locate(
    api: &Api,
    reader: Reader,
    topic: &Topic,
    name: &ScheduleName,
) -> Result<(Registered, Lane, Schedule), Error> {
    let mut known = api.topic(topic).await?;
    let lane = name.lane_in(topic, known.entry.shards);
    if let Some(schedule) = read(api, reader, &lane, name).await? {
        return Ok((known, lane, schedule));
    }
    known = api.topics.reload(topic).await?.ok_or_else(Error::no_topic)?;
    let now = name.lane_in(topic, known.entry.shards);
    if now == lane {
        return Err(no_schedule());
    }
    let schedule = read(api, reader, &now, name).await?.ok_or_else(no_schedule)?;
    Ok((known, now, schedule))
}

async fn read(
    api: &Api,
    reader: Reader,
    lane: &Lane,
    name: &ScheduleName,
) -> Result<Option<Schedule>, Error> {
    Ok(api.store.schedules(reader, lane, vec![name.clone()]).await?.pop().flatten())
}

/// A page of a topic's schedules, and the cursor of the next one: lane by lane, and in a lane by
/// name. The cursor is the last schedule of a page, whose name decides its lane.
async fn page(
    api: &Api,
    known: &Registered,
    cursor: Option<ScheduleName>,
    limit: usize,
) -> Result<(Vec<(Lane, Schedule)>, Option<String>), Error> {
    let TopicEntry { topic, shards, .. } = &known.entry;
    let mut after = cursor;
    let first = after.as_ref().map_or(0, |name| name.lane_in(topic, *shards).shard);
    let (mut page, mut bytes): (Vec<(Lane, Schedule)>, usize) = (Vec::new(), 0);
    for shard in first..*shards {
        let lane = Lane { topic: topic.clone(), shard };
        loop {
            // One more than fits tells whether there is a further page.
            let left = limit + 1 - page.len();
            let names = api.store.schedule_names(&lane, after.take(), left).await?;
            for some in names.chunks(planner::LISTED_AT_ONCE) {
                let read = planner::read(&*api.store, Reader::Viewer, &lane, some.to_vec());
                for schedule in read.await?.schedules {
                    if page.len() == limit || bytes >= MAX_BYTES {
                        let cursor = page.last().map(|(_, last)| last.name.to_string());
                        return Ok((page, cursor));
                    }
                    bytes += schedule.definition.len();
                    page.push((lane.clone(), schedule));
                }
            }
            if names.len() < left {
                break;
            }
            // Some of them cannot be read, and took no room.
            after = names.last().cloned();
        }
    }
    Ok((page, None))
}

/// The definition of a stored schedule. `None` if a later version of delayd wrote it, or its time
/// zone is unknown here.
fn understood(schedule: &Schedule) -> Option<(Definition, Recurrence)> {
    let definition = Definition::read(&schedule.definition)?;
    let recurrence = definition.recurrence(schedule.set).ok()?;
    Some((definition, recurrence))
}

/// The zone of a request, by the name that the zone data has for it; UTC if it has none.
///
/// # Errors
/// If there is no such zone.
fn zone_of(zone: Option<String>) -> Result<String, Error> {
    match zone.as_deref().map(Zone::named) {
        None => Ok("UTC".into()),
        Some(Ok(zone)) => Ok(zone.name()),
        Some(Err(error)) => Err(Error::Invalid(format!("zone: {error}"))),
    }
}

/// Reads `start`, `end`, `after`, `from` or `to`: a time with an offset or a zone, or a local time
/// in the zone of the schedule.
fn moment_in(zone: &str, text: &str, field: &str) -> Result<UnixMillis, Error> {
    spend(2 * text.len().min(MAX_TEXT));
    let read = written_time::read(text, Some(zone));
    // A time with an offset or a zone is a moment, in whichever zone the schedule is.
    let read = read.or_else(|wrong| written_time::read(text, None).map_err(|_| wrong));
    read.map(|time| time.moment).map_err(|wrong| match wrong {
        InvalidTime::Time(says) => Error::Invalid(format!("{field}: {says}")),
        InvalidTime::Zone(says) => Error::Invalid(format!("zone: {says}")),
    })
}

/// Plans the next occurrence of a schedule that was set or resumed. If it fails, the planner plans
/// it within a second.
async fn plan(api: &Api, topic: &TopicEntry, schedule: &Schedule) {
    if schedule.look.is_some()
        && let Ok(Planned::Added { .. }) = planner::plan(&*api.store, topic, schedule).await
    {
        api.metrics.schedules.planned();
    }
}

/// The nominal moments after `first`, in the form of answers.
fn moments(recurrence: &Recurrence, first: Option<Nominal>, count: usize) -> Vec<ScheduleMoment> {
    let moments = std::iter::successors(first, |last| recurrence.next_after(&last.cursor));
    let shown = |Nominal { moment, .. }| ScheduleMoment {
        moment_ms: moment.into(),
        moment: recurrence.shown(moment),
    };
    moments.take(count).map(shown).collect()
}

/// A schedule with its last occurrences.
async fn shown(
    api: &Arc<Api>,
    lane: &Lane,
    schedule: Schedule,
    caller: &Caller,
) -> Result<ScheduleShown, Error> {
    let understood = understood(&schedule);
    let unreadable = understood.is_none();
    let (definition, recurrence) = understood.unzip();
    let text = |moment: UnixMillis| {
        recurrence.as_ref().map_or_else(|| moment.rfc3339(), |rule| rule.shown(moment))
    };
    let ids = schedule.recent.iter().map(|occurrence| occurrence.task).collect();
    let tasks = api.store.summaries(lane, ids).await?;
    let recent = schedule.recent.iter().zip(tasks).map(|(occurrence, task)| {
        let outcome = task.as_ref().and_then(|task| last_outcome(task.last_outcome.clone()));
        ScheduleOccurrence {
            task_id: occurrence.task.into(),
            moment_ms: occurrence.moment.into(),
            moment: text(occurrence.moment),
            state: task.as_ref().map(|task| task.state),
            attempts: task.as_ref().map(|task| task.attempts),
            last_outcome: outcome.and_then(|outcome| caller.content(outcome)),
        }
    });
    let recent = recent.collect();
    let next = match &recurrence {
        Some(rule) if schedule.paused.is_none() => {
            moments(rule, rule.first_after(schedule.now), NEXT)
        }
        _ => Vec::new(),
    };
    let rule = definition.as_ref();
    Ok(ScheduleShown {
        result: None,
        topic: lane.topic.clone(),
        schedule: schedule.name.to_string(),
        cron: rule.and_then(|rule| rule.cron.clone()),
        every_ms: rule.and_then(|rule| rule.every_ms),
        zone: rule.map(|rule| rule.zone.clone()).unwrap_or_default(),
        start_ms: rule.and_then(|rule| rule.start).map(Into::into),
        end_ms: rule.and_then(|rule| rule.end).map(Into::into),
        misfire: match rule.map(|rule| rule.misfire).unwrap_or_default() {
            MisfireRule::Once => ScheduleMisfire::Once,
            MisfireRule::All => ScheduleMisfire::All,
        },
        overlap: match rule.map(|rule| rule.overlap).unwrap_or_default() {
            Overlap::Allow => ScheduleOverlap::Allow,
            Overlap::Skip => ScheduleOverlap::Skip,
        },
        sn: rule.and_then(|rule| sn_of(&rule.destination)),
        unreadable,
        paused: schedule.paused.is_some(),
        paused_since_ms: schedule.paused.map(|(_, since)| since.into()),
        set_ms: schedule.set.into(),
        next,
        recent,
        options: None,
        content: None,
    })
}

/// Whole milliseconds.
fn millis(Span(span): Span) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
