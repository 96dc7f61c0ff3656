//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! A block belongs to one run of one server: after a restart or a failover the counter may have lost its last
//! increments, so a block drawn before is thrown away and the first draw skips ahead of all that may be in use. It also goes
//! stale within a second, so that ids can be read as a time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, cmd};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::keys::Keys;
use super::link::{Link, Live, one};
use super::script::{self, Script};
use crate::clock::Clock;
use crate::store::{Error, Result};
use crate::task::TaskId;

/// Ids drawn at once, unless more are needed.
const BLOCK: u64 = 1_000;
/// How long a block may be used.
const FRESH: Duration = Duration::from_secs(1);
/// How far a new server's counter skips ahead: two seconds' worth, twice what `everysec` may have lost.
const SKIP: u64 = 2 * TaskId::PER_SECOND;

/// The ids in hand.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<Block>);

#[derive(Debug, Default)]
struct Block {
    ids: Range<u64>,
    drawn: Option<Instant>,
    run_id: String,
}

impl Ids {
    /// `count` new ids, growing, and the connection to the very server run that they belong to.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; no id was used then.
    pub(super) async fn draw(
        &self,
        count: usize,
        link: &Link,
        keys: &Keys,
        clock: &Clock,
    ) -> Result<(Range<u64>, Arc<Live>)> {
        let count = count as u64;
        let mut block = self.0.lock().await;
        let live = link.live().await?;
        let run_id = live.server.run_id.clone();
        let fresh = block.drawn.is_some_and(|drawn| drawn.elapsed() < FRESH);
        if !fresh || block.run_id != run_id || block.ids.end - block.ids.start < count {
            let skip = if block.run_id.is_empty() || block.run_id == run_id { 0 } else { SKIP };
            let size = BLOCK.max(count);
            let draw = script_call(&script::IDS, &[keys.last_id()], clock).arg(size).arg(skip).take();
            let last = u64::from_redis_value(one(link.run_pinned(&live, &[draw]).await?)?)
                .map_err(|error| Error::Corrupt(error.to_string()))?;
            if last > TaskId::MAX.0 {
                return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
            }
            *block = Block { ids: last + 1 - size..last + 1, drawn: Some(Instant::now()), run_id };
        }
        let first = block.ids.start;
        block.ids.start += count;
        Ok((first..first + count, live))
    }
}

/// `EVALSHA` of a script with its keys and now; the caller adds the rest.
pub(super) fn script_call(script: &Script, keys: &[String], clock: &Clock) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(&script.sha).arg(keys.len()).arg(keys).arg(clock.manual_now().map_or(0, |now| now.0));
    call
}
