//! The store's own id: in a hash of the registry's slot, drawn by the first instance that finds none there.
//!
//! An instance that knows the id puts it back if it is gone: servers that kept their tasks may have calls of them under way. What is drawn
//! after such a loss has other numbers all the same, for these follow the clock.

use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::answer::corrupt;
use super::ids::script_call;
use super::{Inner, query, script, survey};
use crate::store::{Error, Result};
use crate::task::{StoreId, TaskId};

/// How old the id may be that is answered: longer than between two looks, which bring it along.
const FRESH: Duration = Duration::from_secs(2);
/// How much earlier than the clock says the first number may be drawn: servers' clocks differ, and may be set back.
const SLACK: Duration = Duration::from_secs(3_600);

const ID: &str = "id";
/// The lowest number that may have been drawn here; 0: any.
pub(super) const SINCE: &str = "since";

/// What was answered last, and when.
#[derive(Debug, Default)]
pub(super) struct Identity(Mutex<Option<(Instant, Result<StoreId>)>>);

/// The store's id. While the server that has it is away, the one that was read last.
pub(super) async fn id(inner: &Inner) -> Result<StoreId> {
    let arrived = Instant::now();
    let mut last = inner.identity.0.lock().await;
    let known = match &*last {
        Some((read, Ok(id))) if read.elapsed() < FRESH => return Ok(*id),
        // All who wait for one answer share it: a silent server costs each of them no more than one wait.
        Some((read, Err(error))) if *read >= arrived => return Err(error.clone()),
        Some((_, Ok(id))) => Some(*id),
        _ => None,
    };
    let id = match (read_or_write(inner, known).await, known) {
        (Err(_), Some(known)) => Ok(known),
        (answer, _) => answer,
    };
    note(&mut last, id.clone());
    id
}

/// The command that asks for the id, for a pipeline of others.
pub(super) fn ask(inner: &Inner) -> Cmd {
    cmd("HGET").arg(inner.keys.store()).arg(ID).take()
}

/// Notes what [`ask`] was answered. Without an id there, [`id`] sees to it.
pub(super) async fn take_in(inner: &Inner, answer: Result<Value>) {
    if let Ok(Some(id)) = answer.and_then(parse) {
        note(&mut *inner.identity.0.lock().await, Ok(id));
    }
}

fn note(last: &mut Option<(Instant, Result<StoreId>)>, answer: Result<StoreId>) {
    if let (Some((_, Ok(known))), Ok(id)) = (&last, &answer)
        && id != known
    {
        tracing::info!(%id, "The store was given another id, {id}");
    }
    *last = Some((Instant::now(), answer));
}

/// Gives the store another id. Answers the one before, if it had one, and the new one.
pub(super) async fn replace(inner: &Inner) -> Result<(Option<StoreId>, StoreId)> {
    let id = StoreId::random();
    // What cannot be read is replaced as well.
    let before = read(inner).await.or_else(|error| match error {
        Error::Corrupt(_) => Ok(None),
        error => Err(error),
    })?;
    inner.working.run_one(cmd("HSET").arg(inner.keys.store()).arg(ID).arg(id.to_string()).take()).await?;
    Ok((before, id))
}

async fn read(inner: &Inner) -> Result<Option<StoreId>> {
    parse(inner.working.run_one(ask(inner)).await?)
}

fn parse(answer: Value) -> Result<Option<StoreId>> {
    let text = Option::<Vec<u8>>::from_redis_value(answer).map_err(corrupt)?;
    let unreadable = |_| Error::Corrupt("the store's id cannot be read; `delayd store new-id` sets another".into());
    text.map(|text| String::from_utf8_lossy(&text).parse().map_err(unreadable)).transpose()
}

/// Of several instances that find none, the first to write has drawn it.
async fn read_or_write(inner: &Inner, known: Option<StoreId>) -> Result<StoreId> {
    if let Some(id) = read(inner).await? {
        return Ok(id);
    }
    // Where no number has been drawn yet, all will be later than now.
    let since = match known.is_none() && survey::counter(inner).await? == Some(0) {
        true => (query::now(inner).await? - SLACK).0.max(0).unsigned_abs() / 1_000 * TaskId::PER_SECOND,
        false => 0,
    };
    let mut write = script_call(&script::STORE_ID, &[inner.keys.store()], &inner.clock);
    write.arg(known.unwrap_or_else(StoreId::random).to_string()).arg(since);
    parse(inner.working.run_one(write).await?)?.ok_or_else(|| corrupt("no id"))
}
