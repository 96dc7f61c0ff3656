//! The store's id and format, in a hash in the registry's slot. The first instance that finds none
//! there writes it.
//!
//! An instance that knows the id writes it back if it is lost: servers that kept their tasks may
//! still have calls under way. The ids of tasks do not collide after such a loss, because they
//! follow the clock.

use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::time::Instant;

use super::answer::corrupt;
use super::ids::counter;
use super::keys::Keys;
use super::session::{Session, StoreIdentity};
use super::transport::servers::ServerRoute;
use super::{instances, script};
use crate::model::task::{StoreId, TaskId};
use crate::store::format::ensure_known;
use crate::store::{Error, FORMAT, Formats, INSTANCE_TTL, Result};

/// How old a returned id may be: longer than the interval of polls, which read the id too.
const FRESH: Duration = Duration::from_secs(2);
/// How far before the clock the first task id may lie: servers' clocks differ, and may be set back.
const SLACK: Duration = Duration::from_secs(3_600);

const ID: &str = "id";
const FORMAT_FIELD: &str = "format";
/// The field with the lowest task id that may have been allocated here; 0: any.
pub(super) const SINCE: &str = "since";

/// The store's id. If its server is unreachable, the id that was read last.
pub(super) async fn id(session: &Session) -> Result<StoreId> {
    let arrived = Instant::now();
    let mut last = session.identity.lock().await;
    let known = match &*last {
        Some((read, Ok(known))) if read.elapsed() < FRESH => return Ok(known.id),
        // Callers that wait for one answer share it: a silent server costs each of them at most one
        // wait.
        Some((read, Err(error))) if *read >= arrived => return Err(error.clone()),
        Some((_, Ok(known))) => Some(*known),
        _ => None,
    };
    let answer = match (read_or_write(session, known).await, known) {
        (Err(_), Some(known)) if !session.servers.is_refused() => Ok(known),
        (answer, _) => answer,
    };
    note(&mut last, answer.clone());
    answer.map(|known| known.id)
}

/// The store's format, as it was read last; `None` if it was never read.
pub(super) async fn known_format(session: &Session) -> Option<u32> {
    match &*session.identity.lock().await {
        Some((_, Ok(known))) => Some(known.format),
        _ => None,
    }
}

/// Refuses the answer to [`ask`] if this program does not know the store's format.
///
/// # Errors
/// [`Error::Misconfigured`].
pub(super) fn check(answer: Value) -> Result<()> {
    parse(answer)?.of_known_format().map(drop)
}

/// The formats of the store.
pub(super) async fn formats(session: &Session) -> Result<Formats> {
    formats_via(session, &session.working).await
}

async fn formats_via(session: &Session, route: &ServerRoute) -> Result<Formats> {
    let there = read(session, route).await?.ok_or_else(|| {
        Error::Misconfigured(
            "there is no store in Redis under this store.redis.key_prefix: start delayd first"
                .into(),
        )
    })?;
    Ok(Formats::of(there.format))
}

/// Gives the store the newest format that this program knows. Returns the formats before.
///
/// # Errors
/// [`Error::Misconfigured`] while an instance runs that does not know the new format: it would
/// damage what newer instances store, until it notices the format.
pub(super) async fn raise_format(session: &Session) -> Result<Formats> {
    // The format may have been raised by a call that was not confirmed.
    let before = formats_via(session, &session.confirming).await?;
    if before.can_rise() {
        let living = instances::living(session).await?;
        if let Some(older) = living.iter().find(|instance| instance.format < FORMAT) {
            return Err(Error::Misconfigured(format!(
                "instance {} at {} runs version {}, which does not know format {FORMAT}: stop it, \
                 wait for {} seconds, and then raise the format",
                older.name,
                older.address,
                older.version,
                INSTANCE_TTL.as_secs()
            )));
        }
        let raise = cmd("HSET").arg(session.keys.store()).arg(FORMAT_FIELD).arg(FORMAT).take();
        session.confirming.run_one(raise).await?;
    }
    Ok(before)
}

/// The command that reads the id and the format, for use in a pipeline.
pub(super) fn ask(keys: &Keys) -> Cmd {
    cmd("HMGET").arg(keys.store()).arg(ID).arg(FORMAT_FIELD).take()
}

