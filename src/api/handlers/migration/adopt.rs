//! `POST /delay/task/adopt`: stores tasks of another store, from their records.
//!
//! A record is checked like an add: its service must be configured here, or its host allowed. Each
//! record has a result of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract;
use axum::response::{IntoResponse, Response};
use delayd_wire::{
    AdoptAnswer, AdoptItem, AdoptedNote, AdoptedOnDead, AdoptedOptions, AdoptedTask,
    AdoptionBecame, AtMost, Number, OnDeadCall, SuccessAnswer,
};
use serde_json::value::RawValue;

use crate::api::auth::Caller;
use crate::api::handlers::task::new_task::{self, GivenOptions};
use crate::api::handlers::task::placing::placed;
use crate::api::middleware::call::RawBody;
use crate::api::state::Api;
use crate::api::wire::batch::{ErrorTexts, failure_of_all};
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::idempotency;
use crate::api::wire::json::{self, required};
use crate::api::wire::long_body::{reading, size};
use crate::callback::{Services, target};
use crate::model::clock::UnixMillis;
use crate::model::task::{
    ContentDigest, Destination, Lane, Mode, Occurrence, OnDead, Options, State, StoreId, TaskId,
    Topic,
};
use crate::model::trace::TraceContext;
use crate::store::{
    self, Admin, Adopted, AdoptedStanding, Adoptee, AttemptNote, Delivery, MAX_ANSWER, MAX_OUTCOME,
    Registered, Signals, TopicEntry,
};

/// Lower Unix milliseconds (before the year 2001) are refused: they are most likely seconds, and
/// the task would be called at once.
const EARLIEST: i64 = 978_307_200_000;
/// Unix milliseconds from this on (the year 5138) are refused.
const FAR: f64 = 1e14;
/// The most attempts of a record.
const MAX_TRIED: u32 = 1_000_000_000;

pub(crate) use delayd_wire::{AdoptRequest, AdoptedRecord as Record};

/// A record that passed the checks.
pub(crate) struct CheckedRecord {
    /// The task's entry of the topic is set later.
    topic: Topic,
    task: Adoptee,
    notes: Vec<AdoptedNote>,
}

/// `POST /delay/task/adopt`: stores tasks of another store under their ids. May be repeated.
pub(crate) async fn adopt(
    extract::State(api): extract::State<Arc<Api>>,
    caller: Caller,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    api.check_accepting()?;
    // A task that returns to the store that first accepted it needs no origin.
    let own = api.store.id().await?;
    let read = || {
        let (api, caller) = (api.clone(), caller.clone());
        reading(body.clone(), move |body| {
            let mut checked = all_checked(&api, &caller, body)?;
            for CheckedRecord { task, .. } in checked.iter_mut().flatten() {
                task.options.origin = task.options.origin.filter(|origin| *origin != own);
            }
            Ok::<_, Error>(checked)
        })
    };
    let keep = |checked| keep(&api, &caller, checked);
    let results = placed(&api, read, keep, |checked: &CheckedRecord| &checked.topic).await?;
    if let Some(failure) = failure_of_all("records", &results) {
        return Ok(failure);
    }
    let failed = results.iter().filter(|result| result.is_err()).count();
    let mut texts = ErrorTexts::default();
    let item = |result: Result<AdoptedTask, Error>| match result {
        Ok(kept) => AdoptItem::Kept(SuccessAnswer::of(kept)),
        Err(error) => AdoptItem::Failed { dm_error: error.code(), error_msg: texts.of(&error) },
    };
    let results = results.into_iter().map(item).collect();
    Ok(Success::of(AdoptAnswer { failed, results }).into_response())
}

pub(crate) fn all_checked(
    api: &Api,
    caller: &Caller,
    body: &[u8],
) -> Result<Vec<Result<CheckedRecord, Error>>, Error> {
    let request: AdoptRequest = json::read(body)?;
    let AtMost(records) = request.records;
    let limit = api.bounds().batch_limit;
    if !(1..=limit).contains(&records.len()) {
        return Err(Error::Invalid(format!(
            "records: must hold 1 to {limit} records, not {}",
            records.len()
        )));
    }
    let read = |record: Box<RawValue>| {
        let checked = check(api, &record)?;
        caller.may_use(&checked.topic).map(|()| checked)
    };
    Ok(records.into_iter().map(read).collect())
}

