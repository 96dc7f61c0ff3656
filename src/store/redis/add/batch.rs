//! A batch of adds: `lua/add.lua`, or `lua/add_with_options.lua` for those of which more is asked,
//! called for each of its lanes, and read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::Arc;

use deadpool_redis::redis::{Cmd, FromRedisValue, RedisWrite, Value};
use serde::Serialize;

use super::{Kept, Request};
use crate::clock::UnixMillis;
use crate::store::redis::Inner;
use crate::store::redis::ids::hand::{Drawn, Wish};
use crate::store::redis::ids::{Run, script_call};
use crate::store::redis::record::write_options;
use crate::store::redis::registry::opening::{self, Refusal};
use crate::store::redis::script;
use crate::store::redis::transport::link::Repeat;
use crate::store::redis::transport::node::Purpose;
use crate::store::{Added, Error, Hint, Idempotency, Moment, NewTask, Novelty, Result, TopicEntry};
use crate::task::{Lane, Options, State, TaskId};

/// The most tasks of one script call: half a millisecond where Redis has a processor to itself.
const MOST_TASKS: usize = 128;
/// The most body bytes of one script call; a batch ends with the request that reaches them.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// A task of a batch: whose request, which of its members, and the ids that were drawn for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    request: usize,
    member: usize,
    drawn: Drawn,
}

