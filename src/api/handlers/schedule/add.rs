//! `run` and `backfill` of recurring schedules: occurrences beside the plan.
//!
//! They are ordinary tasks. They do not count for `overlap`, and the schedule goes on as planned.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use delayd_wire::{ScheduleBackfilled, ScheduleRan};
use http::HeaderMap;

use super::{FoundSchedule, find, moment_in, names};
use crate::api::handlers::task::placing::PLACINGS;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::idempotency::{self, GivenDue, OF_BACKFILL, OF_RUN, idempotency};
use crate::api::wire::shown::way_of;
use crate::metrics::AddResult;
use crate::model::clock::UnixMillis;
use crate::model::schedule::Nominal;
use crate::model::task::Occurrence;
use crate::store::{self, Added, Intake, Moment, NewTask, Novelty};

/// The most occurrences of one backfill.
const MOST: usize = 1000;
/// The most occurrences that are added in one step, and the most bytes of their contents.
const MAX_AT_ONCE: usize = 100;
const MAX_BYTES: usize = 4 << 20;
/// The longest idempotency key of a run. The stored key also has the name of the schedule.
const MAX_KEY: usize = 100;

pub(crate) use delayd_wire::{
    ScheduleBackfillRequest as BackfillRequest, ScheduleRunRequest as RunRequest,
};

/// `POST /delay/schedule/run`
pub(crate) async fn run(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    Json(request): Json<RunRequest>,
) -> Result<Success<ScheduleRan>, Error> {
    api.check_accepting()?;
    let header_key = idempotency::of_header(&headers)?;
    let RunRequest { topic, schedule, idempotency_key } = request;
    let (topic, name) = names(topic, &schedule)?;
    let key = idempotency::agreed(idempotency_key, header_key.as_deref())?;
    if key.as_ref().is_some_and(|key| key.len() > MAX_KEY) {
        return Err(Error::Invalid(format!("idempotency_key: must be 1 to {MAX_KEY} bytes long")));
    }
    let key = key.map(|key| format!("{OF_RUN}{name}/{key}"));
    let mut found = find(&api, &topic, &name).await?;
    let of = |found: &FoundSchedule| {
        vec![task(&api, found, (found.schedule.now, String::new()), key.clone())]
    };
    let added = placed(&api, &mut found, of).await?.pop().expect("a store answers every task")?;
    count(&api, &found, &added);
    tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} was run by hand");
    Ok(Success::of(ScheduleRan {
        task_id: added.id.into(),
        due_ms: added.due.into(),
        due: added.due.into(),
        duplicate: matches!(added.novelty, Novelty::Duplicate { .. }),
    }))
}

/// `POST /delay/schedule/backfill`: the oldest first. A repeated call adds nothing twice.
pub(crate) async fn backfill(
    State(api): State<Arc<Api>>,
    Json(request): Json<BackfillRequest>,
) -> Result<Success<ScheduleBackfilled>, Error> {
    api.check_accepting()?;
    let BackfillRequest { topic, schedule, from, to } = request;
    let (topic, name) = names(topic, &schedule)?;
    let mut found = find(&api, &topic, &name).await?;
    let zone = &found.definition.zone;
    let from = moment_in(zone, &from, "from")?;
    let to = moment_in(zone, &to, "to")?;
    if to < from || to > found.schedule.now {
        return Err(Error::invalid("to: expected a moment from `from` until now"));
    }
    let moments = nominals(&found, from, to)?;
    let mut answer = ScheduleBackfilled { added: 0, duplicates: 0, failed: 0 };
    let mut left = moments.as_slice();
    while !left.is_empty() && answer.failed == 0 {
        let (some, rest) = left.split_at(left.len().min(at_once(&found)));
        left = rest;
        let of = |found: &FoundSchedule| {
            let revision = found.schedule.revision;
            let of = |Nominal { cursor, moment }: &Nominal| {
                let key = format!("{OF_BACKFILL}{name}/{revision}/{cursor}");
                task(&api, found, (*moment, found.recurrence.named(cursor)), Some(key))
            };
            some.iter().map(of).collect()
        };
        for added in placed(&api, &mut found, of).await? {
            match added {
                Ok(added) => {
                    count(&api, &found, &added);
                    match added.novelty {
                        Novelty::Duplicate { .. } => answer.duplicates += 1,
                        Novelty::New | Novelty::Replaced => answer.added += 1,
                    }
                }
                Err(error) if answer.added + answer.duplicates == 0 => return Err(error.into()),
                Err(_) => answer.failed += 1,
            }
        }
    }
    // The others would probably fail, too.
    answer.failed += left.len() as u64;
    tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} was backfilled");
    Ok(Success::of(answer))
}

