//! `POST /delay/task/adopt`: from the records of another store to tasks of this one.
//!
//! A record is checked as an add is: who calls it must be known here, its host be allowed. Each is answered by itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::add::{PLACINGS, reload};
use super::auth::Caller;
use super::body::{JsonBody, size};
use super::envelope::Success;
use super::error::Error;
use super::fields::{Id, Name, Number, within};
use super::json::{self, required};
use super::new_task::{self, MAX_ATTEMPTS, TIMEOUT};
use super::openapi::values::{TopicName, Way};
use super::sameness;
use crate::callback::{check_url, target};
use crate::clock::UnixMillis;
use crate::span::Span;
use crate::store::{
    self, Adopted, Adoptee, AttemptNote, Lent, MAX_ANSWER, MAX_NOTES, MAX_OUTCOME, Registered, Standing, Store,
    TopicEntry,
};
use crate::task::{Destination, Headers, Lane, Mode, OnDead, Options, State, TaskId, Topic};

/// Unix milliseconds from this on (the year 5138) are no moments.
const FAR: f64 = 1e14;
/// The most attempts that a task can have had.
const MAX_TRIED: u32 = 1_000_000_000;
/// So far ahead of the clock an id may be: ids are drawn by clocks.
const AHEAD: Duration = Duration::from_secs(86_400);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdoptRequest<'a> {
    // Each is read on its own, so that one bad record does not spoil the others.
    /// As `records` answers them.
    #[serde(borrow)]
    #[schema(value_type = Vec<RecordRequest<'_>>, min_items = 1)]
    records: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AdoptedRecord)]
pub(super) struct RecordRequest<'a> {
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// The id that it keeps.
    #[schema(value_type = Id)]
    task_id: Option<Id>,
    /// `scheduled` (default), or how it ended.
    state: Option<State>,
    #[schema(value_type = Way)]
    mode: Option<Mode>,
    #[schema(value_type = f64)]
    created_ms: Option<Number>,
    #[schema(value_type = f64)]
    due_ms: Option<Number>,
    #[schema(value_type = Option<f64>)]
    waits_ms: Option<Number>,
    #[schema(value_type = Option<f64>)]
    finished_ms: Option<Number>,
    #[schema(value_type = Option<u32>)]
    attempts: Option<Number>,
    last_outcome: Option<String>,
    #[schema(min_length = 1, max_length = 256)]
    key: Option<String>,
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    options: Option<&'a RawValue>,
    #[schema(value_type = String)]
    content: Option<String>,
    log: Option<Vec<GivenNote>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AdoptedNote)]
pub(super) struct GivenNote {
    attempt: u32,
    #[schema(value_type = i64)]
    started_ms: i64,
    duration_ms: u64,
    outcome: String,
    answer: String,
}

/// The options of a record.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenOptions<'a> {
    max_attempts: Option<Number>,
    timeout: Option<Span>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
    headers: Option<BTreeMap<String, String>>,
    expires_after: Option<Span>,
    on_dead: Option<GivenCall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenCall {
    sn: Option<Name<Destination>>,
    url: Option<String>,
    task_id: Option<Id>,
}

/// What became of an adoption.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdoptAnswer)]
pub(super) struct Adoptions {
    /// How many were not adopted.
    failed: usize,
    /// Each record's answer, in order.
    results: Vec<Item>,
}

/// By this name the derive need not look into generics.
type KeptInPlace = Success<Kept>;

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AdoptItem)]
pub(super) enum Item {
    Kept(KeptInPlace),
    Failed {
        #[schema(minimum = 1000)]
        dm_error: u16,
        error_msg: String,
    },
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdoptedTask)]
pub(super) struct Kept {
    task_id: TaskId,
    /// It had been adopted before.
    known: bool,
}

/// A record that passed the checks.
struct Checked {
    /// Its topic's entry is filled in once it is at hand.
    topic: Topic,
    task: Adoptee,
    notes: Vec<GivenNote>,
}