/// Stores the tasks. One result per record, in order; an error if nothing is confirmed.
async fn keep(
    api: &Api,
    caller: &Caller,
    checked: Vec<Result<CheckedRecord, Error>>,
) -> Result<Vec<Result<AdoptedTask, Error>>, Error> {
    let mut topics: HashMap<Topic, Registered> = HashMap::new();
    for CheckedRecord { topic, .. } in checked.iter().flatten() {
        if !topics.contains_key(topic) {
            let known = api.topics.ensure_for(topic, 1, |share| caller.creator(share)).await?;
            topics.insert(topic.clone(), known);
        }
    }
    let (mut tasks, mut notes) = (Vec::new(), Vec::new());
    let places: Vec<Result<TaskId, Error>> = checked
        .into_iter()
        .map(|checked| {
            let CheckedRecord { topic, task, notes: given } = checked?;
            let task = Adoptee { topic: topics[&topic].entry.clone(), ..task };
            check_lane(&task)?;
            notes.push(given);
            let id = task.id;
            tasks.push(task);
            Ok(id)
        })
        .collect();
    let lanes: Vec<Lane> = tasks.iter().map(|task| task.topic.lane_of(task.id)).collect();
    let adopted = match tasks.is_empty() {
        true => Vec::new(),
        false => api.store.adopt(tasks).await,
    };
    if let Some(Err(error)) = adopted.first()
        && adopted.iter().all(Result::is_err)
        && !adopted.iter().any(|adopted| matches!(adopted, Err(store::Error::StaleEntry)))
    {
        return Err(error.clone().into());
    }
    let mut log = Vec::new();
    let mut answers = adopted.into_iter().zip(lanes).zip(notes);
    let answer = |place: Result<TaskId, Error>| {
        let task_id = place?;
        let ((adopted, lane), notes) = answers.next().expect("a store answers every task");
        let (known, became) = match adopted? {
            Adopted::New => (false, None),
            Adopted::Known => (true, None),
            Adopted::Superseded => (false, Some(AdoptionBecame::Superseded)),
            Adopted::Ended => (true, Some(AdoptionBecame::Ended)),
            Adopted::Cancelling => (true, Some(AdoptionBecame::Cancelling)),
            Adopted::Own => return Err(Error::OwnTask),
            Adopted::Taken => return Err(Error::TakenId),
        };
        if !known && became.is_none() {
            log.extend(notes.into_iter().map(|note| note_of(note, &lane, task_id)));
        }
        Ok(AdoptedTask { task_id: task_id.into(), known, became })
    };
    let results = places.into_iter().map(answer).collect();
    if !log.is_empty()
        && let Err(error) = api.store.note(log).await
    {
        tracing::debug!(%error, "The attempts of adopted tasks could not be logged: {error}");
    }
    Ok(results)
}

/// Refuses a task whose `key` or dead-letter callback belongs to another lane: both are found only
/// in the task's own lane.
fn check_lane(task: &Adoptee) -> Result<(), Error> {
    let (entry, lane) = (&task.topic, task.topic.lane_of(task.id));
    let key = task.options.key.as_deref().map(|key| Lane::shard_of_key(key, entry.shards));
    let call = task
        .options
        .on_dead
        .as_ref()
        .and_then(|call| call.task_id)
        .map(|id| entry.lane_of(id).shard);
    if key.into_iter().chain(call).all(|shard| shard == lane.shard) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "task_id: a task with a key or an on_dead can only be moved to a topic with the same \
         number of shards; here the topic has {}",
        entry.shards
    )))
}

/// Reads the parts that are parsed after the record itself.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_parts(record: Record, services: &Services) -> Result<(), Error> {
    record.options.map(|options| read_options(options, services)).transpose().map(drop)
}

