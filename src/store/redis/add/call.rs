//! One call of `lua/add.lua` or `lua/add_with_options.lua`: its arguments and its reply.

use std::borrow::Cow;
use std::io::Write;

use deadpool_redis::redis::{Cmd, FromRedisValue, RedisWrite, Value};
use serde::Serialize;

use super::queue::KeptResult;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Options, State, TaskId};
use crate::store::redis::answer::text;
use crate::store::redis::arguments::{MOST_BYTES, MOST_TASKS, write_moment};
use crate::store::redis::ids::pool::Drawn;
use crate::store::redis::record::write_options;
use crate::store::redis::registry::opening::{self, LaneRefusal};
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::{Added, Error, Idempotency, NewTask, Novelty, Result, TopicEntry};

/// What a further lane costs in a call, in tasks of a lane that has some already.
const LANE_IN_TASKS: usize = 2;

/// The position of a task in a batch (its request, and its index there), and its ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchPlace {
    pub(crate) request: usize,
    pub(crate) member: usize,
    pub(crate) drawn: Drawn,
}

/// Tasks of one lane that one script stores.
#[derive(Debug)]
pub(crate) struct LaneTasks {
    pub(crate) lane: Lane,
    /// The number of lanes by which its tasks were placed.
    pub(crate) shards: u16,
    /// The token that opens the lane, if it was closed.
    pub(crate) token: Option<String>,
    /// Whether the tasks ask for more than their delivery.
    pub(crate) asks_more: bool,
    pub(crate) places: Vec<BatchPlace>,
}

impl LaneTasks {
    /// The entry that the registry has to confirm.
    pub(crate) fn entry(&self) -> TopicEntry {
        TopicEntry { topic: self.lane.topic.clone(), shards: self.shards }
    }

    fn opening(&self) -> String {
        opening::argument(self.shards, self.token.as_deref())
    }
}

/// The results of a lane's tasks, or why the lane refused them.
pub(crate) type LaneResults = Result<std::result::Result<Vec<Result<KeptResult>>, LaneRefusal>>;

/// One call of a script.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    /// Several only if their tasks ask for nothing but their delivery.
    pub(crate) lanes: Vec<LaneTasks>,
}

impl ScriptCall {
    /// Distributes lanes over calls of bounded length. A call `over_lanes` may take several lanes;
    /// in a cluster it may not, because each lane has a slot of its own. `length` returns the
    /// length of a task's content.
    pub(crate) fn group(
        lanes: Vec<LaneTasks>,
        over_lanes: bool,
        length: impl Fn(BatchPlace) -> usize,
    ) -> Vec<Self> {
        let mut calls: Vec<Self> = Vec::new();
        let (mut tasks, mut bytes) = (0, 0);
        for lane in lanes {
            let its_tasks = lane.places.len() + LANE_IN_TASKS;
            let its_bytes: usize = lane.places.iter().map(|&place| length(place)).sum();
            match calls.last_mut() {
                Some(Self { lanes })
                    if over_lanes
                        && !lane.asks_more
                        && !lanes[0].asks_more
                        && tasks + its_tasks <= MOST_TASKS
                        && bytes + its_bytes <= MOST_BYTES =>
                {
                    lanes.push(lane);
                    (tasks, bytes) = (tasks + its_tasks, bytes + its_bytes);
                }
                _ => {
                    calls.push(Self { lanes: vec![lane] });
                    (tasks, bytes) = (its_tasks, its_bytes);
                }
            }
        }
        calls
    }

    /// The call as a command. `task` finds a task.
    pub(crate) fn command<'a>(
        &self,
        session: &Session,
        task: impl Fn(BatchPlace) -> &'a NewTask,
    ) -> Cmd {
        match &self.lanes[..] {
            [lane] if lane.asks_more => {
                let mut command = session.lane_call(&script::ADD_WITH_OPTIONS, &lane.lane);
                command.arg(lane.opening());
                for &place in &lane.places {
                    write_with_options(&mut command, task(place), place.drawn);
                }
                command
            }
            lanes => {
                let mut command =
                    session.lanes_call(&script::ADD, lanes.iter().map(|lane| &lane.lane));
                lanes.iter().for_each(|lane| write_lane(&mut command, lane, &task));
                command
            }
        }
    }

    /// The results of each lane.
    pub(crate) fn read<'a>(
        &self,
        reply: Result<Value>,
        task: impl Fn(BatchPlace) -> &'a NewTask,
    ) -> Vec<LaneResults> {
        let stored = match (&self.lanes[..], reply) {
            (_, Err(error)) => Err(error),
            ([lane], Ok(reply)) if lane.asks_more => Ok(vec![lane.read_with_options(reply)]),
            (lanes, Ok(reply)) => read_lanes(lanes, reply, task),
        };
        stored.unwrap_or_else(|error| vec![Err(error); self.lanes.len()])
    }
}