/// `POST /delay/task/adopt`: keeps tasks of another store under their ids. May be repeated.
pub(super) async fn adopt(
    Shared(api): Shared<Arc<Api>>,
    caller: Caller,
    JsonBody(body): JsonBody,
) -> Result<Success<Adoptions>, Error> {
    api.check_accepting()?;
    let request: AdoptRequest<'_> = json::read(&body)?;
    let records = required(request.records, "records")?;
    let limit = api.bounds().batch_limit;
    if !(1..=limit).contains(&records.len()) {
        return Err(Error::Invalid(format!("records: must hold 1 to {limit} records, not {}", records.len())));
    }
    let read = |records: &[&RawValue]| -> Vec<Result<Checked, Error>> {
        let read = |record: &&RawValue| {
            let checked = check(&api, record)?;
            caller.may_use(&checked.topic).map(|()| checked)
        };
        records.iter().map(read).collect()
    };
    let mut results = keep(&api, read(&records)).await?;
    for _ in 1..PLACINGS {
        // Nothing was kept of these, for their topics' entries were old ones.
        let stale: Vec<usize> =
            (0..records.len()).filter(|&i| results[i].as_ref().is_err_and(Error::is_stale_entry)).collect();
        if stale.is_empty() {
            break;
        }
        let again = read(&stale.iter().map(|&i| records[i]).collect::<Vec<_>>());
        reload(&api, again.iter().flatten().map(|checked| &checked.topic)).await?;
        stale.into_iter().zip(keep(&api, again).await?).for_each(|(i, result)| results[i] = result);
    }
    let failed = results.iter().filter(|result| result.is_err()).count();
    let item = |result: Result<Kept, Error>| match result {
        Ok(kept) => Item::Kept(Success::of(kept)),
        Err(error) => Item::Failed { dm_error: error.dm_error(), error_msg: error.message() },
    };
    Ok(Success::of(Adoptions { failed, results: results.into_iter().map(item).collect() }))
}

/// One answer per record, in order; an error if nothing of it is confirmed.
async fn keep(api: &Api, checked: Vec<Result<Checked, Error>>) -> Result<Vec<Result<Kept, Error>>, Error> {
    let mut topics: HashMap<Topic, Registered> = HashMap::new();
    for Checked { topic, .. } in checked.iter().flatten() {
        if !topics.contains_key(topic) {
            topics.insert(topic.clone(), api.topics.ensure(topic).await?);
        }
    }
    let (mut tasks, mut notes) = (Vec::new(), Vec::new());
    let places: Vec<Result<TaskId, Error>> = checked
        .into_iter()
        .map(|checked| {
            let Checked { topic, task, notes: given } = checked?;
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
        false => api.store.promptly(async { Ok(api.store.adopt(tasks).await) }).await?,
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
        let known = match adopted? {
            Adopted::New => false,
            Adopted::Known => true,
            Adopted::Own => return Err(Error::OwnTask),
            Adopted::Taken => return Err(Error::TakenId),
        };
        if !known {
            log.extend(notes.into_iter().map(|note| note.of(&lane, task_id)));
        }
        Ok(Kept { task_id, known })
    };
    let results = places.into_iter().map(answer).collect();
    if !log.is_empty()
        && let Err(error) = api.store.note(log).await
    {
        tracing::debug!(%error, "The attempts of adopted tasks could not be noted: {error}");
    }
    Ok(results)
}

/// What hangs together lies in one lane: a key finds its task in its own, and a call for the dead is made in that of its dead.
fn check_lane(task: &Adoptee) -> Result<(), Error> {
    let (entry, lane) = (&task.topic, task.topic.lane_of(task.id));
    let key = task.options.key.as_deref().map(|key| Lane::shard_of_key(key, entry.shards));
    let call = task.options.on_dead.as_ref().and_then(|call| call.task_id).map(|id| entry.lane_of(id).shard);
    if key.into_iter().chain(call).all(|shard| shard == lane.shard) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "task_id: it has a key or an on_dead, and its id was drawn for another number of shards than the {} that the topic has here",
        entry.shards
    )))
}

impl GivenNote {
    fn of(self, lane: &Lane, id: TaskId) -> AttemptNote {
        AttemptNote {
            lane: lane.clone(),
            id,
            attempt: self.attempt,
            started: UnixMillis(self.started_ms),
            took: Duration::from_millis(self.duration_ms),
            outcome: self.outcome,
            answer: self.answer,
        }
    }
}

/// A moment in milliseconds.
fn moment(Number(ms): Number, field: &str) -> Result<UnixMillis, Error> {
    if ms.fract() != 0.0 || !(0.0..FAR).contains(&ms) {
        return Err(Error::Invalid(format!("{field}: must be Unix milliseconds")));
    }
    #[allow(clippy::cast_possible_truncation, reason = "just checked to be below 10^14")]
    Ok(UnixMillis(ms as i64))
}

