//! The counter that ids are drawn from: checks read it, and adoptions raise it.

use deadpool_redis::redis::{FromRedisValue, cmd};

use crate::model::task::TaskId;
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::{Error, Result};

/// The last id drawn; 0 before the first. `None` if it cannot be read.
pub(crate) async fn last(session: &Session) -> Result<Option<u64>> {
    let answer = session.working.run_one(cmd("GET").arg(session.keys.last_id()).take()).await?;
    let bytes = Option::<Vec<u8>>::from_redis_value(answer)
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    let Some(bytes) = bytes else { return Ok(Some(0)) };
    let number = String::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    Ok(number.filter(|last| *last <= TaskId::MAX.0))
}

/// Raises the counter to at least this number. If it changes, the next draw skips ahead.
pub(crate) async fn raise(session: &Session, to: u64) -> Result<()> {
    let keys = [session.keys.last_id(), session.keys.id_run()];
    let raise = session.call(&script::FSCK_COUNTER, &keys).arg(to).take();
    session.working.run_one(raise).await.map(drop)
}
