//! One call of `lua/add.lua` or `lua/add_with_options.lua`: its arguments and its reply.

use std::borrow::Cow;
use std::io::Write;

use deadpool_redis::redis::{Cmd, FromRedisValue, RedisWrite, Value};
use serde::Serialize;

use super::request::Kept;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Options, State, TaskId};
use crate::store::redis::arguments::write_moment;
use crate::store::redis::ids::pool::Drawn;
use crate::store::redis::record::write_options;
use crate::store::redis::registry::opening::{self, Refusal};
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::{Added, Error, Idempotency, NewTask, Novelty, Result, TopicEntry};

/// The position of a task in a batch (its request, and its index there), and its ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) request: usize,
    pub(crate) member: usize,
    pub(crate) drawn: Drawn,
}

/// One call of a script.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) lane: Lane,
    /// The number of lanes by which its tasks were placed.
    pub(crate) shards: u16,
    /// Whether the tasks ask for more than their delivery.
    pub(crate) asks_more: bool,
    pub(crate) places: Vec<Place>,
}

impl Call {
    /// The entry that the registry has to confirm.
    pub(crate) fn entry(&self) -> TopicEntry {
        TopicEntry { topic: self.lane.topic.clone(), shards: self.shards }
    }

    /// The call as a command, with the token that opens the lane, if any. `task` finds a task.
    pub(crate) fn command<'a>(
        &self,
        session: &Session,
        token: Option<&str>,
        task: impl Fn(Place) -> &'a NewTask,
    ) -> Cmd {
        let script = if self.asks_more { &script::ADD_WITH_OPTIONS } else { &script::ADD };
        let mut command = session.lane_call(script, &self.lane);
        command.arg(opening::argument(self.shards, token));
        if self.asks_more {
            self.places
                .iter()
                .for_each(|&place| write_with_options(&mut command, task(place), place.drawn));
        } else {
            for same in self.places.chunk_by(|&a, &b| task(a).destination == task(b).destination) {
                command.arg(task(same[0]).destination.as_str()).arg(same.len());
                same.iter().for_each(|&place| write_plain(&mut command, task(place), place.drawn));
            }
        }
        command
    }

    /// The results of the tasks, or why the lane refused them.
    pub(crate) fn read<'a>(
        &self,
        reply: Result<Value>,
        task: impl Fn(Place) -> &'a NewTask,
    ) -> Result<std::result::Result<Vec<Result<Kept>>, Refusal>> {
        let mut fields = match opening::read(reply?)? {
            Ok(fields) => fields,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let now = UnixMillis(
            i64::from_redis_value(fields.next().unwrap_or(Value::Nil)).map_err(corrupt)?,
        );
        let places = self.places.iter();
        let stored = |&place: &Place| {
            let due = task(place).moment.due(now);
            Added { id: place.drawn.own, due, novelty: Novelty::New }
        };
        let kept = match self.asks_more {
            true if fields.len() != self.places.len() => return Err(corrupt("too little")),
            true => places
                .zip(fields)
                .map(|(place, answer)| read_with_options(place.drawn.own, answer))
                .collect(),
            false => {
                let mut kept: Vec<Result<Kept>> =
                    places.map(|place| Ok(Kept::Added(stored(place)))).collect();
                while let Some(place) = fields.next() {
                    let place = usize::from_redis_value(place).map_err(corrupt)?;
                    let due = i64::from_redis_value(fields.next().unwrap_or(Value::Nil))
                        .map_err(corrupt)?;
                    let known =
                        kept.get_mut(place).ok_or_else(|| corrupt("a place that is none"))?;
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
}

fn write_plain(command: &mut Cmd, task: &NewTask, drawn: Drawn) {
    command.arg(drawn.own.0);
    write_moment(command, task.moment);
    // Written directly into the command, which cannot fail.
    let mut tail = command.writer_for_next_arg();
    let options = options(task, drawn);
    for part in [task.destination.as_str(), " ", &options, "\n", &task.content] {
        tail.write_all(part.as_bytes()).expect("a command grows");
    }
}

fn write_with_options(command: &mut Cmd, task: &NewTask, drawn: Drawn) {
    command.arg(drawn.own.0);
    write_moment(command, task.moment);
    command
        .arg(task.destination.as_str())
        .arg(&*options(task, drawn))
        .arg(&task.content)
        .arg(asked(task, drawn));
}

/// The options as they are stored: with the id of the dead-letter call.
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

/// What `lua/add_with_options.lua` needs to know of a task.
#[derive(Serialize)]
struct Asked<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_after: Option<u64>,
    /// As text: Lua writes numbers with 14 digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dead: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency: Option<AskedOnce<'a>>,
}

#[derive(Serialize)]
struct AskedOnce<'a> {
    /// The name under which the lane remembers the key.
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

/// Whether the task asks for more than its delivery, apart from a quota.
pub(crate) fn asks_more(task: &NewTask) -> bool {
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

/// Reads what add_with_options.lua answers for one task.
fn read_with_options(drawn: TaskId, answer: Value) -> Result<Kept> {
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
    use crate::model::task::OnDead;
    use crate::store::Moment;
    use delayd_wire::Span;

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
        assert!(!asks_more(&plain()));
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
        let once = concat!(
            r#"{"key":"\u001f4:k \"\ni","fingerprint":"000000000000000000000000000000ab","#,
            r#""window":1000}"#
        );
        let expected =
            r#"{"key":"k \"\n","expires_after":2000,"on_dead":"1795234567000001","idempotency":"#;
        assert_eq!(asked(&task, drawn), format!("{expected}{once}}}"));
        assert!(options(&task, drawn).contains(r#""task_id":1795234567000001"#));
    }
}
