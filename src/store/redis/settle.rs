//! Ending and moving leases, and the verbs by hand: settle, extend, cancel, reschedule, replay, purge.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, Value};

use super::Inner;
use super::add::write_moment;
use super::ids::script_call;
use super::script;
use crate::clock::UnixMillis;
use crate::store::{
    Cancelled, Error, KEPT, MAX_LEASE, MAX_OUTCOME, Moment, NewContent, Rescheduled, Result, Settle, Settled,
    Transition,
};
use crate::task::{Lane, Receipt, State, TaskId};

/// The most ids or settles of one script call.
const MOST: usize = 500;

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("a script answered: {error}"))
}

fn text(value: Value) -> Result<String> {
    String::from_redis_value(value).map_err(corrupt)
}

fn state(name: &str) -> Result<State> {
    State::ALL.into_iter().find(|state| state.as_str() == name).ok_or_else(|| corrupt(name))
}

fn settled(answer: &str) -> Result<Settled> {
    match answer {
        "done" => Ok(Settled::Done),
        "unknown" => Ok(Settled::Unknown),
        name => Ok(Settled::Stale { state: state(name)? }),
    }
}

pub(super) async fn settle(inner: &Inner, settles: &[Settle]) -> Vec<Result<Settled>> {
    let mut lanes: HashMap<&Lane, Vec<usize>> = HashMap::new();
    for (i, settle) in settles.iter().enumerate() {
        lanes.entry(&settle.lane).or_default().push(i);
    }
    let mut calls = Vec::new();
    let mut called = Vec::new();
    for (lane, members) in &lanes {
        for chunk in members.chunks(MOST) {
            let mut call = script_call(&script::SETTLE, &inner.keys.of_script(lane), &inner.clock);
            for &i in chunk {
                let (verb, wait, outcome) = write(&settles[i].transition);
                call.arg(settles[i].id.0).arg(settles[i].receipt.as_str()).arg(verb).arg(wait).arg(outcome);
            }
            calls.push(call);
            called.push(chunk);
        }
    }
    let mut answers = vec![Err(corrupt("too little")); settles.len()];
    for (chunk, reply) in called.into_iter().zip(inner.working.run_repeatable(&calls).await) {
        match reply.and_then(|words| Vec::<String>::from_redis_value(words).map_err(corrupt)) {
            Ok(words) => chunk.iter().zip(words).for_each(|(&i, word)| answers[i] = settled(&word)),
            Err(error) => chunk.iter().for_each(|&i| answers[i] = Err(error.clone())),
        }
    }
    answers
}

fn write(transition: &Transition) -> (&'static str, u64, &str) {
    match transition {
        Transition::Delivered { outcome } => ("delivered", 0, shorten(outcome)),
        Transition::Retry { after, outcome } => ("retry", after.as_millis() as u64, shorten(outcome)),
        Transition::Dead { outcome } => ("dead", 0, shorten(outcome)),
        Transition::Release => ("release", 0, ""),
        Transition::Keep { lease } => ("keep", (*lease).min(MAX_LEASE).as_millis() as u64, KEPT),
    }
}

fn shorten(outcome: &str) -> &str {
    &outcome[..outcome.floor_char_boundary(MAX_OUTCOME)]
}

pub(super) async fn extend(
    inner: &Inner,
    lane: &Lane,
    id: TaskId,
    receipt: &Receipt,
    lease: Duration,
) -> Result<Settled> {
    let call = script_call(&script::EXTEND, &inner.keys.of_script(lane), &inner.clock)
        .arg(id.0)
        .arg(receipt.as_str())
        .arg(lease.min(MAX_LEASE).as_millis() as u64)
        .take();
    settled(&text(inner.working.run_one(call).await?)?)
}

pub(super) async fn cancel(inner: &Inner, lane: &Lane, id: TaskId) -> Result<Cancelled> {
    let call = script_call(&script::CANCEL, &inner.keys.of_script(lane), &inner.clock).arg(id.0).take();
    match text(inner.working.run_one(call).await?)?.as_str() {
        "done" => Ok(Cancelled::Done),
        "pending" => Ok(Cancelled::Pending),
        "unknown" => Ok(Cancelled::Unknown),
        name => Ok(Cancelled::Refused { state: state(name)? }),
    }
}

pub(super) async fn reschedule(
    inner: &Inner,
    lane: &Lane,
    id: TaskId,
    moment: Moment,
    content: Option<&NewContent>,
) -> Result<Rescheduled> {
    let mut call = script_call(&script::RESCHEDULE, &inner.keys.of_script(lane), &inner.clock);
    call.arg(id.0).arg(write_moment(moment));
    if let Some(new) = content {
        call.arg(new.destination.as_str()).arg(&new.content);
    }
    let answer = Vec::<Value>::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
    let mut fields = answer.into_iter();
    match text(fields.next().unwrap_or_default())?.as_str() {
        "done" => {
            let due = i64::from_redis_value(fields.next().unwrap_or_default()).map_err(corrupt)?;
            Ok(Rescheduled::Done { due: UnixMillis(due) })
        }
        "unknown" => Ok(Rescheduled::Unknown),
        name => Ok(Rescheduled::Refused { state: state(name)? }),
    }
}

pub(super) async fn replay(inner: &Inner, lane: &Lane, ids: &[TaskId]) -> Result<usize> {
    let mut count = 0;
    for chunk in ids.chunks(MOST) {
        let mut call = script_call(&script::REPLAY, &inner.keys.of_script(lane), &inner.clock);
        for id in chunk {
            call.arg(id.0);
        }
        count += usize::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
    }
    Ok(count)
}

pub(super) async fn purge(inner: &Inner, lane: &Lane, state: State, before: UnixMillis, limit: usize) -> Result<usize> {
    let mut count = 0;
    while state.is_final() && count < limit {
        let most = MOST.min(limit - count);
        let call = script_call(&script::PURGE, &inner.keys.of_script(lane), &inner.clock)
            .arg(state.as_str())
            .arg(before.0)
            .arg(most)
            .take();
        let purged = usize::from_redis_value(inner.working.run_one(call).await?).map_err(corrupt)?;
        count += purged;
        if purged < most {
            break;
        }
    }
    Ok(count)
}
