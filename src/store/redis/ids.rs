//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! A block belongs to one run of one server: after a restart or a failover the counter may have lost its last
//! increments, so a block drawn before is thrown away and the first draw skips ahead of all that may be in use. It also goes
//! stale within a second, so that ids can be read as a time. A task that has to lie in a certain lane takes an id that leads there; what was
//! passed over for that is used for others.

use std::collections::BTreeSet;
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

/// Ids drawn at once, unless more are needed: all wait while a block is drawn, so each that is used up while it is fresh makes the next one
/// twice as long.
const BLOCK: u64 = 1_000;
const LONGEST_BLOCK: u64 = 32_000;
/// How long a block may be used.
const FRESH: Duration = Duration::from_secs(1);
/// How far a new server's counter skips ahead: two seconds' worth, twice what `everysec` may have lost.
const SKIP: u64 = 2 * TaskId::PER_SECOND;

/// The ids in hand.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<Block>);

/// What a task asks of its ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// The number of its topic's lanes.
    pub(super) shards: u16,
    /// The lane that its id has to lead to.
    pub(super) shard: Option<u16>,
    /// Whether it needs a second one that leads to the same lane: for the call that is made if it dies.
    pub(super) has_call: bool,
}

/// A task's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) own: TaskId,
    pub(super) call: Option<TaskId>,
}

#[derive(Debug, Default)]
struct Block {
    ids: Range<u64>,
    /// How many there were.
    size: u64,
    /// Those before them that led to a lane that was not wished for.
    spare: BTreeSet<u64>,
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

    pub(super) fn is(&self, other: &Self) -> bool {
        self.node.number == other.node.number && self.run_id == other.run_id
    }
}

impl Ids {
    /// New ids as they are wished for, growing unless they have to lead to certain lanes, and the server run that they belong to.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; no id was used then.
    pub(super) async fn draw(&self, wishes: &[Wish], inner: &Inner) -> Result<(Vec<Drawn>, Run)> {
        let mut block = self.0.lock().await;
        let run = current_run(inner).await?;
        let is_fresh = block.drawn.is_some_and(|drawn| drawn.elapsed() < FRESH);
        let is_same = |block: &Block| block.run.as_ref().is_some_and(|before| before.is(&run));
        if is_fresh
            && is_same(&block)
            && let Some(drawn) = block.take_all(wishes)
        {
            return Ok((drawn, run));
        }
        let usual = if is_fresh { (2 * block.size).clamp(BLOCK, LONGEST_BLOCK) } else { BLOCK };
        let mut size = usual.max(2 * wishes.len() as u64);
        loop {
            let skip = if block.run.is_none() || is_same(&block) { 0 } else { SKIP };
            let draw = script_call(&script::IDS, &[inner.keys.last_id()], &inner.clock).arg(size).arg(skip).take();
            let repeat = Repeat::While(&|| run.lasts());
            let last = one(inner.servers.run(Purpose::Working, &[draw], repeat).await)?;
            let last = u64::from_redis_value(last).map_err(|error| Error::Corrupt(error.to_string()))?;
            if last > TaskId::MAX.0 {
                return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
            }
            *block = Block::new(last + 1 - size..last + 1, run.clone());
            if let Some(drawn) = block.take_all(wishes) {
                return Ok((drawn, run));
            }
            // Too many wish for the same lane. As many ids as each wish has lanes are enough for all.
            size *= 2;
        }
    }
}

impl Ids {
    /// Uses no id any more that is in hand: the counter has been raised past others.
    pub(super) async fn drop_block(&self) {
        let mut block = self.0.lock().await;
        *block = Block { run: block.run.take(), ..Block::default() };
    }
}

impl Block {
    fn new(ids: Range<u64>, run: Run) -> Self {
        let size = ids.end - ids.start;
        Self { ids, size, spare: BTreeSet::new(), drawn: Some(Instant::now()), run: Some(run) }
    }

    /// `None` if there are too few; some are lost then.
    fn take_all(&mut self, wishes: &[Wish]) -> Option<Vec<Drawn>> {
        wishes.iter().map(|wish| self.take_for(wish)).collect()
    }

    fn take_for(&mut self, wish: &Wish) -> Option<Drawn> {
        let shards = u64::from(wish.shards.max(1));
        let own = self.take(shards, wish.shard.map(u64::from))?;
        let call = if wish.has_call { Some(TaskId(self.take(shards, Some(own % shards))?)) } else { None };
        Some(Drawn { own: TaskId(own), call })
    }

    fn take(&mut self, shards: u64, shard: Option<u64>) -> Option<u64> {
        let fits = |id: u64| shard.is_none_or(|shard| id % shards == shard);
        if let Some(id) = self.spare.iter().copied().find(|id| fits(*id)) {
            self.spare.remove(&id);
            return Some(id);
        }
        for id in self.ids.by_ref() {
            if fits(id) {
                return Some(id);
            }
            self.spare.insert(id);
        }
        None
    }
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
pub(super) fn script_call(script: &Script, keys: &[String], clock: &Clock) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(&script.sha).arg(keys.len()).arg(keys).arg(clock.manual_now().map_or(0, |now| now.0));
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ids: Range<u64>) -> Block {
        Block { ids, ..Block::default() }
    }

    fn wish(shard: impl Into<Option<u16>>, has_call: bool) -> Wish {
        Wish { shards: 4, shard: shard.into(), has_call }
    }

    fn drawn(own: u64, call: impl Into<Option<u64>>) -> Drawn {
        Drawn { own: TaskId(own), call: call.into().map(TaskId) }
    }

    #[test]
    fn ids_lead_to_the_lanes_that_are_wished_for_and_none_is_wasted() {
        let wishes = [wish(3, false), wish(None, false), wish(None, true), wish(0, true), wish(None, false)];
        let mut block = block(8..20);
        let expected = [drawn(11, None), drawn(8, None), drawn(9, 13), drawn(12, 16), drawn(10, None)];
        assert_eq!(block.take_all(&wishes).unwrap(), expected);
        assert_eq!(block.take_all(&[wish(None, false); 4]).unwrap().len(), 4);
    }

    #[test]
    fn a_block_that_is_used_up_says_so() {
        assert_eq!(block(8..12).take_all(&[wish(1, true)]), None);
        assert_eq!(block(8..16).take_all(&[wish(1, true)]).unwrap(), [drawn(9, 13)]);
        assert_eq!(block(8..8).take_all(&[wish(None, false)]), None);
        // As many as all wishes have lanes are enough.
        assert!(block(5..21).take_all(&[wish(0, true), wish(0, true)]).is_some());
    }
}