fn note_of(note: AdoptedNote, lane: &Lane, id: TaskId) -> AttemptNote {
    AttemptNote {
        lane: lane.clone(),
        id,
        attempt: note.attempt,
        started: UnixMillis(note.started_ms),
        took: Duration::from_millis(note.duration_ms),
        wait: None,
        outcome: note.outcome,
        answer: note.answer,
    }
}

/// A time in milliseconds, from 2001 on.
pub(crate) fn moment(Number(ms): Number, field: &str) -> Result<UnixMillis, Error> {
    if ms.fract() != 0.0 || !(0.0..FAR).contains(&ms) {
        return Err(Error::Invalid(format!("{field}: must be Unix milliseconds")));
    }
    #[allow(clippy::cast_possible_truncation, reason = "just checked to be below 10^14")]
    let ms = ms as i64;
    if ms < EARLIEST {
        return Err(Error::Invalid(format!(
            "{field}: expected Unix milliseconds from 2001 on, got {ms}; seconds must be \
             multiplied by 1000"
        )));
    }
    Ok(UnixMillis(ms))
}

fn check(api: &Api, record: &RawValue) -> Result<CheckedRecord, Error> {
    // The content may have more escaped characters here than in its add.
    let longest = 6 * api.bounds().content_limit + api.bounds().body_limit;
    if record.get().len() > longest {
        return Err(Error::TooLarge(format!("the record is larger than {}", size(longest))));
    }
    let record: Record = json::read(record.get().as_bytes())?;
    let topic = record.topic;
    let id = TaskId::from(record.task_id);
    let latest = (api.clock.now() + TaskId::AHEAD).0.unsigned_abs() / 1_000 * TaskId::PER_SECOND;
    if id.0 > latest {
        return Err(Error::invalid(
            "task_id: lies further ahead of the clock than any allocated id",
        ));
    }
    let due = moment(record.due_ms, "due_ms")?;
    let standing = match record.state.unwrap_or(State::Scheduled) {
        State::Scheduled if record.cancelling == Some(true) => {
            AdoptedStanding::Ended { state: State::Cancelled, finished: api.clock.now() }
        }
        State::Scheduled => AdoptedStanding::Waiting {
            due: record.waits_ms.map_or(Ok(due), |waits| moment(waits, "waits_ms"))?,
        },
        State::Leased => {
            return Err(Error::invalid(
                "state: expected a task that is not leased; export leased tasks with `lend` first",
            ));
        }
        state => AdoptedStanding::Ended {
            state,
            finished: moment(required(record.finished_ms, "finished_ms")?, "finished_ms")?,
        },
    };
    let content = record.content;
    let mode = record.mode;
    let (content_limit, options) = (api.bounds().content_limit, record.options);
    if content.len() > content_limit {
        return Err(Error::TooLarge(format!("content: is larger than {}", size(content_limit))));
    }
    let key = record.key.map(|key| idempotency::checked(key, "key")).transpose()?;
    let options = Options {
        key,
        ..options
            .map(|options| read_options(options, &api.services))
            .transpose()?
            .unwrap_or_default()
    };
    let is_bare = options.removed.is_some();
    if is_bare && !(has_ended_well(&standing) && content.is_empty()) {
        return Err(Error::invalid(
            "options.removed: expected a delivered, cancelled or expired task without content",
        ));
    }
    let destination = match mode {
        Mode::Auto => {
            return Err(Error::invalid("mode: must be \"push\" or \"pull\""));
        }
        Mode::Push if is_bare => called_before(record.destination)?,
        mode => new_task::destination(mode, &api.services, || target(&content))?,
    };
    let outcome = record.last_outcome.unwrap_or_default();
    let notes = record.log.map_or_else(Vec::new, |AtMost(notes)| notes);
    if outcome.len() > MAX_OUTCOME || notes.iter().any(|note| note.answer.len() > MAX_ANSWER) {
        return Err(Error::invalid("last_outcome and log: are longer than a store keeps"));
    }
    let attempts =
        record.attempts.map_or(Ok(0), |attempts| attempts.whole("attempts", 0..=MAX_TRIED))?;
    let created = moment(record.created_ms, "created_ms")?;
    let key_set = record.key_set_ms.map(|set| moment(set, "key_set_ms")).transpose()?;
    let entry = TopicEntry { topic: topic.clone(), shards: 1 };
    let lent = record.lent.unwrap_or_default();
    let task = Adoptee {
        topic: entry,
        id,
        destination,
        created,
        due,
        standing,
        attempts,
        outcome,
        options,
        key_set,
        lent,
        content,
    };
    Ok(CheckedRecord { topic, task, notes })
}