/// How many occurrences are added in one step. Each has its own copy of the content.
fn at_once(found: &FoundSchedule) -> usize {
    (MAX_BYTES / found.definition.content.len().max(1)).clamp(1, MAX_AT_ONCE)
}

/// Adds the tasks that `of` makes. If this instance had an outdated entry of the topic, it makes
/// and adds them again.
async fn placed(
    api: &Api,
    found: &mut FoundSchedule,
    of: impl Fn(&FoundSchedule) -> Vec<NewTask>,
) -> Result<Vec<store::Result<Added>>, Error> {
    let topic = found.known.entry.topic.clone();
    let mut added = api.store.add(of(found)).await;
    for _ in 1..PLACINGS {
        if !added.iter().any(|added| matches!(added, Err(store::Error::StaleEntry))) {
            break;
        }
        api.topics.reload(&topic).await?;
        found.known = api.topic(&topic).await?;
        added = api.store.add(of(found)).await;
    }
    Ok(added)
}

/// Counts an occurrence that was added, for the metrics.
fn count(api: &Api, found: &FoundSchedule, added: &Added) {
    let result = match added.novelty {
        Novelty::Duplicate { .. } => AddResult::Duplicate,
        Novelty::New | Novelty::Replaced => AddResult::New,
    };
    api.metrics.api.added(way_of(&found.definition.destination), result);
}

/// The nominal moments from `from` to `to`.
///
/// # Errors
/// If they are more than [`MOST`].
fn nominals(
    found: &FoundSchedule,
    from: UnixMillis,
    to: UnixMillis,
) -> Result<Vec<Nominal>, Error> {
    let recurrence = &found.recurrence;
    let first = recurrence.first_after(UnixMillis(from.0.saturating_sub(1)));
    let all = std::iter::successors(first, |last| recurrence.next_after(&last.cursor));
    let all: Vec<_> = all.take_while(|nominal| nominal.moment <= to).take(MOST + 1).collect();
    match all.len() > MOST {
        true => Err(Error::Invalid(format!(
            "to: expected at most {MOST} moments in one backfill; the first {MOST} end at {}",
            recurrence.shown(all[MOST - 1].moment)
        ))),
        false => Ok(all),
    }
}

/// An occurrence that is due now. The idempotency key covers what the schedule says, and not the
/// moment of a run.
fn task(
    api: &Api,
    found: &FoundSchedule,
    (moment, cursor): (UnixMillis, String),
    key: Option<String>,
) -> NewTask {
    let FoundSchedule { known, schedule, definition, .. } = found;
    let due = Moment::After(Duration::ZERO);
    let given = GivenDue::Moment(due);
    let what = (given, &definition.destination, &definition.options, definition.content.as_str());
    let window = api.bounds().idempotency_window;
    let idempotency = key.map(|key| idempotency(key, window, &known.entry.topic, what));
    let mut options = definition.options.clone();
    options.origin = schedule.origin;
    options.schedule = Some(Box::new(Occurrence {
        name: schedule.name.clone(),
        moment,
        cursor,
        after: None,
        missed: 0,
    }));
    NewTask {
        topic: known.entry.clone(),
        destination: definition.destination.clone(),
        moment: due,
        options,
        content: definition.content.clone(),
        idempotency,
        quota: known.policy.quota_of_lane(known.entry.shards),
    }
}
