//! Reading: one task, pages of ids, counts, and what is next in many lanes.

use std::sync::Arc;

use deadpool_redis::redis::{FromRedisValue, Value, cmd};
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Inner;
use super::fault::Refusal;
use super::ids::script_call;
use super::link::Repeat;
use super::node::Purpose;
use super::record::{Entry, Record, read_millis};
use super::script;
use crate::clock::UnixMillis;
use crate::store::{Counts, Error, FURTHEST_DEADLINE, ListQuery, Listed, NextDue, Result, Task};
use crate::task::{Lane, State, TaskId};

/// Moments beyond this are no moments: the scores are doubles.
const FAR: i64 = 1 << 53;

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("a script answered: {error}"))
}

pub(super) async fn get(inner: &Inner, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
    let call = script_call(&script::GET, &inner.keys.of_script(lane), &inner.clock).arg(id.0).take();
    let fields = Vec::<Value>::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
    if fields.is_empty() {
        return Ok(None);
    }
    let [now, record, entry, deadline, due, finished]: [Value; 6] =
        fields.try_into().map_err(|_| corrupt("too few fields"))?;
    let record = Record::read(Vec::<u8>::from_redis_value(record).map_err(corrupt)?)?;
    let text = |value: Value| String::from_redis_value(value).map_err(corrupt);
    let moment = |value: Value| match text(value)?.as_str() {
        "" => Ok(None),
        number => read_millis(number).map(Some),
    };
    let now = UnixMillis(i64::from_redis_value(now).map_err(corrupt)?);
    let entry = match text(entry)?.as_str() {
        "" => Entry { attempts: 0, ended: None, outcome: String::new() },
        written => Entry::read(written)?,
    };
    let (state, due) = match (entry.ended, moment(deadline)?, moment(due)?) {
        (Some(state), _, _) => (state, record.due),
        (None, Some(deadline), _) if deadline > now && deadline <= now + FURTHEST_DEADLINE => {
            (State::Leased, record.due)
        }
        (None, Some(deadline), _) => (State::Scheduled, deadline.min(now)),
        (None, None, due) => (State::Scheduled, due.unwrap_or(record.due)),
    };
    Ok(Some(Task {
        id,
        state,
        destination: record.destination,
        due,
        created: record.created,
        finished: moment(finished)?,
        attempts: entry.attempts,
        last_outcome: entry.outcome,
        options: record.options,
        content: record.content,
    }))
}

pub(super) async fn list(inner: &Inner, query: &ListQuery) -> Result<Vec<Listed>> {
    let mut call = script_call(&script::LIST, &inner.keys.of_script(&query.lane), &inner.clock);
    call.arg(query.state.as_str()).arg(query.from.0.clamp(-FAR, FAR)).arg(query.to.0.clamp(-FAR, FAR));
    match query.after {
        Some(after) => call.arg(after.moment.0).arg(after.id.0),
        None => call.arg("").arg(""),
    };
    call.arg(query.limit);
    let found = Vec::<String>::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
    let mut page = found
        .chunks_exact(2)
        .map(|pair| {
            let id = TaskId(pair[0].parse().map_err(corrupt)?);
            Ok(Listed { moment: read_millis(&pair[1])?, id })
        })
        .collect::<Result<Vec<_>>>()?;
    page.sort_unstable();
    page.truncate(query.limit);
    Ok(page)
}

pub(super) async fn stats(inner: &Inner, lane: &Lane) -> Result<Counts> {
    let call = script_call(&script::STATS, &inner.keys.of_script(lane), &inner.clock);
    let [scheduled, leased, delivered, dead, cancelled, expired] =
        <[u64; 6]>::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
    Ok(Counts { scheduled, leased, delivered, dead, cancelled, expired, earliest: None })
}

/// One pipeline a server, however many lanes: the head of what each lane waits for (`of`), its first deadline and its last; and the time,
/// of each server, for any may be away. Of a lane whose server is away nothing is known; only if that is so of all is it an error.
pub(super) async fn next(inner: &Inner, lanes: &[Lane], of: impl Fn(&Lane) -> String) -> Result<NextDue> {
    let at = |key: String, rank: i64| cmd("ZRANGE").arg(key).arg(rank).arg(rank).arg("WITHSCORES").take();
    let mut commands = Vec::with_capacity(3 * lanes.len());
    for lane in lanes {
        commands.push(at(of(lane), 0));
        commands.push(at(inner.keys.leased(lane), 0));
        commands.push(at(inner.keys.leased(lane), -1));
    }
    let (now, answers) = tokio::join!(time(inner), inner.working.run_repeatable(&commands));
    let now = now?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Err(corrupt("too few answers")));
    let mut moments = Vec::with_capacity(lanes.len());
    let (mut failed, mut is_any_known) = (None, false);
    for lane in lanes {
        match read_next(now, [next(), next(), next()]) {
            Ok(moment) => {
                is_any_known = true;
                moments.push(moment);
            }
            Err(error) => {
                tracing::debug!(%lane, %error, "Could not look into a lane");
                moments.push(None);
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(error) if !is_any_known => Err(error),
        _ => Ok(NextDue { now, lanes: moments }),
    }
}

fn read_next(now: UnixMillis, [due, first, last]: [Result<Value>; 3]) -> Result<Option<UnixMillis>> {
    let (due, first, last) = (read_head(due?)?, read_head(first?)?, read_head(last?)?);
    // A deadline that is too far away counts as run out: the clock was set back.
    let beyond_reach = last.filter(|deadline| *deadline > now + FURTHEST_DEADLINE).map(|_| now);
    Ok(due.into_iter().chain(first).chain(beyond_reach).min())
}

/// The last ping, and when it ended.
pub(super) type Pinged = Mutex<Option<(Instant, Result<UnixMillis>)>>;

/// One at a time: who comes meanwhile gets the answer of the one under way. Where replicas are waited for and missing, waits that stand
/// behind each other on the connection would look as if the server were silent. It goes on though its caller has gone, so that the next
/// one is not sent behind it.
pub(super) async fn ping(inner: &Arc<Inner>) -> Result<UnixMillis> {
    let (inner, arrived) = (inner.clone(), Instant::now());
    let pinging = tokio::spawn(async move {
        let mut last = inner.pinged.lock().await;
        match &*last {
            Some((ended, answer)) if *ended >= arrived => answer.clone(),
            _ => {
                let answer = ping_alone(&inner).await;
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    });
    pinging.await.unwrap_or_else(|_| Err(Error::Unavailable("the store is closed".into())))
}

/// Asks the server that has the id counter, on both ways: a store that answers questions but takes no tasks is not well.
async fn ping_alone(inner: &Inner) -> Result<UnixMillis> {
    let counter = || cmd("EXISTS").arg(inner.keys.last_id()).take();
    inner.adding.run_one(counter()).await?;
    inner.working.run_one(counter()).await?;
    read_time(inner, inner.working.run_one(cmd("TIME")).await?)
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

fn read_time(inner: &Inner, time: Value) -> Result<UnixMillis> {
    let (seconds, micros): (i64, i64) = FromRedisValue::from_redis_value(time).map_err(corrupt)?;
    Ok(inner.clock.manual_now().unwrap_or(UnixMillis(seconds * 1_000 + micros / 1_000)))
}

fn read_head(head: Value) -> Result<Option<UnixMillis>> {
    let pair = Vec::<String>::from_redis_value(head).map_err(corrupt)?;
    pair.get(1).map(|score| read_millis(score)).transpose()
}
