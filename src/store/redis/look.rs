//! A look into many lanes at once: what is next in each, and what each has to be forgotten.
//!
//! A script answers for many lanes, so that a thousand idle topics cost a few thousandths of a second each second, and a few dozen packets. In a cluster
//! it answers for one, for each has a slot of its own. However many lanes there are, no pipeline is so long that claims and settles, which go the
//! same way, would wait behind it.

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use futures_util::future::join_all;

use super::Inner;
use super::answer::corrupt;
use super::fault::Refusal;
use super::ids::script_call;
use super::link::Repeat;
use super::node::Purpose;
use super::script::{self, Script};
use super::{destination, identity, topic};
use crate::clock::UnixMillis;
use crate::store::{Error, Histories, History, Looked, NextDue, Result, Revision};
use crate::task::Lane;

/// The most lanes of one script call: some tenths of a millisecond.
const LANES_A_SCRIPT: usize = 64;
/// The most lanes of one pipeline.
const LANES_A_PIPELINE: usize = 512;

/// What a look for what is next is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Called destinations, and whatever expires.
    Workers,
    /// The pulled ones.
    Consumers,
}

/// Of a lane whose server is away nothing is known; only if that is so of all is it an error.
pub(super) async fn next(inner: &Inner, lanes: &[Lane], whom: For) -> Result<NextDue> {
    let whom = if whom == For::Workers { "workers" } else { "consumers" };
    let (now, told) = over(inner, &[], &script::NEXT, lanes, whom, read_moment).await.1?;
    Ok(NextDue { now, lanes: told.into_iter().map(Option::flatten).collect() })
}

/// What each instance looks for every second: of each server in one pipeline, as far as its length allows. The registry is read only if its
/// revision is another one.
pub(super) async fn each_second(inner: &Inner, seen: Option<Revision>, lanes: &[Lane]) -> Looked {
    let [held, released] = destination::ask_holds(inner);
    let before = [cmd("GET").arg(inner.keys.revision()).take(), identity::ask(&inner.keys), held, released];
    let (answers, told) = over(inner, &before, &script::NEXT, lanes, "workers", read_moment).await;
    let [revision, id, held, released] =
        <[_; 4]>::try_from(answers).unwrap_or_else(|_| [0; 4].map(|_| Err(corrupt("too little"))));
    identity::take_in(inner, id).await;
    let holds = held.and_then(|held| destination::read_holds([held, released?]));
    let revision = revision.and_then(|answer| Option::<u64>::from_redis_value(answer).map_err(corrupt));
    let registry = match revision.map(|revision| Revision(revision.unwrap_or_default())) {
        Err(error) => Err(error),
        Ok(revision) if Some(revision) == seen => Ok(None),
        Ok(revision) => topic::topics(inner).await.map(|topics| Some((revision, topics))),
    };
    let next = match told {
        _ if lanes.is_empty() => Ok(None),
        Ok((now, told)) => Ok(Some(NextDue { now, lanes: told.into_iter().map(Option::flatten).collect() })),
        Err(error) => Err(error),
    };
    Looked { registry, holds, next }
}

/// The same of what has ended.
pub(super) async fn histories(inner: &Inner, lanes: &[Lane]) -> Result<Histories> {
    let (now, lanes) = over(inner, &[], &script::HISTORIES, lanes, "", read_history).await.1?;
    Ok(Histories { now, lanes })
}