/// Remembers the answer to [`ask`]. If there is no id, [`id`] writes one.
pub(super) async fn take_in(session: &Session, answer: Result<Value>) {
    let answer = answer.and_then(parse).and_then(|fields| accept(session, fields));
    if session.servers.is_refused() || matches!(answer, Ok(Some(_))) {
        let answer = answer.and_then(|known| known.ok_or_else(|| corrupt("no id")));
        note(&mut *session.identity.lock().await, answer);
    }
}

fn note(last: &mut Option<(Instant, Result<StoreIdentity>)>, answer: Result<StoreIdentity>) {
    if let (Some((_, Ok(before))), Ok(StoreIdentity { id, .. })) = (&last, &answer)
        && *id != before.id
    {
        tracing::info!(%id, "The store was given another id, {id}");
    }
    *last = Some((Instant::now(), answer));
}

/// Gives the store another id. Returns the previous one, if any, and the new one.
pub(super) async fn replace(session: &Session) -> Result<(Option<StoreId>, StoreId)> {
    let id = StoreId::random();
    // An id that cannot be read is replaced too.
    let before = read(session, &session.working)
        .await
        .map(|known| known.map(|known| known.id))
        .or_else(|error| match error {
            Error::Corrupt(_) => Ok(None),
            error => Err(error),
        })?;
    let format = cmd("HSETNX").arg(session.keys.store()).arg(FORMAT_FIELD).arg(FORMAT).take();
    session.confirming.run_one(format).await?;
    session
        .confirming
        .run_one(cmd("HSET").arg(session.keys.store()).arg(ID).arg(id.to_string()).take())
        .await?;
    Ok((before, id))
}

async fn read(session: &Session, route: &ServerRoute) -> Result<Option<StoreIdentity>> {
    accept(session, parse(route.run_one(ask(&session.keys)).await?)?)
}

/// The answer to [`ask`].
struct IdentityFields {
    id: Option<Vec<u8>>,
    /// `None` if there is none. A format that cannot be read counts as the newest possible.
    format: Option<u32>,
}

fn parse(answer: Value) -> Result<IdentityFields> {
    let (id, format) =
        <(Option<Vec<u8>>, Option<String>)>::from_redis_value(answer).map_err(corrupt)?;
    Ok(IdentityFields { id, format: format.map(|format| format.parse().unwrap_or(u32::MAX)) })
}

impl IdentityFields {
    /// Refuses an unknown format. Id and format are written in one step, so an id without a format
    /// comes from a build before format 1, whose entries this program would misread.
    fn of_known_format(self) -> Result<Self> {
        match self.format {
            Some(format) => ensure_known(format, "the store in Redis")?,
            None if self.id.is_some() => {
                return Err(Error::Misconfigured(
                    "the store in Redis is of a build of delayd before format 1, which this \
                     version cannot read: use another store.redis.key_prefix"
                        .into(),
                ));
            }
            None => {}
        }
        Ok(self)
    }
}

/// Checks the answer. If the format is unknown, the session sends nothing any more: this program
/// would damage what it does not know.
fn accept(session: &Session, fields: IdentityFields) -> Result<Option<StoreIdentity>> {
    let IdentityFields { id, format } =
        fields.of_known_format().inspect_err(|error| session.servers.refuse(error))?;
    let format = format.unwrap_or(FORMAT);
    let unreadable = |_| {
        Error::Corrupt("the store's id cannot be read; `delayd store new-id` sets another".into())
    };
    let id =
        id.map(|text| String::from_utf8_lossy(&text).parse().map_err(unreadable)).transpose()?;
    Ok(id.map(|id| StoreIdentity { id, format }))
}

/// Reads the identity, or writes one. If several instances find none, the first write wins.
async fn read_or_write(session: &Session, known: Option<StoreIdentity>) -> Result<StoreIdentity> {
    if let Some(found) = read(session, &session.working).await? {
        return Ok(found);
    }
    // If no task id has been allocated yet, all of them will be later than now.
    let since = match known.is_none() && counter::last(session).await? == Some(0) {
        true => (session.now().await? - SLACK).0.max(0).unsigned_abs() / 1_000 * TaskId::PER_SECOND,
        false => 0,
    };
    let mut write = session.call(&script::STORE_ID, &[session.keys.store()]);
    let known = known.unwrap_or_else(|| StoreIdentity { id: StoreId::random(), format: FORMAT });
    write.arg(known.id.to_string()).arg(since).arg(known.format);
    accept(session, parse(session.working.run_one(write).await?)?)?.ok_or_else(|| corrupt("no id"))
}
