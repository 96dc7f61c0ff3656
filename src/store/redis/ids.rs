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

use super::Inner;
use super::link::Repeat;
use super::node::{Node, Purpose};
use super::script::{self, Script};
use super::servers::one;
use super::slot;
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
    run: Option<Run>,
}

/// The run of a server that ids were drawn from. Ids are good while it lasts.
#[derive(Clone, Debug)]
pub(super) struct Run {
    node: Arc<Node>,
    run_id: Arc<str>,
}

impl Run {
    /// Whether nothing is known of a restart or a failover since.
    pub(super) fn lasts(&self) -> bool {
        self.node.is_in_run(&self.run_id)
    }

    fn is(&self, other: &Self) -> bool {
        self.node.number == other.node.number && self.run_id == other.run_id
    }
}

impl Ids {
    /// `count` new ids, growing, and the server run that they belong to.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; no id was used then.
    pub(super) async fn draw(&self, count: usize, inner: &Inner) -> Result<(Range<u64>, Run)> {
        let count = count as u64;
        let mut block = self.0.lock().await;
        let run = current_run(inner).await?;
        let fresh = block.drawn.is_some_and(|drawn| drawn.elapsed() < FRESH);
        let is_same = block.run.as_ref().is_some_and(|before| before.is(&run));
        if !fresh || !is_same || block.ids.end - block.ids.start < count {
            let skip = if block.run.is_none() || is_same { 0 } else { SKIP };
            let size = BLOCK.max(count);
            let draw = script_call(&script::IDS, &[inner.keys.last_id()], &inner.clock).arg(size).arg(skip).take();
            let repeat = Repeat::While(&|| run.lasts());
            let last = one(inner.servers.run(Purpose::Working, &[draw], repeat).await)?;
            let last = u64::from_redis_value(last).map_err(|error| Error::Corrupt(error.to_string()))?;
            if last > TaskId::MAX.0 {
                return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
            }
            *block = Block { ids: last + 1 - size..last + 1, drawn: Some(Instant::now()), run: Some(run.clone()) };
        }
        let first = block.ids.start;
        block.ids.start += count;
        Ok((first..first + count, run))
    }
}

/// The server that has the counter, and its run.
async fn current_run(inner: &Inner) -> Result<Run> {
    let map = inner.servers.map();
    let away = || Error::Unavailable("no server has the id counter's part of the cluster".into());
    let node = map.owner(Some(slot::of_key(inner.keys.last_id().as_bytes()))).ok_or_else(away)?;
    let live = node.link(Purpose::Working).live().await?;
    Ok(Run { node: node.clone(), run_id: live.server().run_id.as_str().into() })
}

/// `EVALSHA` of a script with its keys and now; the caller adds the rest.
pub(super) fn script_call(script: &Script, keys: &[String], clock: &Clock) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(&script.sha).arg(keys.len()).arg(keys).arg(clock.manual_now().map_or(0, |now| now.0));
    call
}