impl LaneTasks {
    /// Reads the answer of `lua/add_with_options.lua`.
    fn read_with_options(&self, reply: Value) -> LaneResults {
        let fields = match opening::read(reply)? {
            Ok(fields) => fields.skip(1),
            Err(refusal) => return Ok(Err(refusal)),
        };
        if fields.len() != self.places.len() {
            return Err(corrupt("too little"));
        }
        let places = self.places.iter().zip(fields);
        Ok(Ok(places.map(|(place, answer)| read_one(place.drawn.own, answer)).collect()))
    }

    /// Reads what `lua/add.lua` answers for the lane.
    fn read<'a>(
        &self,
        answer: Value,
        now: UnixMillis,
        task: impl Fn(BatchPlace) -> &'a NewTask,
    ) -> LaneResults {
        let stored = |&place: &BatchPlace| {
            let due = task(place).moment.due(now);
            Ok(KeptResult::Added(Added { id: place.drawn.own, due, novelty: Novelty::New }))
        };
        let mut kept: Vec<Result<KeptResult>> = self.places.iter().map(stored).collect();
        let known = match answer {
            Value::Int(0) => return Ok(Ok(kept)),
            Value::Array(known) => known,
            _ => return Err(corrupt("no list")),
        };
        if !matches!(known[..], [Value::Int(_), ..]) {
            return match &known[..] {
                [Value::BulkString(word), error] if word == b"failed" => {
                    Err(corrupt(text(error.clone())?))
                }
                _ => opening::read_refusal(known).map(Err),
            };
        }
        for known in known.chunks(2) {
            let number =
                |at: usize| i64::from_redis_value_ref(known.get(at).unwrap_or(&Value::Nil));
            let (place, due) = (number(0).map_err(corrupt)?, number(1).map_err(corrupt)?);
            let place = usize::try_from(place).ok().and_then(|place| kept.get_mut(place));
            let place = place.ok_or_else(|| corrupt("a place that is none"))?;
            *place = Ok(match place {
                Ok(KeptResult::Added(added)) if due >= 0 => {
                    KeptResult::Added(Added { due: UnixMillis(due), ..*added })
                }
                _ => KeptResult::Taken,
            });
        }
        Ok(Ok(kept))
    }
}

/// Reads the answer of `lua/add.lua`.
fn read_lanes<'a>(
    lanes: &[LaneTasks],
    reply: Value,
    task: impl Fn(BatchPlace) -> &'a NewTask,
) -> Result<Vec<LaneResults>> {
    let mut answers = Vec::<Value>::from_redis_value(reply).map_err(corrupt)?.into_iter();
    let now = i64::from_redis_value(answers.next().unwrap_or(Value::Nil)).map_err(corrupt)?;
    if answers.len() != lanes.len() {
        return Err(corrupt("too few lanes"));
    }
    let lanes = lanes.iter().zip(answers);
    Ok(lanes.map(|(lane, answer)| lane.read(answer, UnixMillis(now), &task)).collect())
}