/// What a script says of each lane, as `read` reads it; nothing of those for which nobody answers. And the time, of the first who does.
/// Before that, in the first pipeline, what `before` is answered.
async fn over<T>(
    inner: &Inner,
    before: &[Cmd],
    script: &Script,
    lanes: &[Lane],
    word: &str,
    read: impl Fn(Value) -> Result<T>,
) -> (Vec<Result<Value>>, Result<(UnixMillis, Vec<Option<T>>)>) {
    let a_script = if inner.servers.is_cluster() { 1 } else { LANES_A_SCRIPT };
    let mut told = Vec::with_capacity(lanes.len());
    let (mut first_now, mut failed) = (None, None);
    let (mut asked_before, mut answered_before) = (before.to_vec(), Vec::new());
    let (first, others) = lanes.split_at(lanes.len().min(LANES_A_PIPELINE));
    for lanes in std::iter::once(first).chain(others.chunks(LANES_A_PIPELINE)) {
        let call = |lanes: &[Lane]| {
            let keys: Vec<String> = lanes.iter().map(|lane| inner.keys.destinations(lane)).collect();
            script_call(script, &keys, &inner.clock).arg(word).take()
        };
        let mut calls = std::mem::take(&mut asked_before);
        let count = calls.len();
        calls.extend(lanes.chunks(a_script).map(call));
        let mut answers = inner.working.run_repeatable(&calls).await;
        answered_before.extend(answers.drain(..count));
        for (lanes, answer) in lanes.chunks(a_script).zip(answers) {
            match answer.and_then(|answer| read_answer(answer, lanes.len(), &read)) {
                Ok((now, those)) => {
                    first_now = first_now.or(Some(now));
                    told.extend(those.into_iter().map(Some));
                }
                Err(error) => {
                    tracing::debug!(lane = %lanes[0], %error, "Could not look into a lane");
                    told.extend(lanes.iter().map(|_| None));
                    failed = Some(error);
                }
            }
        }
    }
    let told = match (first_now, failed) {
        (Some(now), _) => Ok((now, told)),
        (None, Some(error)) => Err(error),
        (None, None) if before.is_empty() => time(inner).await.map(|now| (now, told)),
        (None, None) => Ok((UnixMillis(0), told)),
    };
    (answered_before, told)
}

fn read_answer<T>(answer: Value, count: usize, read: impl Fn(Value) -> Result<T>) -> Result<(UnixMillis, Vec<T>)> {
    let Value::Array(fields) = answer else { return Err(corrupt("no list")) };
    if fields.len() != count + 1 {
        return Err(corrupt("too few lanes"));
    }
    let mut fields = fields.into_iter();
    let now = i64::from_redis_value(fields.next().unwrap_or_default()).map_err(corrupt)?;
    Ok((UnixMillis(now), fields.map(read).collect::<Result<_>>()?))
}

/// A moment, or an empty text for none.
fn read_moment(told: Value) -> Result<Option<UnixMillis>> {
    match told {
        Value::Int(moment) => Ok(Some(UnixMillis(moment))),
        Value::BulkString(none) if none.is_empty() => Ok(None),
        _ => Err(corrupt("no moment")),
    }
}

fn read_history(told: Value) -> Result<History> {
    let Value::Array(fields) = told else { return Ok(History::default()) };
    let [ended, oldest, over] = <[Value; 3]>::try_from(fields).map_err(|_| corrupt("too few fields"))?;
    let count = |value| u64::from_redis_value(value).map_err(corrupt);
    Ok(History { ended: count(ended)?, oldest: read_moment(oldest)?, has_leftovers: count(over)? > 0 })
}

/// The time of the first of the servers that tells it. All are asked at once.
async fn time(inner: &Inner) -> Result<UnixMillis> {
    let map = inner.servers.map();
    let asking = map.nodes().iter().map(async |node| {
        let answers = node.link(Purpose::Working).run(&[cmd("TIME")], Repeat::Once).await?;
        let time = answers.into_iter().next().unwrap_or_else(|| Err(Refusal::Failed(corrupt("no time"))));
        read_time(inner, time.map_err(Refusal::into_error)?)
    });
    let mut told = Err(Error::Unavailable("no server is known".into()));
    for time in join_all(asking).await {
        told = told.or(time);
    }
    told
}

/// What `TIME` answers, unless a test has a time of its own.
pub(super) fn read_time(inner: &Inner, time: Value) -> Result<UnixMillis> {
    let (seconds, micros): (i64, i64) = FromRedisValue::from_redis_value(time).map_err(corrupt)?;
    Ok(inner.clock.manual_now().unwrap_or(UnixMillis(seconds * 1_000 + micros / 1_000)))
}