/// Requests that are carried out together, and what is known of each so far.
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None`: it is answered.
    requests: Vec<Option<Request>>,
    kept: Vec<Vec<Result<Kept>>>,
    /// Calls that stored nothing, because their lanes are not open to them.
    pub(crate) refused: Vec<(Call, Refusal)>,
    /// The server run that the ids belong to.
    run: Option<Run>,
}

/// One call of a script.
#[derive(Debug)]
pub(crate) struct Call {
    lane: Lane,
    /// The number of lanes of the topic that its tasks were placed by.
    shards: u16,
    /// Whether more is asked than that the tasks be delivered.
    is_unlike: bool,
    places: Vec<Place>,
}

impl Batch {
    fn of(requests: Vec<Request>) -> Self {
        // What nothing is said of has not been sent: its caller went while ids were drawn. All
        // others are answered, or have failed.
        let kept =
            requests.iter().map(|request| vec![Ok(Kept::Taken); request.tasks.len()]).collect();
        let requests = requests.into_iter().map(Some).collect();
        Self { requests, kept, refused: Vec::new(), run: None }
    }

    /// Every task's, in order: what it asks of its ids.
    fn wishes(&self) -> Vec<Wish> {
        let requests = self.requests.iter().flatten();
        requests
            .flat_map(|request| (0..request.tasks.len()).map(|place| request.wish(place)))
            .collect()
    }

    /// Where every task stands, in order, with its ids.
    fn places(&self, drawn: Vec<Drawn>) -> impl Iterator<Item = Place> {
        let requests = self.kept.iter().enumerate();
        let places = requests
            .flat_map(|(request, kept)| (0..kept.len()).map(move |member| (request, member)));
        places.zip(drawn).map(|((request, member), drawn)| Place { request, member, drawn })
    }

    fn task(&self, place: Place) -> &NewTask {
        &self.requests[place.request].as_ref().expect("its caller waits").tasks[place.member]
    }

    /// What became of a task.
    pub(crate) fn note(&mut self, place: Place, kept: Result<Kept>) {
        self.kept[place.request][place.member] = kept;
    }

    /// The same became of all.
    fn note_all(&mut self, error: &Error) {
        self.kept.iter_mut().flatten().for_each(|kept| *kept = Err(error.clone()));
    }

    /// Tells every caller who still waits what became of their tasks.
    pub(crate) fn answer(&mut self) {
        let waiting = self.requests.iter_mut().zip(&mut self.kept);
        waiting.for_each(|(request, kept)| {
            request.take().into_iter().for_each(|asked| asked.answer(std::mem::take(kept)))
        });
    }

    /// Tells all callers but those of refused tasks.
    pub(crate) fn answer_others(&mut self) {
        let refused: HashSet<usize> = self
            .refused
            .iter()
            .flat_map(|(call, _)| &call.places)
            .map(|place| place.request)
            .collect();
        let waiting = self
            .requests
            .iter_mut()
            .zip(&mut self.kept)
            .enumerate()
            .filter(|(at, _)| !refused.contains(at));
        waiting.for_each(|(_, (request, kept))| {
            request.take().into_iter().for_each(|asked| asked.answer(std::mem::take(kept)));
        });
    }

    /// The calls to be made: of each lane one for those that are only to be delivered, sorted by
    /// destination, and one for the others; more if there are many. A quota counts those before, so
    /// where there is one, all tasks of the lane are carried out in their order.
    fn calls(&self, drawn: Vec<Drawn>) -> Vec<Call> {
        let mut lanes: HashMap<(Lane, u16), Vec<Place>> = HashMap::new();
        // Those who have been refused while ids were drawn are left out, each with all of his
        // tasks: who goes later has them all stored.
        let waits: Vec<bool> = self
            .requests
            .iter()
            .map(|request| request.as_ref().is_some_and(|asked| !asked.is_abandoned()))
            .collect();
        for place in self.places(drawn).filter(|place| waits[place.request]) {
            let topic = &self.task(place).topic;
            lanes.entry((topic.lane_of(place.drawn.own), topic.shards)).or_default().push(place);
        }
        let mut calls = Vec::with_capacity(lanes.len());
        for ((lane, shards), places) in lanes {
            let is_limited = places.iter().any(|&place| self.task(place).quota.is_some());
            let (unlike, mut plain): (Vec<_>, Vec<_>) =
                places.into_iter().partition(|&place| is_limited || is_unlike(self.task(place)));
            plain.sort_by(|&a, &b| self.task(a).destination.cmp(&self.task(b).destination));
            for (is_unlike, places) in [(false, plain), (true, unlike)] {
                let chunks = chunks(places, |&place| self.task(place).content.len()).into_iter();
                calls.extend(chunks.map(|places| Call {
                    lane: lane.clone(),
                    shards,
                    is_unlike,
                    places,
                }));
            }
        }
        calls
    }
}

/// Splits a lane's tasks into script calls of bounded length. `length` is that of a task's content.
pub(crate) fn chunks<T>(tasks: Vec<T>, length: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut chunks: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for task in tasks {
        let length = length(&task);
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < MOST_TASKS && bytes + length <= MOST_BYTES => {
                chunk.push(task);
                bytes += length;
            }
            _ => {
                chunks.push(vec![task]);
                bytes = length;
            }
        }
    }
    chunks
}

/// Carries the requests out; what became of them is told by [`Batch::answer`].
pub(crate) async fn add(inner: &Arc<Inner>, requests: Vec<Request>) -> Batch {
    let mut batch = Batch::of(requests);
    let (drawn, run) = match inner.ids.draw(&batch.wishes(), inner).await {
        Ok(drawn) => drawn,
        Err(error) => {
            batch.note_all(&error);
            return batch;
        }
    };
    let calls = batch.calls(drawn);
    batch.run = Some(run);
    batch.send(inner, calls.into_iter().map(|call| (call, None)).collect()).await;
    batch
}

impl Batch {
    /// Sends calls, each with the token that opens its lane if it has one, and notes what became of
    /// their tasks.
    async fn send(&mut self, inner: &Inner, calls: Vec<(Call, Option<String>)>) {
        let Some(run) = self.run.clone() else { return };
        let commands: Vec<Cmd> = calls
            .iter()
            .map(|(call, token)| command(inner, call, token.as_deref(), self))
            .collect();
        let replies =
            inner.servers.run(Purpose::Adding, &commands, Repeat::While(&|| run.lasts())).await;
        for ((call, _), reply) in calls.into_iter().zip(replies) {
            match read(&call, reply, self) {
                Ok(Ok(kept)) => {
                    hint(inner, &call, &kept, self);
                    call.places.iter().zip(kept).for_each(|(&place, kept)| self.note(place, kept));
                }
                Ok(Err(refusal)) => self.refused.push((call, refusal)),
                Err(error) => {
                    call.places.iter().for_each(|&place| self.note(place, Err(error.clone())))
                }
            }
        }
    }

    /// Has the lanes opened that refused calls, as far as the registry agrees, and sends those
    /// again. All callers are answered then.
    pub(crate) async fn open_lanes(mut self, inner: &Inner) {
        for _ in 0..opening::ATTEMPTS {
            let refused = std::mem::take(&mut self.refused);
            if refused.is_empty() {
                break;
            }
            let entries: Vec<TopicEntry> = refused.iter().map(|(call, _)| call.entry()).collect();
            let asked = entries.iter().zip(refused.iter().map(|(_, refusal)| refusal));
            let confirmed = opening::confirm(inner, asked).await;
            let mut again = Vec::new();
            for ((mut call, refusal), entry) in refused.into_iter().zip(&entries) {
                match (&confirmed[entry], refusal) {
                    (Ok(()), Refusal::Closed(token)) => {
                        // Callers that have been refused meanwhile must not have their tasks
                        // stored. A call without tasks still opens the lane: otherwise it would
                        // stay closed where Redis is so far away that callers are refused before it
                        // is open.
                        call.places.retain(|place| self.is_awaited(*place));
                        again.push((call, Some(token)));
                    }
                    (Ok(()), Refusal::Stale) => self.note_call(&call, &Error::StaleEntry),
                    (Err(error), _) => self.note_call(&call, error),
                }
            }
            self.send(inner, again).await;
        }
        // A topic that is deleted again and again.
        for (call, _) in std::mem::take(&mut self.refused) {
            self.note_call(&call, &Error::StaleEntry);
        }
        self.answer();
    }

    fn is_awaited(&self, place: Place) -> bool {
        self.requests[place.request].as_ref().is_some_and(|asked| !asked.is_abandoned())
    }

    fn note_call(&mut self, call: &Call, error: &Error) {
        call.places.iter().for_each(|&place| self.note(place, Err(error.clone())));
    }
}

impl Call {
    /// What the registry has to confirm.
    fn entry(&self) -> TopicEntry {
        TopicEntry { topic: self.lane.topic.clone(), shards: self.shards }
    }
}

/// Tells who waits for the lane's tasks that there are new ones.
fn hint(inner: &Inner, call: &Call, kept: &[Result<Kept>], batch: &Batch) {
    let mut earliest: [Option<UnixMillis>; 2] = [None; 2];
    for (&place, kept) in call.places.iter().zip(kept) {
        if let Ok(Kept::Added(added)) = kept
            && !matches!(added.novelty, Novelty::Duplicate { .. })
        {
            let due = &mut earliest[usize::from(batch.task(place).destination.is_pull())];
            *due = Some(due.map_or(added.due, |due| due.min(added.due)));
        }
    }
    for (is_pull, due) in [false, true].into_iter().zip(earliest) {
        if let Some(due) = due {
            inner.hints.tell(Hint { lane: call.lane.clone(), due, is_pull });
        }
    }
}

fn command(inner: &Inner, call: &Call, token: Option<&str>, batch: &Batch) -> Cmd {
    let mut command = if call.is_unlike {
        script_call(&script::ADD_WITH_OPTIONS, &inner.keys.of_script(&call.lane), &inner.clock)
    } else {
        script_call(&script::ADD, &inner.keys.of_add(&call.lane), &inner.clock)
    };
    command.arg(opening::argument(call.shards, token));
    if call.is_unlike {
        call.places
            .iter()
            .for_each(|&place| write_unlike(&mut command, batch.task(place), place.drawn));
    } else {
        for same in
            call.places.chunk_by(|&a, &b| batch.task(a).destination == batch.task(b).destination)
        {
            command.arg(batch.task(same[0]).destination.as_str()).arg(same.len());
            same.iter()
                .for_each(|&place| write_plain(&mut command, batch.task(place), place.drawn));
        }
    }
    command
}

fn write_plain(command: &mut Cmd, task: &NewTask, drawn: Drawn) {
    command.arg(drawn.own.0);
    write_moment(command, task.moment);
    // Put together where it is sent from. Writing to a command does not fail.
    let mut tail = command.writer_for_next_arg();
    let options = options(task, drawn);
    for part in [task.destination.as_str(), " ", &options, "\n", &task.content] {
        tail.write_all(part.as_bytes()).expect("a command grows");
    }
}

fn write_unlike(command: &mut Cmd, task: &NewTask, drawn: Drawn) {
    command.arg(drawn.own.0);
    write_moment(command, task.moment);
    command
        .arg(task.destination.as_str())
        .arg(&*options(task, drawn))
        .arg(&task.content)
        .arg(asked(task, drawn));
}

/// The options as they are stored: with the id of the call for the dead.
fn options(task: &NewTask, drawn: Drawn) -> Cow<'static, str> {
    if task.options.on_dead.is_none() {
        return write_options(&task.options);
    }
    let mut options: Options = task.options.clone();
    if let Some(on_dead) = &mut options.on_dead {
        on_dead.task_id = drawn.call;
    }
    write_options(&options)
}

/// What `lua/add_with_options.lua` has to know of a task.
#[derive(Serialize)]
struct Asked<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_after: Option<u64>,
    /// As text: the script's numbers are written with 14 digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dead: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency: Option<AskedOnce<'a>>,
}

#[derive(Serialize)]
struct AskedOnce<'a> {
    /// The name under which the lane remembers it.
    key: Cow<'a, str>,
    fingerprint: String,
    window: u64,
}

impl<'a> AskedOnce<'a> {
    fn of(task: &'a NewTask) -> Option<Self> {
        let Idempotency { fingerprint, window, .. } = task.idempotency.as_ref()?;
        let window = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Some(Self {
            key: task.idempotency_name()?,
            fingerprint: format!("{fingerprint:032x}"),
            window,
        })
    }
}

/// Whether more is asked than that the task be delivered, apart from a quota.
fn is_unlike(task: &NewTask) -> bool {
    let Options { key, expires_after, .. } = &task.options;
    key.is_some() || expires_after.is_some() || task.idempotency.is_some()
}

fn asked(task: &NewTask, drawn: Drawn) -> String {
    let after = task
        .options
        .expires_after
        .map(|after| u64::try_from(after.0.as_millis()).unwrap_or(u64::MAX));
    let asked = Asked {
        key: task.options.key.as_deref(),
        expires_after: after,
        on_dead: drawn.call.map(|id| id.to_string()),
        quota: task.quota,
        idempotency: AskedOnce::of(task),
    };
    serde_json::to_string(&asked).expect("texts and numbers are plain data")
}

/// A moment as the scripts read it: `<ms>`, or `+<ms>` after now.
pub(crate) fn write_moment(command: &mut Cmd, moment: Moment) {
    match moment {
        Moment::At(at) => {
            command.arg(at.0.max(0));
        }
        Moment::After(delay) => {
            let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            let mut digits = itoa::Buffer::new();
            let mut argument = command.writer_for_next_arg();
            for part in ["+", digits.format(millis)] {
                argument.write_all(part.as_bytes()).expect("a command grows");
            }
        }
    }
}

/// What became of a call's tasks, or why its lane refused them.
fn read(
    call: &Call,
    reply: Result<Value>,
    batch: &Batch,
) -> Result<std::result::Result<Vec<Result<Kept>>, Refusal>> {
    let mut fields = match opening::read(reply?)? {
        Ok(fields) => fields,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let now =
        UnixMillis(i64::from_redis_value(fields.next().unwrap_or(Value::Nil)).map_err(corrupt)?);
    let places = call.places.iter();
    let stored = |&place: &Place| {
        let due = batch.task(place).moment.due(now);
        Added { id: place.drawn.own, due, novelty: Novelty::New }
    };
    let kept = match call.is_unlike {
        true if fields.len() != call.places.len() => return Err(corrupt("too little")),
        true => {
            places.zip(fields).map(|(place, answer)| read_unlike(place.drawn.own, answer)).collect()
        }
        false => {
            let mut kept: Vec<Result<Kept>> =
                places.map(|place| Ok(Kept::Added(stored(place)))).collect();
            while let Some(place) = fields.next() {
                let place = usize::from_redis_value(place).map_err(corrupt)?;
                let due =
                    i64::from_redis_value(fields.next().unwrap_or(Value::Nil)).map_err(corrupt)?;
                let known = kept.get_mut(place).ok_or_else(|| corrupt("a place that is none"))?;
                *known = Ok(match known {
                    Ok(Kept::Added(added)) if due >= 0 => {
                        Kept::Added(Added { due: UnixMillis(due), ..*added })
                    }
                    _ => Kept::Taken,
                });
            }
            kept
        }
    };
    Ok(Ok(kept))
}

/// What add_with_options.lua says of one task.
fn read_unlike(drawn: TaskId, answer: Value) -> Result<Kept> {
    let added = |id, due, novelty| Ok(Kept::Added(Added { id, due: UnixMillis(due), novelty }));
    match answer {
        Value::Int(-1) => Ok(Kept::Taken),
        Value::Int(-2) => Err(Error::OverQuota),
        Value::Int(-3) => Err(Error::KeyReused),
        Value::Int(due) => added(drawn, due, Novelty::New),
        other => {
            let (novelty, id, due, state): (String, u64, i64, String) =
                FromRedisValue::from_redis_value(other).map_err(corrupt)?;
            let state = State::ALL.into_iter().find(|known| known.as_str() == state);
            match novelty.as_str() {
                "duplicate" => added(TaskId(id), due, Novelty::Duplicate { state }),
                "replaced" => added(TaskId(id), due, Novelty::Replaced),
                other => Err(corrupt(other)),
            }
        }
    }
}

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("an add was answered: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Span;
    use crate::store::TopicEntry;
    use crate::task::OnDead;

    fn plain() -> NewTask {
        NewTask {
            topic: TopicEntry { topic: "t".parse().unwrap(), shards: 1 },
            destination: "sn".parse().unwrap(),
            moment: Moment::At(UnixMillis(0)),
            options: Options { max_attempts: Some(3), ..Options::default() },
            content: String::new(),
            idempotency: None,
            quota: None,
        }
    }

    /// One caller knows an old number of lanes, the other the present one. Together, the tasks of
    /// one would be stored by the number of the other, where their ids do not lead.
    #[test]
    fn tasks_placed_by_different_numbers_of_lanes_go_in_different_calls() {
        let request = |shards| {
            let topic = TopicEntry { topic: "t".parse().unwrap(), shards };
            Request::of(vec![NewTask { topic, ..plain() }], Vec::new())
        };
        let (old, _waits) = request(1);
        let (new, _waits_too) = request(4);
        let drawn = [4, 8].map(|id| Drawn { own: TaskId(id), call: None });
        let mut calls: Vec<_> = Batch::of(vec![old, new]).calls(drawn.to_vec());
        calls.sort_by_key(|call| call.shards);
        let seen: Vec<_> =
            calls.iter().map(|call| (call.lane.shard, call.shards, call.places.len())).collect();
        assert_eq!(seen, [(0, 1, 1), (0, 4, 1)]);
    }

    #[test]
    fn nothing_is_asked_of_a_task_that_is_only_to_be_delivered() {
        let drawn = Drawn { own: TaskId(7), call: None };
        assert!(!is_unlike(&plain()));
        assert_eq!(asked(&NewTask { quota: Some(9), ..plain() }, drawn), r#"{"quota":9}"#);
        assert_eq!(asked(&plain(), drawn), "{}");
    }

    #[test]
    fn the_scripts_hear_of_all_that_is_asked_and_of_the_drawn_id() {
        let drawn = Drawn { own: TaskId(7), call: Some(TaskId(1_795_234_567_000_001)) };
        let on_dead = OnDead { sn: "s".parse().unwrap(), url: "/u".into(), task_id: None };
        let options_asked = Options {
            key: Some("k \"\n".into()),
            expires_after: Some(Span::seconds(2)),
            on_dead: Some(on_dead),
            ..Options::default()
        };
        let window = std::time::Duration::from_secs(1);
        let idempotency = Some(Idempotency { key: "i".into(), fingerprint: 0xab, window });
        let task = NewTask { options: options_asked, idempotency, ..plain() };
        let once = r#"{"key":"\u001f4:k \"\ni","fingerprint":"000000000000000000000000000000ab","window":1000}"#;
        let expected =
            r#"{"key":"k \"\n","expires_after":2000,"on_dead":"1795234567000001","idempotency":"#;
        assert_eq!(asked(&task, drawn), format!("{expected}{once}}}"));
        assert!(options(&task, drawn).contains(r#""task_id":1795234567000001"#));
    }
}
