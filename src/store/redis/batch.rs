//! A batch of adds: `lua/add.lua`, called for each of its lanes, and read.

use std::collections::HashMap;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value};
use serde::Serialize;

use super::Inner;
use super::add::{Emptied, Kept, Request};
use super::ids::{Drawn, script_call};
use super::link::Repeat;
use super::node::Purpose;
use super::record::write_options;
use super::script;
use crate::clock::UnixMillis;
use crate::store::{Added, Error, Idempotency, Moment, NewTask, Novelty, Result};
use crate::task::{Lane, Options, TaskId};

/// The most tasks of one script call: it stays under a few milliseconds.
const MOST_TASKS: usize = 256;
/// The most body bytes of one script call; a batch ends with the request that reaches them.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// A task of a batch: whose request, which of its members.
pub(super) type Place = (usize, usize);

/// The tasks of a batch by lane, and what is known of each so far.
struct Batch<'a> {
    requests: &'a [Request],
    answers: Vec<Vec<Result<Kept>>>,
}

impl Batch<'_> {
    fn task(&self, (request, member): Place) -> (Drawn, &NewTask) {
        let request = &self.requests[request];
        let (i, drawn) = request.members[member];
        (drawn, &request.tasks[i])
    }

    fn answer(&mut self, (request, member): Place, kept: Result<Kept>) {
        self.answers[request][member] = kept;
    }
}

/// What became of each task, and whose topics are to be written to the registry before their callers hear of it.
pub(super) async fn add(inner: &Inner, requests: &[Request]) -> (Vec<Vec<Result<Kept>>>, Emptied) {
    // An id whose server has restarted may be drawn again by another instance: it must not be used any more.
    let answers = requests.iter().map(|request| vec![Ok(Kept::Taken); request.members.len()]).collect();
    let mut batch = Batch { requests, answers };
    let mut lanes: HashMap<Lane, Vec<Place>> = HashMap::new();
    for (r, request) in requests.iter().enumerate().filter(|(_, request)| request.run.lasts()) {
        for m in 0..request.members.len() {
            let (drawn, task) = batch.task((r, m));
            lanes.entry(task.topic.lane_of(drawn.own)).or_default().push((r, m));
        }
    }
    let mut calls: Vec<Cmd> = Vec::new();
    let mut called: Vec<(Lane, Vec<Place>)> = Vec::new();
    for (lane, places) in lanes {
        for chunk in chunks(places, &batch) {
            calls.push(call(inner, &lane, &chunk, &batch));
            called.push((lane.clone(), chunk));
        }
    }
    let lasts = || requests.iter().all(|request| request.run.lasts());
    let replies = inner.servers.run(Purpose::Adding, &calls, Repeat::While(&lasts)).await;
    let mut emptied = Emptied::new();
    for ((_, places), reply) in called.into_iter().zip(replies) {
        if read(&places, reply, &mut batch)
            && let Some(&first) = places.first()
        {
            let entry = batch.task(first).1.topic.clone();
            emptied.entry(entry).or_default().extend(places);
        }
    }
    (batch.answers, emptied)
}

/// Splits a lane's tasks into script calls of bounded length.
fn chunks(places: Vec<Place>, batch: &Batch<'_>) -> Vec<Vec<Place>> {
    let mut chunks: Vec<Vec<Place>> = Vec::new();
    let mut bytes = 0;
    for place in places {
        let length = batch.task(place).1.content.len();
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < MOST_TASKS && bytes + length <= MOST_BYTES => {
                chunk.push(place);
                bytes += length;
            }
            _ => {
                chunks.push(vec![place]);
                bytes = length;
            }
        }
    }
    chunks
}

fn call(inner: &Inner, lane: &Lane, places: &[Place], batch: &Batch<'_>) -> Cmd {
    let mut call = script_call(&script::ADD, &inner.keys.of_script(lane), &inner.clock);
    call.arg(places.first().map_or(1, |&place| batch.task(place).1.topic.shards));
    for &place in places {
        let (drawn, task) = batch.task(place);
        call.arg(drawn.own.0)
            .arg(write_moment(task.moment))
            .arg(task.destination.as_str())
            .arg(options(task, drawn))
            .arg(&task.content)
            .arg(asked(task, drawn));
    }
    call
}

