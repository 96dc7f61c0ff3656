//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! A block belongs to one run of one server. After a restart or a failover the counter may have
//! lost its last increments, so older blocks are dropped, and the first draw skips ahead of all ids
//! that may be in use. A block is also dropped after a second, so that ids can be read as a time.
//!
//! All requests wait while a block is drawn, so the next block is drawn ahead, by twice the time
//! that the last draw took. If Redis is far away, no request waits; if it is near, there are few
//! draws without need. In a cluster, each adder requests ids for the lanes of its own server, and
//! all adders share the blocks.

use std::ops::Range;
use std::sync::Arc;

use deadpool_redis::redis::FromRedisValue;
use tokio::time::Instant;

use self::blocks::Run;
use self::pool::{Drawn, IdRequest};
use super::script;
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use super::transport::servers::one;
use super::transport::slot;
use crate::model::task::TaskId;
use crate::store::{Error, Result};

pub(crate) mod blocks;
pub(crate) mod counter;
pub(crate) mod pool;

/// New ids as requested, and the server run that they belong to. The ids grow, unless they have to
/// lead to certain lanes.
///
/// # Errors
/// [`Error::Unavailable`]; then no id was used.
pub(super) async fn draw(
    session: &Arc<Session>,
    requests: &[IdRequest],
) -> Result<(Vec<Drawn>, Run)> {
    let mut blocks = session.ids.lock().await;
    let run = current_run(session).await?;
    let is_same_run = blocks.is_of(&run);
    blocks.pool.keep_fresh(is_same_run);
    let mut drawn = Vec::with_capacity(requests.len());
    loop {
        blocks.pool.take_for(requests, &mut drawn);
        let open = &requests[drawn.len()..];
        if open.is_empty() {
            if blocks.pool.is_soon_over() {
                blocks.pool.is_ahead = true;
                let size = blocks.pool.size_for(&[]);
                let ahead = draw_ahead(session.clone(), run.clone(), size, blocks.pool.emptied);
                tokio::spawn(ahead);
            }
            return Ok((drawn, run));
        }
        let began = Instant::now();
        let ids = draw_block(session, &run, blocks.pool.size_for(open), blocks.skip(&run)).await?;
        blocks.pool.put(ids, began, Instant::now());
        blocks.run = Some(run.clone());
    }
}

/// Drops all blocks, because the counter was raised past other ids.
pub(super) async fn drop_blocks(session: &Session) {
    session.ids.lock().await.pool.empty();
}

/// Draws a further block, unless its ids have become unusable meanwhile.
async fn draw_ahead(session: Arc<Session>, run: Run, size: u64, emptied: u64) {
    let began = Instant::now();
    let ids = draw_block(&session, &run, size, 0).await;
    let drawn = Instant::now();
    let mut blocks = session.ids.lock().await;
    if blocks.pool.emptied != emptied {
        return;
    }
    blocks.pool.is_ahead = false;
    // After an error, the next caller draws and gets the error.
    if let Ok(ids) = ids
        && blocks.is_of(&run)
    {
        blocks.pool.put(ids, began, drawn);
    }
}

async fn draw_block(session: &Session, run: &Run, size: u64, skip: u64) -> Result<Range<u64>> {
    let draw = session.call(&script::IDS, &[session.keys.last_id()]).arg(size).arg(skip).take();
    let repeat = Repeat::While(&|| run.lasts());
    let last = one(session.servers.run(Purpose::Working, &[draw], repeat).await)?;
    let last = u64::from_redis_value(last).map_err(|error| Error::Corrupt(error.to_string()))?;
    if last > TaskId::MAX.0 {
        return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
    }
    Ok(last + 1 - size..last + 1)
}

/// The server that has the counter, and its run.
async fn current_run(session: &Session) -> Result<Run> {
    let map = session.servers.map();
    let away = || Error::Unavailable("no server has the id counter's part of the cluster".into());
    let node = map.owner(Some(slot::of_key(session.keys.last_id().as_bytes()))).ok_or_else(away)?;
    let live = node.link(Purpose::Working).live().await?;
    Ok(Run { node: node.clone(), run_id: live.server().run_id.clone() })
}
