//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! A block belongs to one run of one server: after a restart or a failover the counter may have
//! lost its last increments, so a block drawn before is thrown away and the first draw skips ahead
//! of all that may be in use. It also goes stale within a second, so that ids can be read as a
//! time. All who need ids wait while a block is drawn. So the next one is drawn ahead, by twice the
//! time that the last draw took: where Redis is far away nobody waits for it, and where it is near
//! hardly a draw is made that is not needed.
//! In a cluster each adder wishes for the lanes of its own server alone, and all of them share what
//! is in hand.

use std::ops::Range;
use std::sync::Arc;

use deadpool_redis::redis::{Cmd, FromRedisValue, cmd};
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::hand::{Drawn, Hand, Wish};
use super::Inner;
use super::script::{self, Script};
use super::transport::link::Repeat;
use super::transport::node::{Node, Purpose};
use super::transport::servers::one;
use super::transport::slot;
use crate::clock::Clock;
use crate::store::{Error, Result};
use crate::task::TaskId;

pub(crate) mod hand;

/// How far a new server's counter skips ahead: two seconds' worth, twice what `everysec` may have
/// lost.
const SKIP: u64 = 2 * TaskId::PER_SECOND;

/// Where ids are drawn.
#[derive(Debug, Default)]
pub(crate) struct Ids(Mutex<Blocks>);

/// The ids in hand.
#[derive(Debug, Default)]
struct Blocks {
    hand: Hand,
    /// What was drawn from last.
    run: Option<Run>,
}

/// The run of a server that ids were drawn from. Ids are good while it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    node: Arc<Node>,
    run_id: Arc<str>,
}

impl Run {
    /// Whether nothing is known of a restart or a failover since.
    pub(crate) fn lasts(&self) -> bool {
        self.node.is_in_run(&self.run_id)
    }

    fn is(&self, other: &Self) -> bool {
        self.node.number == other.node.number && self.run_id == other.run_id
    }
}

impl Ids {
    /// New ids as they are wished for, growing unless they have to lead to certain lanes, and the
    /// server run that they belong to.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; no id was used then.
    pub(crate) async fn draw(
        &self,
        wishes: &[Wish],
        inner: &Arc<Inner>,
    ) -> Result<(Vec<Drawn>, Run)> {
        let mut blocks = self.0.lock().await;
        let run = current_run(inner).await?;
        let is_same_run = blocks.is_of(&run);
        blocks.hand.keep_fresh(is_same_run);
        let mut drawn = Vec::with_capacity(wishes.len());
        loop {
            blocks.hand.take_for(wishes, &mut drawn);
            let open = &wishes[drawn.len()..];
            if open.is_empty() {
                if blocks.hand.is_soon_over() {
                    blocks.hand.is_ahead = true;
                    tokio::spawn(draw_ahead(
                        inner.clone(),
                        run.clone(),
                        blocks.hand.size_for(&[]),
                        blocks.hand.emptied,
                    ));
                }
                return Ok((drawn, run));
            }
            let began = Instant::now();
            let ids =
                draw_block(inner, &run, blocks.hand.size_for(open), blocks.skip(&run)).await?;
            blocks.hand.put(ids, began, Instant::now());
            blocks.run = Some(run.clone());
        }
    }

    /// Whether somebody's are being drawn.
    #[cfg(test)]
    pub(crate) fn is_drawing(&self) -> bool {
        self.0.try_lock().is_err()
    }

    /// Uses no id any more that is in hand: the counter has been raised past others.
    pub(crate) async fn drop_blocks(&self) {
        self.0.lock().await.hand.empty();
    }
}

impl Blocks {
    /// Whether its ids are of this run.
    fn is_of(&self, run: &Run) -> bool {
        self.run.as_ref().is_some_and(|last| last.is(run))
    }

    /// How far the counter has to skip ahead before it is drawn from in this run.
    fn skip(&self, run: &Run) -> u64 {
        if self.run.is_none() || self.is_of(run) { 0 } else { SKIP }
    }
}

/// Puts a further block in hand, if nothing has made its ids unusable meanwhile.
async fn draw_ahead(inner: Arc<Inner>, run: Run, size: u64, emptied: u64) {
    let began = Instant::now();
    let ids = draw_block(&inner, &run, size, 0).await;
    let drawn = Instant::now();
    let mut blocks = inner.ids.0.lock().await;
    if blocks.hand.emptied != emptied {
        return;
    }
    blocks.hand.is_ahead = false;
    // After an error the next caller draws, and is told what is wrong.
    if let Ok(ids) = ids
        && blocks.is_of(&run)
    {
        blocks.hand.put(ids, began, drawn);
    }
}

async fn draw_block(inner: &Inner, run: &Run, size: u64, skip: u64) -> Result<Range<u64>> {
    let draw =
        script_call(&script::IDS, &[inner.keys.last_id()], &inner.clock).arg(size).arg(skip).take();
    let repeat = Repeat::While(&|| run.lasts());
    let last = one(inner.servers.run(Purpose::Working, &[draw], repeat).await)?;
    let last = u64::from_redis_value(last).map_err(|error| Error::Corrupt(error.to_string()))?;
    if last > TaskId::MAX.0 {
        return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
    }
    Ok(last + 1 - size..last + 1)
}

/// The server that has the counter, and its run.
async fn current_run(inner: &Inner) -> Result<Run> {
    let map = inner.servers.map();
    let away = || Error::Unavailable("no server has the id counter's part of the cluster".into());
    let node = map.owner(Some(slot::of_key(inner.keys.last_id().as_bytes()))).ok_or_else(away)?;
    let live = node.link(Purpose::Working).live().await?;
    Ok(Run { node: node.clone(), run_id: live.server().run_id.clone() })
}

/// `EVALSHA` of a script with its keys and now; the caller adds the rest.
pub(crate) fn script_call(script: &Script, keys: &[String], clock: &Clock) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(&script.sha).arg(keys.len()).arg(keys).arg(clock.manual_now().map_or(0, |now| now.0));
    call
}