fn check(api: &Api, record: &RawValue) -> Result<Checked, Error> {
    let record: RecordRequest<'_> = json::read(record.get().as_bytes())?;
    let Name(topic) = required(record.topic, "topic")?;
    let id = required(Id::given(record.task_id), "task_id")?;
    let latest = (api.clock.now() + AHEAD).0.unsigned_abs() / 1_000 * TaskId::PER_SECOND;
    if id.0 > latest {
        return Err(Error::invalid("task_id: lies further ahead of the clock than any id is drawn"));
    }
    let due = moment(required(record.due_ms, "due_ms")?, "due_ms")?;
    let standing = match record.state.unwrap_or(State::Scheduled) {
        State::Scheduled => {
            Standing::Waiting { due: record.waits_ms.map_or(Ok(due), |waits| moment(waits, "waits_ms"))? }
        }
        State::Leased => return Err(Error::invalid("state: who has it may still succeed; it is to be lent before")),
        state => {
            Standing::Ended { state, finished: moment(required(record.finished_ms, "finished_ms")?, "finished_ms")? }
        }
    };
    let content = required(record.content, "content")?;
    let mode = required(record.mode, "mode")?;
    let (content_limit, options) = (api.bounds().content_limit, record.options);
    if content.len() > content_limit {
        return Err(Error::TooLarge(format!("content: is larger than {}", size(content_limit))));
    }
    let destination = match mode {
        Mode::Auto => return Err(Error::invalid("mode: must be \"push\" or \"pull\", as it was decided")),
        mode => new_task::destination(mode, &api.services, || target(&content))?,
    };
    let key = record.key.map(|key| sameness::checked(key, "key")).transpose()?;
    let options = Options { key, ..options.map(read_options).transpose()?.unwrap_or_default() };
    let outcome = record.last_outcome.unwrap_or_default();
    if Lent::read(&outcome).is_some() {
        return Err(Error::invalid("last_outcome: is that of a task that is lent, and means something to the store"));
    }
    let notes = record.log.unwrap_or_default();
    if outcome.len() > MAX_OUTCOME || notes.len() > MAX_NOTES || notes.iter().any(|note| note.answer.len() > MAX_ANSWER)
    {
        return Err(Error::invalid("last_outcome and log: are longer than any that are kept"));
    }
    let attempts = record.attempts.map_or(Ok(0), |attempts| attempts.whole("attempts", 0..=MAX_TRIED))?;
    let created = moment(required(record.created_ms, "created_ms")?, "created_ms")?;
    let entry = TopicEntry { topic: topic.clone(), shards: 1 };
    let task = Adoptee { topic: entry, id, destination, created, due, standing, attempts, outcome, options, content };
    Ok(Checked { topic, task, notes })
}

fn read_options(raw: &RawValue) -> Result<Options, Error> {
    let given: GivenOptions<'_> = json::read(raw.get().as_bytes())?;
    let headers = given.headers.map(Headers::new).transpose();
    let on_dead = |call: GivenCall| {
        let Name(sn) = required(call.sn, "options.on_dead.sn")?;
        let url = required(call.url, "options.on_dead.url")?;
        let task_id = required(Id::given(call.task_id), "options.on_dead.task_id")?;
        check_url(&url).map_err(|error| Error::Invalid(format!("options.on_dead.url: {error}")))?;
        if !sn.is_service() {
            return Err(Error::invalid("options.on_dead.sn: must be a service"));
        }
        Ok(OnDead { sn, url, task_id: Some(task_id) })
    };
    let attempts = given.max_attempts.map(|number| number.whole("options.max_attempts", MAX_ATTEMPTS));
    Ok(Options {
        max_attempts: attempts.transpose()?,
        timeout: given.timeout.map(|span| within(span, "options.timeout", TIMEOUT).map(Span)).transpose()?,
        backoff: given.backoff.map(new_task::backoff).transpose()?,
        headers: headers.map_err(|error| Error::Invalid(format!("options.headers: {error}")))?.unwrap_or_default(),
        key: None,
        expires_after: given.expires_after,
        on_dead: given.on_dead.map(on_dead).transpose()?,
    })
}