/// The options as they are stored: with the id of the call for the dead.
fn options(task: &NewTask, drawn: Drawn) -> String {
    if task.options.on_dead.is_none() {
        return write_options(&task.options);
    }
    let mut options: Options = task.options.clone();
    if let Some(on_dead) = &mut options.on_dead {
        on_dead.task_id = drawn.call;
    }
    write_options(&options)
}

/// What `lua/sameness.lua` has to know of a task.
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
    key: &'a str,
    fingerprint: String,
    window: u64,
}

impl<'a> AskedOnce<'a> {
    fn of(Idempotency { key, fingerprint, window }: &'a Idempotency) -> Self {
        let window = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Self { key, fingerprint: format!("{fingerprint:032x}"), window }
    }
}

/// Nothing for a task that is only to be delivered.
fn asked(task: &NewTask, drawn: Drawn) -> String {
    let after = task.options.expires_after.map(|after| u64::try_from(after.0.as_millis()).unwrap_or(u64::MAX));
    let asked = Asked {
        key: task.options.key.as_deref(),
        expires_after: after,
        on_dead: drawn.call.map(|id| id.to_string()),
        quota: task.quota,
        idempotency: task.idempotency.as_ref().map(AskedOnce::of),
    };
    match asked {
        Asked { key: None, expires_after: None, quota: None, idempotency: None, .. } => String::new(),
        asked => serde_json::to_string(&asked).expect("texts and numbers are plain data"),
    }
}

/// A moment as the scripts read it.
pub(super) fn write_moment(moment: Moment) -> String {
    match moment {
        Moment::At(at) => format!("@{}", at.0.max(0)),
        Moment::After(delay) => format!("+{}", delay.as_millis()),
    }
}

/// Notes what became of a lane's tasks; answers whether the lane was empty before.
fn read(places: &[Place], reply: Result<Value>, batch: &mut Batch<'_>) -> bool {
    let answers = reply.and_then(|value| {
        let answers = Vec::<Value>::from_redis_value(value).map_err(corrupt)?;
        let is_complete = answers.len() == places.len() + 1;
        if is_complete { Ok(answers) } else { Err(corrupt("too little")) }
    });
    let mut answers = match answers {
        Ok(answers) => answers.into_iter(),
        Err(error) => {
            places.iter().for_each(|&place| batch.answer(place, Err(error.clone())));
            return false;
        }
    };
    let was_empty = answers.next() == Some(Value::Int(1));
    for (&place, answer) in places.iter().zip(answers) {
        let kept = read_answer(batch.task(place).0.own, answer);
        batch.answer(place, kept);
    }
    was_empty
}

/// What add.lua says of one task.
fn read_answer(drawn: TaskId, answer: Value) -> Result<Kept> {
    let added = |id, due, novelty| Ok(Kept::Added(Added { id, due: UnixMillis(due), novelty }));
    match answer {
        Value::Int(-1) => Ok(Kept::Taken),
        Value::Int(-2) => Err(Error::OverQuota),
        Value::Int(-3) => Err(Error::KeyReused),
        Value::Int(due) => added(drawn, due, Novelty::New),
        other => {
            let (novelty, id, due): (String, u64, i64) = FromRedisValue::from_redis_value(other).map_err(corrupt)?;
            match novelty.as_str() {
                "duplicate" => added(TaskId(id), due, Novelty::Duplicate),
                "replaced" => added(TaskId(id), due, Novelty::Replaced),
                other => Err(corrupt(other)),
            }
        }
    }
}

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("add.lua answered: {error}"))
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

    #[test]
    fn nothing_is_asked_of_a_task_that_is_only_to_be_delivered() {
        let drawn = Drawn { own: TaskId(7), call: None };
        assert_eq!(asked(&plain(), drawn), "");
        assert_eq!(asked(&NewTask { quota: Some(9), ..plain() }, drawn), r#"{"quota":9}"#);
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
        let once = r#"{"key":"i","fingerprint":"000000000000000000000000000000ab","window":1000}"#;
        let expected = r#"{"key":"k \"\n","expires_after":2000,"on_dead":"1795234567000001","idempotency":"#;
        assert_eq!(asked(&task, drawn), format!("{expected}{once}}}"));
        assert!(options(&task, drawn).contains(r#""task_id":1795234567000001"#));
    }
}
