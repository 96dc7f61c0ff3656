//! Plans the next occurrence of a recurring schedule.
//!
//! A planner reads a schedule, computes its next moment from the store's now, and asks the store to
//! add the occurrence if the schedule has not changed since. So any number of planners may work on
//! one schedule, and each may crash at any step.

use std::time::Duration;

use crate::model::clock::UnixMillis;
use crate::model::schedule::{Definition, LocalCursor, MisfireRule, Nominal, Overlap, Recurrence};
use crate::model::task::{Lane, Occurrence, ScheduleName, TaskId};
use crate::store::{
    Error, Moment, NewSchedule, NewTask, NextOccurrence, Plan, Planned, Reader, Result, Schedule,
    ScheduleSet, Schedules, TopicEntry,
};

/// The most missed moments that `misfire: all` makes up for.
pub const MAX_MISSED: u64 = 1_000;

/// The times between two looks at a schedule whose occurrence waits. The shortest one ends before
/// the next poll. Otherwise two seconds could pass between two looks at a schedule of each second,
/// and a moment without an outage was missed. Each look writes, and a lane with a backlog is looked
/// at more often than the poll does, so it is no shorter than that.
const SHORTEST_LOOK: Duration = Duration::from_millis(500);
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// Sets a schedule that was read as `stored`. Before a change, a moment that has passed is planned
/// if it was not yet: the store then sees that it has passed, and the change does not lose it.
///
/// # Errors
/// Those of the store.
pub async fn set(
    store: &impl Schedules,
    topic: &TopicEntry,
    new: NewSchedule,
    stored: Option<&Schedule>,
) -> Result<ScheduleSet> {
    let is_behind = |stored: &&Schedule| {
        stored.definition != new.definition && stored.look.is_some_and(|look| look <= stored.now)
    };
    if let Some(stored) = stored.filter(is_behind) {
        match plan(store, topic, stored).await {
            // What cannot be read can still be replaced.
            Ok(_) | Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    store.set_schedule(topic, new).await
}

/// Plans the next occurrence of a schedule, as it was read.
///
/// # Errors
/// [`Error::Corrupt`] if this version cannot read the definition. Otherwise those of the store.
pub async fn plan(
    store: &impl Schedules,
    topic: &TopicEntry,
    schedule: &Schedule,
) -> Result<Planned> {
    let plan = plan_of(topic, schedule).ok_or_else(|| {
        Error::Corrupt(format!(
            "the schedule {} of topic {} cannot be read by this version",
            schedule.name, topic.topic
        ))
    })?;
    store.plan(plan).await
}

/// Schedules of a lane, and those whose records cannot be read: they must not hide the others.
#[derive(Debug, Default)]
pub struct ReadSchedules {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// The names of those that cannot be read.
    pub unreadable: Vec<ScheduleName>,
}

/// How many schedules a listing reads at a time: each has a content.
pub const LISTED_AT_ONCE: usize = 16;

/// Reads the schedules of a lane with these names.
///
/// # Errors
/// Those of the store, except [`Error::Corrupt`].
pub async fn read(
    store: &impl Schedules,
    reader: Reader,
    lane: &Lane,
    names: Vec<ScheduleName>,
) -> Result<ReadSchedules> {
    let mut read = ReadSchedules::default();
    match store.schedules(reader, lane, names.clone()).await {
        Err(Error::Corrupt(_)) => {}
        found => {
            read.schedules = found?.into_iter().flatten().collect();
            return Ok(read);
        }
    }
    for name in names {
        match store.schedules(reader, lane, vec![name.clone()]).await {
            Err(Error::Corrupt(_)) => read.unreadable.push(name),
            found => read.schedules.extend(found?.into_iter().flatten()),
        }
    }
    Ok(read)
}

/// `None` if the definition or the cursor cannot be read.
fn plan_of(topic: &TopicEntry, schedule: &Schedule) -> Option<Plan> {
    let definition = Definition::read(&schedule.definition)?;
    let recurrence = definition.recurrence(schedule.set).ok()?;
    let cursor = match &schedule.cursor {
        Some(cursor) => Some(recurrence.cursor_of(cursor)?),
        None => None,
    };
    let now = schedule.now;
    let first = next(&recurrence, cursor.as_ref(), schedule.since);
    let mut plan = Plan {
        topic: topic.clone(),
        name: schedule.name.clone(),
        revision: schedule.revision,
        cursor: schedule.cursor.clone(),
        since: schedule.since,
        next: None,
        missed: None,
        look_again: now + LONGEST_LOOK,
    };
    let Some(first) = first else { return Some(plan) };
    let coming = if first.moment > now { Some(first) } else { recurrence.first_after(now) };
    if let Some(coming) = coming {
        plan.look_again = now + (coming.moment.since(now) / 4).clamp(SHORTEST_LOOK, LONGEST_LOOK);
    }
    let has_passed = first.moment <= now;
    let (nominal, missed, since) = match definition.misfire {
        _ if !has_passed => (first, 0, schedule.since),
        MisfireRule::Once => (first, recurrence.missed(&first.cursor, now), now),
        MisfireRule::All => {
            let behind = recurrence.missed(&first.cursor, now);
            if behind < MAX_MISSED {
                (first, 0, schedule.since)
            } else {
                let kept = recurrence.backlog(&first.cursor, now, MAX_MISSED)?;
                (kept.first, kept.dropped + 1, schedule.since)
            }
        }
    };
    // The waiting occurrence is the one of the cursor.
    if has_passed
        && definition.misfire == MisfireRule::Once
        && let Some(cursor) = &cursor
    {
        plan.missed = Some((recurrence.missed(cursor, now), now));
    }
    let due = nominal.moment;
    let occurrence = Occurrence {
        name: schedule.name.clone(),
        moment: nominal.moment,
        cursor: recurrence.named(&nominal.cursor),
        after: (definition.overlap == Overlap::Skip).then_some(TaskId(0)),
        missed,
    };
    let mut options = definition.options;
    options.origin = schedule.origin;
    options.schedule = Some(Box::new(occurrence));
    let task = NewTask {
        topic: topic.clone(),
        destination: definition.destination,
        moment: Moment::At(due),
        options,
        content: definition.content,
        idempotency: None,
        quota: None,
    };
    plan.next = Some(NextOccurrence { task, since, look: due.max(now) });
    Some(plan)
}

/// The first moment that is after the cursor, as local time, and after `since`.
fn next(
    recurrence: &Recurrence,
    cursor: Option<&LocalCursor>,
    since: UnixMillis,
) -> Option<Nominal> {
    match cursor {
        None => recurrence.first_after(since),
        Some(cursor) => {
            let next = recurrence.next_after(cursor)?;
            if next.moment > since { Some(next) } else { recurrence.first_after(since) }
        }
    }
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
