//! `POST /delay/task/adopt`: from the records of another store to tasks of this one.
//!
//! A record is checked as an add is: who calls it must be known here, its host be allowed. Each is
//! answered by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use delayd_wire::schema::TaskIdGiven;
use delayd_wire::{AdoptAnswer, AdoptItem, AdoptedTask, AdoptionBecame, Answer, Way};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::auth::Caller;
use crate::api::handlers::task::add::MAX_BATCH;
use crate::api::handlers::task::new_task::{self, MAX_ATTEMPTS, MAX_ON_DEAD, TIMEOUT};
use crate::api::handlers::task::placing::placed;
use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{AtMost, Id, Name, Number, within};
use crate::api::wire::idempotency;
use crate::api::wire::json::{self, required};
use crate::api::wire::long_body::{reading, size};
use crate::callback::{Services, target};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Mode, OnDead, Options, State, StoreId, TaskId, Topic};
use crate::store::{
    self, Admin, Adopted, Adoptee, AttemptNote, Delivery, MAX_ANSWER, MAX_NOTES, MAX_OUTCOME,
    Registered, Standing, TopicEntry,
};
use delayd_wire::OneOf;
use delayd_wire::Span;

/// Unix milliseconds from this on (the year 5138) are no moments.
const FAR: f64 = 1e14;
/// The longest JSON text, in bytes, of a record's log and of its options: the most that they hold,
/// with every character escaped.
const MAX_LOG: usize = 512 << 10;
const MAX_OPTIONS: usize = 256 << 10;
/// The most attempts that a task can have had.
const MAX_TRIED: u32 = 1_000_000_000;
/// So far ahead of the clock an id may be: ids are drawn by clocks.
const AHEAD: Duration = Duration::from_secs(86_400);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdoptRequest<'a> {
    // Each is read on its own, so that one bad record does not spoil the others.
    /// As `records` answers them.
    #[serde(borrow)]
    #[schema(value_type = Vec<RecordRequest<'_>>, min_items = 1)]
    records: Option<AtMost<&'a RawValue, MAX_BATCH>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AdoptedRecord)]
pub(crate) struct RecordRequest<'a> {
    #[schema(value_type = delayd_wire::TopicName)]
    topic: Option<Name<Topic>>,
    /// The id that it keeps.
    #[schema(value_type = TaskIdGiven)]
    task_id: Option<Id>,
    /// `scheduled` (default), or how it ended.
    #[schema(value_type = Option<State>)]
    state: Option<OneOf<State>>,
    #[schema(value_type = Way)]
    mode: Option<OneOf<Mode>>,
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
    /// A cancel is pending there: here the task is cancelled.
    cancelling: Option<bool>,
    #[schema(min_length = 1, max_length = 256)]
    key: Option<String>,
    #[schema(value_type = Option<f64>)]
    key_set_ms: Option<Number>,
    /// The other service lends the task, and goes on with it if it is refused here.
    lent: Option<bool>,
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    options: Option<&'a RawValue>,
    #[schema(value_type = String)]
    content: Option<String>,
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<GivenNote>>)]
    log: Option<&'a RawValue>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AdoptedNote)]