/// Whether the task ended without being dead.
fn has_ended_well(standing: &AdoptedStanding) -> bool {
    matches!(standing, AdoptedStanding::Ended { state, .. } if *state != State::Dead)
}

/// The destination of a task that is not called any more. It need not exist here.
fn called_before(name: Option<String>) -> Result<Destination, Error> {
    let name = required(name, "destination")?;
    let destination: Destination =
        name.parse().map_err(|error| Error::Invalid(format!("destination: {error}")))?;
    match destination.is_pull() {
        true => Err(Error::invalid("destination: expected the name of a service, got @pull")),
        false => Ok(destination),
    }
}

pub(crate) fn read_origin(text: &str, field: &str) -> Result<StoreId, Error> {
    text.parse().map_err(|_| {
        let given: String = text.chars().take(64).collect();
        Error::Invalid(format!(
            "{field}: expected the id of a store, which is 16 characters out of 0-9 a-f, \
             got {given:?}"
        ))
    })
}

fn read_digest(text: &str) -> Result<ContentDigest, Error> {
    text.parse().map_err(|error| Error::Invalid(format!("options.removed: {error}")))
}

fn read_trace(text: &str) -> Result<TraceContext, Error> {
    text.parse().map_err(|error| Error::Invalid(format!("options.traceparent: {error}")))
}

fn read_occurrence(raw: &RawValue) -> Result<Occurrence, Error> {
    serde_json::from_str(raw.get())
        .map_err(|error| Error::Invalid(json::sentence("options.schedule", &error)))
}

/// Checks the options of a task.
fn read_options(given: AdoptedOptions, services: &Services) -> Result<Options, Error> {
    let options = read_options_of(given, services)?;
    let call = options.on_dead.as_ref();
    required(call.map_or(Some(()), |call| call.task_id.map(drop)), "options.on_dead.task_id")?;
    Ok(options)
}

/// Checks the options of a task, or those that a recurring schedule gives to its tasks: their
/// dead-letter calls have no ids yet.
pub(crate) fn read_options_of(
    given: AdoptedOptions,
    services: &Services,
) -> Result<Options, Error> {
    let on_dead = |AdoptedOnDead { sn, url, task_id }| -> Result<OnDead, Error> {
        let call = OnDeadCall { sn, url };
        let call = new_task::stored_on_dead(call, "options.on_dead", services)?;
        Ok(OnDead { task_id: task_id.map(Into::into), ..call })
    };
    // Both lists are whole: a field that is forgotten here would be lost by a move.
    let AdoptedOptions {
        origin,
        max_attempts,
        timeout,
        backoff,
        headers,
        expires_after,
        on_dead: call,
        traceparent,
        schedule,
        removed,
    } = given;
    let options = GivenOptions { max_attempts, timeout, backoff, headers: None, expires_after };
    let below = |error: Error| error.below("options");
    let Options { max_attempts, timeout, backoff, expires_after, .. } =
        options.read().map_err(below)?;
    Ok(Options {
        max_attempts,
        timeout,
        backoff,
        expires_after,
        // The record of a task has it beside the options.
        key: None,
        headers: headers
            .map(new_task::stored_headers)
            .transpose()
            .map_err(below)?
            .unwrap_or_default(),
        origin: origin.as_deref().map(|text| read_origin(text, "options.origin")).transpose()?,
        on_dead: call.map(on_dead).transpose()?,
        traceparent: traceparent.as_deref().map(read_trace).transpose()?,
        schedule: schedule.as_deref().map(read_occurrence).transpose()?.map(Box::new),
        removed: removed.as_deref().map(read_digest).transpose()?,
    })
}
