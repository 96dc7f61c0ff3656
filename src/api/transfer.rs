//! Whole tasks, on their way from one store to another: `records` shows or lends them, `adopt` keeps those of another store, `moved` ends what
//! was lent.
//!
//! Whoever moves tasks is a consumer of them: he leases what is not due yet here, has it adopted there, and says here that it is done. What the
//! store promises of that stands in [`crate::store`] ("From one store to another").

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::add::mode_of;
use super::auth::Caller;
use super::body::JsonBody;
use super::envelope::Success;
use super::error::Error;
use super::fields::{Id, Name, Number, within};
use super::get::Note;
use super::json::{self, required};
use super::new_task::{self, TIMEOUT};
use super::openapi::values::{ReceiptText, TopicName, Way};
use crate::clock::UnixMillis;
use crate::span::Span;
use crate::store::{
    Adopted, Adoptee, AttemptNote, Lent, MAX_ANSWER, MAX_LEASE, MAX_NOTES, MAX_OUTCOME, Registered, Settle, Settled,
    Standing, Store, Task, TopicEntry, Transition,
};
use crate::task::{Destination, Headers, Lane, Mode, OnDead, Options, Receipt, State, TaskId, Topic};

/// The most ids of a call, and the most bytes of contents that it answers, but for a single task.
const MAX_IDS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;
/// Unix milliseconds from this on (the year 5138) are no moments.
const FAR: f64 = 1e14;
/// The most attempts that a task can have had.
const MAX_TRIED: u32 = 1_000_000_000;
/// So far ahead of the clock an id may be: ids are drawn by clocks.
const AHEAD: Duration = Duration::from_secs(86_400);
/// The shortest lease.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// The last outcome of a task that was moved, for the moment until it is forgotten.
const MOVED: &str = "moved to another store";

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecordsRequest)]
pub(super) struct RecordsRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// Which tasks.
    #[schema(value_type = Vec<Id>, min_items = 1, max_items = 1000)]
    task_ids: Option<Vec<Id>>,
    /// Hold those that wait for so long (1 s to 12 h): they are about to be moved. Only those that are held then, and those that have ended, are answered.
    lend: Option<Span>,
    /// Hold them by this receipt, for longer if they are held already; a new one is drawn if there is none.
    #[schema(value_type = Option<ReceiptText>)]
    receipt: Option<Name<Receipt>>,
}

/// Whole tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Records {
    /// What holds those that are lent.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    records: Vec<Record>,
    /// There was no room for these: ask for them again.
    rest: Vec<TaskId>,
}

/// A whole task, as it is adopted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Record {
    topic: Topic,
    task_id: TaskId,
    /// `leased`: somebody else has it just now. What is lent is `scheduled`.
    state: State,
    /// How it leaves.
    #[schema(value_type = Way)]
    mode: &'static str,
    created_ms: UnixMillis,
    /// The due moment that it was stored with, or was moved to by hand.
    due_ms: UnixMillis,
    /// What it waits for, if that is another moment: a retry's.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_ms: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_ms: Option<UnixMillis>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// As `get` shows them, and `task_id` in `on_dead`: the id that the call for the dead will have.
    #[schema(value_type = Object)]
    options: Options,
    content: String,
    /// The attempts that were noted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<Note>,
}

impl Record {
    fn of(topic: &Topic, task: Task, notes: Vec<AttemptNote>) -> Self {
        let lent = Lent::read(&task.last_outcome).filter(|_| task.state == State::Leased);
        let (state, waits, outcome) = match lent {
            Some(Lent { due, outcome }) => (State::Scheduled, Some(due), outcome.to_owned()),
            None => (task.state, None, task.last_outcome),
        };
        Self {
            topic: topic.clone(),
            task_id: task.id,
            state,
            mode: mode_of(&task.destination),
            created_ms: task.created,
            due_ms: task.due,
            waits_ms: waits.filter(|waits| *waits != task.due),
            finished_ms: task.finished,
            attempts: task.attempts,
            last_outcome: Some(outcome).filter(|outcome| !outcome.is_empty()),
            key: task.options.key.clone(),
            options: Options { key: None, ..task.options },
            content: task.content,
            log: notes.into_iter().map(Note::from).collect(),
        }
    }
}

/// `POST /delay/task/records`
pub(super) async fn records(
    Shared(api): Shared<Arc<Api>>,
    JsonBody(body): JsonBody,
) -> Result<Success<Records>, Error> {
    let request: RecordsRequest = json::read(&body)?;
    let Name(topic) = required(request.topic, "topic")?;
    let mut ids = ids(request.task_ids)?;
    let entry = api.topic(&topic).await?.entry;
    let receipt = match request.lend {
        Some(lease) => {
            let lease = within(lease, "lend", MIN_LEASE..=MAX_LEASE)?;
            let receipt = request.receipt.map_or_else(Receipt::random, |Name(receipt)| receipt);
            ids = lent_or_ended(&api, &entry, ids, &receipt, lease).await?;
            Some(receipt)
        }
        None if request.receipt.is_some() => {
            return Err(Error::invalid("receipt: is for lend, and says by what tasks are held"));
        }
        None => None,
    };
    let (mut records, mut bytes) = (Vec::new(), 0);
    let mut ids = ids.into_iter();
    while bytes < MAX_BYTES
        && let Some(id) = ids.next()
    {
        let lane = entry.lane_of(id);
        let Some(task) = api.store.get(&lane, id).await? else { continue };
        let notes = match task.attempts {
            0 => Vec::new(),
            // Nothing depends on them.
            _ => api.store.notes(&lane, id).await.unwrap_or_default(),
        };
        bytes += task.content.len();
        records.push(Record::of(&topic, task, notes));
    }
    if receipt.is_some() {
        // Somebody else's: between the two looks it came back and was claimed.
        records.retain(|record| record.state != State::Leased);
    }
    Ok(Success::of(Records { receipt: receipt.map(|receipt| receipt.to_string()), records, rest: ids.collect() }))
}