pub(crate) struct GivenNote {
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
    origin: Option<String>,
    max_attempts: Option<Number>,
    timeout: Option<Span>,
    #[serde(borrow)]
    backoff: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    expires_after: Option<Span>,
    #[serde(borrow)]
    on_dead: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenCall {
    sn: Option<Name<Destination>>,
    url: Option<String>,
    task_id: Option<Id>,
}

/// A record that passed the checks.
pub(crate) struct Checked {
    /// Its topic's entry is filled in once it is at hand.
    topic: Topic,
    task: Adoptee,
    notes: Vec<GivenNote>,
}

/// `POST /delay/task/adopt`: keeps tasks of another store under their ids. May be repeated.
pub(crate) async fn adopt(
    api: Arc<Api>,
    Routed { request, caller, .. }: Routed,
) -> Result<Success<AdoptAnswer>, Error> {
    api.check_accepting()?;
    // A task that returns to the store that first accepted it needs no origin.
    let own = api.store.id().await?;
    let read = || {
        let (api, caller) = (api.clone(), caller.clone());
        reading(request.body().clone(), move |body| {
            let mut checked = all_checked(&api, &caller, body)?;
            for Checked { task, .. } in checked.iter_mut().flatten() {
                task.options.origin = task.options.origin.filter(|origin| *origin != own);
            }
            Ok::<_, Error>(checked)
        })
    };
    let keep = |checked| keep(&api, checked);
    let results = placed(&api, read, keep, |checked: &Checked| &checked.topic).await?;
    let failed = results.iter().filter(|result| result.is_err()).count();
    let item = |result: Result<AdoptedTask, Error>| match result {
        Ok(kept) => AdoptItem::Kept(Answer::of(kept)),
        Err(error) => AdoptItem::Failed { dm_error: error.code(), error_msg: error.message() },
    };
    Ok(Success::of(AdoptAnswer { failed, results: results.into_iter().map(item).collect() }))
}

pub(crate) fn all_checked(
    api: &Api,
    caller: &Caller,
    body: &[u8],
) -> Result<Vec<Result<Checked, Error>>, Error> {
    let request: AdoptRequest<'_> = json::read(body)?;
    let AtMost(records) = required(request.records, "records")?;
    let limit = api.bounds().batch_limit;
    if !(1..=limit).contains(&records.len()) {
        return Err(Error::Invalid(format!(
            "records: must hold 1 to {limit} records, not {}",
            records.len()
        )));
    }
    let read = |record: &RawValue| {
        let checked = check(api, record)?;
        caller.may_use(&checked.topic).map(|()| checked)
    };
    Ok(records.into_iter().map(read).collect())
}

/// One answer per record, in order; an error if nothing of it is confirmed.
async fn keep(
    api: &Api,
    checked: Vec<Result<Checked, Error>>,
) -> Result<Vec<Result<AdoptedTask, Error>>, Error> {
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
            log.extend(notes.into_iter().map(|note| note.of(&lane, task_id)));
        }
        Ok(AdoptedTask { task_id: task_id.into(), known, became })
    };
    let results = places.into_iter().map(answer).collect();
    if !log.is_empty()
        && let Err(error) = api.store.note(log).await
    {
        tracing::debug!(%error, "The attempts of adopted tasks could not be noted: {error}");
    }
    Ok(results)
}

/// What hangs together lies in one lane: a key finds its task in its own, and a call for the dead
/// is made in that of its dead.
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
        "task_id: it has a key or an on_dead, and its id was drawn for another number of shards than the {} that the topic has here",
        entry.shards
    )))
}

impl RecordRequest<'_> {
    /// Reads what is kept as it stands until the record is checked.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn check_parts(&self, services: &Services) -> Result<(), Error> {
        self.log.map(read_log).transpose()?;
        self.options.map(|options| read_options(options, services)).transpose().map(drop)
    }
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
    // A content may have been added with fewer characters escaped than it is written with here.
    let longest = 6 * api.bounds().content_limit + api.body_limit.bytes();
    if record.get().len() > longest {
        return Err(Error::TooLarge(format!("the record is larger than {}", size(longest))));
    }
    let record: RecordRequest<'_> = json::read(record.get().as_bytes())?;
    let Name(topic) = required(record.topic, "topic")?;
    let id = required(Id::given(record.task_id), "task_id")?;
    let latest = (api.clock.now() + AHEAD).0.unsigned_abs() / 1_000 * TaskId::PER_SECOND;
    if id.0 > latest {
        return Err(Error::invalid(
            "task_id: lies further ahead of the clock than any id is drawn",
        ));
    }
    let due = moment(required(record.due_ms, "due_ms")?, "due_ms")?;
    let standing = match record.state.map_or(State::Scheduled, |OneOf(state)| state) {
        State::Scheduled if record.cancelling == Some(true) => {
            Standing::Ended { state: State::Cancelled, finished: api.clock.now() }
        }
        State::Scheduled => Standing::Waiting {
            due: record.waits_ms.map_or(Ok(due), |waits| moment(waits, "waits_ms"))?,
        },
        State::Leased => {
            return Err(Error::invalid(
                "state: who has it may still succeed; it is to be lent before",
            ));
        }
        state => Standing::Ended {
            state,
            finished: moment(required(record.finished_ms, "finished_ms")?, "finished_ms")?,
        },
    };
    let content = required(record.content, "content")?;
    let OneOf(mode) = required(record.mode, "mode")?;
    let (content_limit, options) = (api.bounds().content_limit, record.options);
    if content.len() > content_limit {
        return Err(Error::TooLarge(format!("content: is larger than {}", size(content_limit))));
    }
    let destination = match mode {
        Mode::Auto => {
            return Err(Error::invalid("mode: must be \"push\" or \"pull\", as it was decided"));
        }
        mode => new_task::destination(mode, &api.services, || target(&content))?,
    };
    let key = record.key.map(|key| idempotency::checked(key, "key")).transpose()?;
    let options = Options {
        key,
        ..options
            .map(|options| read_options(options, &api.services))
            .transpose()?
            .unwrap_or_default()
    };
    let outcome = record.last_outcome.unwrap_or_default();
    let notes = record.log.map(read_log).transpose()?.unwrap_or_default();
    if outcome.len() > MAX_OUTCOME || notes.iter().any(|note| note.answer.len() > MAX_ANSWER) {
        return Err(Error::invalid("last_outcome and log: are longer than any that are kept"));
    }
    let attempts =
        record.attempts.map_or(Ok(0), |attempts| attempts.whole("attempts", 0..=MAX_TRIED))?;
    let created = moment(required(record.created_ms, "created_ms")?, "created_ms")?;
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
    Ok(Checked { topic, task, notes })
}