/// Writes the arguments of a lane for `lua/add.lua`.
fn write_lane<'a>(command: &mut Cmd, lane: &LaneTasks, task: impl Fn(BatchPlace) -> &'a NewTask) {
    let by_destination =
        || lane.places.chunk_by(|&a, &b| task(a).destination == task(b).destination);
    let arguments = 2 * by_destination().count() + 3 * lane.places.len();
    command.arg(lane.opening()).arg(arguments);
    for same in by_destination() {
        command.arg(task(same[0]).destination.as_str()).arg(same.len());
        same.iter().for_each(|&place| write_plain(command, task(place), place.drawn));
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
fn read_one(drawn: TaskId, answer: Value) -> Result<KeptResult> {
    let added =
        |id, due, novelty| Ok(KeptResult::Added(Added { id, due: UnixMillis(due), novelty }));
    match answer {
        Value::Int(-1) => Ok(KeptResult::Taken),
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
    use crate::store::redis::add::testing::with_options;
    use delayd_wire::Span;

    /// Plain tasks of a lane.
    fn of_lane(shard: u16, tasks: usize) -> LaneTasks {
        let lane = Lane { topic: "t".parse().unwrap(), shard };
        let drawn = Drawn { own: TaskId(7), call: None };
        let places = (0..tasks).map(|member| BatchPlace { request: 0, member, drawn }).collect();
        LaneTasks { lane, shards: 1, token: None, asks_more: false, places }
    }

    /// The shards of each call, for lanes with so many tasks.
    fn grouped(tasks: &[usize], over_lanes: bool, bytes: usize) -> Vec<Vec<u16>> {
        let lanes = tasks.iter().zip(0..).map(|(&tasks, shard)| of_lane(shard, tasks)).collect();
        let calls = ScriptCall::group(lanes, over_lanes, |_| bytes);
        let shards =
            |call: ScriptCall| call.lanes.into_iter().map(|lane| lane.lane.shard).collect();
        calls.into_iter().map(shards).collect()
    }

    #[test]
    fn lanes_share_calls_of_bounded_length() {
        let lanes = |calls: Vec<Vec<u16>>| calls.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lanes(grouped(&[1; 64], true, 200)), [42, 22], "each lane has its own cost");
        assert_eq!(lanes(grouped(&[100, 20, 20, 128], true, 200)), [2, 1, 1], "tasks");
        assert_eq!(lanes(grouped(&[1, 1, 1], true, MOST_BYTES / 2)), [2, 1], "bytes");
        assert_eq!(lanes(grouped(&[1, 1], false, 200)), [1, 1], "a cluster");
        assert!(grouped(&[], true, 200).is_empty());
    }

    #[test]
    fn a_task_with_options_has_no_call_with_other_lanes() {
        let special = |shard| LaneTasks { asks_more: true, ..of_lane(shard, 1) };
        let lanes = vec![of_lane(0, 1), of_lane(1, 1), special(2), special(3), of_lane(4, 1)];
        let calls = ScriptCall::group(lanes, true, |_| 200);
        let lanes: Vec<usize> = calls.iter().map(|call| call.lanes.len()).collect();
        assert_eq!(lanes, [2, 1, 1, 1]);
    }

    #[test]
    fn each_lane_of_a_call_has_an_answer_of_its_own() {
        let call = ScriptCall { lanes: (0..5).map(|shard| of_lane(shard, 2)).collect() };
        let word = |text: &str| Value::BulkString(text.into());
        let list = |values: &[Value]| Value::Array(values.to_vec());
        let reply = list(&[
            Value::Int(1_000),
            Value::Int(0),
            list(&[Value::Int(0), Value::Int(700), Value::Int(1), Value::Int(-1)]),
            list(&[word("closed"), word("t")]),
            list(&[word("stale"), Value::Int(2)]),
            list(&[word("failed"), word("WRONGTYPE")]),
        ]);
        let task = with_options();
        let due = |kept: Result<KeptResult>| match kept.unwrap() {
            KeptResult::Added(added) => Some(added.due.0),
            KeptResult::Taken => None,
        };
        let shown: Vec<String> = call
            .read(Ok(reply), |_| &task)
            .into_iter()
            .map(|stored| match stored {
                Ok(Ok(kept)) => format!("{:?}", kept.into_iter().map(due).collect::<Vec<_>>()),
                Ok(Err(refusal)) => format!("{refusal:?}"),
                Err(error) => error.to_string(),
            })
            .collect();
        assert_eq!(shown[0], "[Some(1000), Some(1000)]");
        assert_eq!(shown[1], "[Some(700), None]");
        assert_eq!(shown[2..4], ["Closed(\"t\")", "Stale"]);
        assert!(shown[4].contains("WRONGTYPE"), "{}", shown[4]);

        let short = call.read(Ok(list(&[Value::Int(1_000), Value::Int(0)])), |_| &task);
        assert!(short.len() == 5 && short.iter().all(Result::is_err), "{short:?}");
    }

    #[test]
    fn nothing_is_asked_of_a_task_that_is_only_to_be_delivered() {
        let drawn = Drawn { own: TaskId(7), call: None };
        assert!(!asks_more(&with_options()));
        assert_eq!(asked(&NewTask { quota: Some(9), ..with_options() }, drawn), r#"{"quota":9}"#);
        assert_eq!(asked(&with_options(), drawn), "{}");
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
        let task = NewTask { options: options_asked, idempotency, ..with_options() };
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