fn ids(given: Option<Vec<Id>>) -> Result<Vec<TaskId>, Error> {
    let given = required(given, "task_ids")?;
    if !(1..=MAX_IDS).contains(&given.len()) {
        return Err(Error::Invalid(format!("task_ids: must hold 1 to {MAX_IDS} ids")));
    }
    given.into_iter().map(|id| required(Id::given(Some(id)), "task_ids")).collect()
}

fn by_lane(entry: &TopicEntry, ids: Vec<TaskId>) -> HashMap<Lane, Vec<TaskId>> {
    let mut lanes: HashMap<Lane, Vec<TaskId>> = HashMap::new();
    for id in ids {
        lanes.entry(entry.lane_of(id)).or_default().push(id);
    }
    lanes
}

/// Lends what waits; answers, in order, what is lent now or has ended.
async fn lent_or_ended(
    api: &Api,
    entry: &TopicEntry,
    ids: Vec<TaskId>,
    receipt: &Receipt,
    lease: Duration,
) -> Result<Vec<TaskId>, Error> {
    let mut is_answered: HashMap<TaskId, bool> = HashMap::new();
    for (lane, ids) in by_lane(entry, ids.clone()) {
        let lent = api.store.lend(&lane, ids.clone(), receipt, lease).await?;
        let others: Vec<TaskId> = ids.iter().zip(&lent).filter(|(_, is_lent)| !**is_lent).map(|(id, _)| *id).collect();
        is_answered.extend(ids.into_iter().zip(lent));
        if !others.is_empty() {
            let known = api.store.summaries(&lane, others).await?.into_iter().flatten();
            is_answered.extend(known.filter(|task| task.state.is_final()).map(|task| (task.id, true)));
        }
    }
    Ok(ids.into_iter().filter(|id| is_answered.get(id).is_some_and(|is| *is)).collect())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MovedRequest)]
pub(super) struct MovedRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// Which tasks.
    #[schema(value_type = Vec<Id>, min_items = 1, max_items = 1000)]
    task_ids: Option<Vec<Id>>,
    /// What `records` lent them by.
    #[schema(value_type = ReceiptText)]
    receipt: Option<Name<Receipt>>,
    /// They were not moved: each waits again as it did before.
    back: Option<bool>,
}

/// What became of lent tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ended {
    /// Gone from here, or back.
    count: u64,
    /// Not held by this receipt any more; nothing changed.
    stale: Vec<TaskId>,
}

/// `POST /delay/task/moved`: what was adopted elsewhere is forgotten here. May be repeated.
pub(super) async fn moved(Shared(api): Shared<Arc<Api>>, JsonBody(body): JsonBody) -> Result<Success<Ended>, Error> {
    let request: MovedRequest = json::read(&body)?;
    let Name(topic) = required(request.topic, "topic")?;
    let Name(receipt) = required(request.receipt, "receipt")?;
    let ids = ids(request.task_ids)?;
    let is_back = request.back.unwrap_or_default();
    let entry = api.topic(&topic).await?.entry;
    let settle = |id: &TaskId| Settle {
        lane: entry.lane_of(*id),
        id: *id,
        receipt: receipt.clone(),
        transition: if is_back { Transition::Release } else { Transition::Delivered { outcome: MOVED.into() } },
    };
    let settled = api.store.settle(ids.iter().map(settle).collect()).await;
    let (mut gone, mut count, mut stale) = (Vec::new(), 0, Vec::new());
    for (id, settled) in ids.into_iter().zip(settled) {
        match settled? {
            Settled::Stale { .. } => stale.push(id),
            // Forgotten by the same call before, whose answer was lost.
            Settled::Unknown => count += 1,
            Settled::Done => {
                count += 1;
                gone.push(id);
            }
        }
    }
    if !is_back {
        for (lane, ids) in by_lane(&entry, gone) {
            api.store.discard(&lane, State::Delivered, ids).await?;
        }
    }
    Ok(Success::of(Ended { count, stale }))
}

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
    headers: Option<std::collections::BTreeMap<String, String>>,
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
    Failed { dm_error: u16, error_msg: String },
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
    let checked: Vec<Result<Checked, Error>> = records
        .iter()
        .map(|record| {
            let checked = check(&api, record)?;
            caller.may_use(&checked.topic).map(|()| checked)
        })
        .collect();
    let results = keep(&api, checked).await?;
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
        return Err(Error::TooLarge(format!("content: is larger than {}", super::body::size(content_limit))));
    }
    let destination = match mode {
        Mode::Auto => return Err(Error::invalid("mode: must be \"push\" or \"pull\", as it was decided")),
        mode => new_task::destination(&content, mode, &api.services)?,
    };
    let key = record.key.map(|key| super::sameness::checked(key, "key")).transpose()?;
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
        crate::callback::check_url(&url).map_err(|error| Error::Invalid(format!("options.on_dead.url: {error}")))?;
        if !sn.is_service() {
            return Err(Error::invalid("options.on_dead.sn: must be a service"));
        }
        Ok(OnDead { sn, url, task_id: Some(task_id) })
    };
    let attempts = given.max_attempts.map(|number| number.whole("options.max_attempts", new_task::MAX_ATTEMPTS));
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