fn read_log(raw: &RawValue) -> Result<Vec<GivenNote>, Error> {
    json::check_length(raw, "log", MAX_LOG)?;
    let AtMost(notes) = serde_json::from_str::<AtMost<GivenNote, MAX_NOTES>>(raw.get())
        .map_err(|error| Error::Invalid(json::sentence("log", &error)))?;
    Ok(notes)
}

fn read_origin(text: &str) -> Result<StoreId, Error> {
    text.parse().map_err(|_| {
        let given: String = text.chars().take(64).collect();
        Error::Invalid(format!(
            "options.origin: expected the id of a store, which is 16 characters out of 0-9 a-f, got {given:?}"
        ))
    })
}

fn read_options(raw: &RawValue, services: &Services) -> Result<Options, Error> {
    let given: GivenOptions<'_> = json::read_field(raw, "options", MAX_OPTIONS)?;
    let on_dead = |raw: &RawValue| -> Result<OnDead, Error> {
        let call: GivenCall = json::read_field(raw, "options.on_dead", MAX_ON_DEAD)?;
        let task_id = required(Id::given(call.task_id), "options.on_dead.task_id")?;
        let call = new_task::on_dead(call.sn, call.url, "options.on_dead", services)?;
        Ok(OnDead { task_id: Some(task_id), ..call })
    };
    let headers = given.headers.map(|raw| new_task::headers(raw, "options.headers"));
    let attempts =
        given.max_attempts.map(|number| number.whole("options.max_attempts", MAX_ATTEMPTS));
    Ok(Options {
        origin: given.origin.as_deref().map(read_origin).transpose()?,
        max_attempts: attempts.transpose()?,
        timeout: given
            .timeout
            .map(|span| within(span, "options.timeout", TIMEOUT).map(Span))
            .transpose()?,
        backoff: given.backoff.map(|raw| new_task::backoff(raw, "options.backoff")).transpose()?,
        headers: headers.transpose()?.unwrap_or_default(),
        key: None,
        expires_after: given
            .expires_after
            .map(|span| new_task::expiry(span, "options.expires_after"))
            .transpose()?,
        on_dead: given.on_dead.map(on_dead).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use delayd_wire::{Note, Record};
    use utoipa::PartialSchema;
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::Schema;

    use super::*;

    /// What a record has and its reader does not know would be refused by every store that adopts
    /// it.
    #[test]
    fn a_record_is_read_with_the_fields_that_it_is_written_with() {
        let fields = |schema: RefOr<Schema>| -> BTreeSet<String> {
            let RefOr::T(Schema::Object(object)) = schema else { panic!("a struct is an object") };
            object.properties.into_keys().collect()
        };
        assert_eq!(fields(RecordRequest::schema()), fields(Record::<()>::schema()));
        assert_eq!(fields(GivenNote::schema()), fields(Note::schema()));
    }
}
