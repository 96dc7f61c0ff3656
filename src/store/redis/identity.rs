//! The store's own id: in a hash of the registry's slot, drawn by the first instance that finds none there.
//!
//! An instance that knows the id puts it back if it is gone: servers that kept their tasks may have calls of them under way. What is drawn
//! after such a loss has other numbers all the same, for these follow the clock.

use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::answer::corrupt;
use super::{Inner, query, survey};
use crate::store::{Error, Result};
use crate::task::{StoreId, TaskId};

/// How old the id may be that is answered.
const FRESH: Duration = Duration::from_secs(1);
/// How much earlier than the clock says the first number may be drawn: servers' clocks differ, and may be set back.
const SLACK: Duration = Duration::from_secs(3_600);

const ID: &str = "id";
/// The lowest number that may have been drawn here; absent: any.
pub(super) const SINCE: &str = "since";

/// What is known of the id, and when it was read.
#[derive(Debug, Default)]
pub(super) struct Identity(Mutex<Option<(StoreId, Instant)>>);

/// The store's id. While the server that has it is away, the one that was read last.
pub(super) async fn id(inner: &Inner) -> Result<StoreId> {
    let mut known = inner.identity.0.lock().await;
    if let Some((id, read)) = *known
        && read.elapsed() < FRESH
    {
        return Ok(id);
    }
    let last = known.map(|(id, _)| id);
    match read_or_write(inner, last).await {
        Ok(id) => {
            if last.is_some_and(|last| last != id) {
                tracing::info!(%id, "The store was given another id, {id}");
            }
            *known = Some((id, Instant::now()));
            Ok(id)
        }
        Err(error) => last.ok_or(error),
    }
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
    parse(inner.working.run_one(cmd("HGET").arg(inner.keys.store()).arg(ID).take()).await?)
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
    let field = |name: &str, value: String| cmd("HSETNX").arg(inner.keys.store()).arg(name).arg(value).take();
    let mut commands = vec![field(ID, known.unwrap_or_else(StoreId::random).to_string())];
    // Where no number has been drawn yet, all will be later than now.
    if known.is_none() && survey::counter(inner).await? == Some(0) {
        let since = (query::now(inner).await? - SLACK).0.max(0).unsigned_abs() / 1_000 * TaskId::PER_SECOND;
        commands.push(field(SINCE, since.to_string()));
    }
    for answer in inner.working.run_repeatable(&commands).await {
        answer?;
    }
    read(inner).await?.ok_or_else(|| Error::Unavailable("the store's id was written, and is gone again".into()))
}
