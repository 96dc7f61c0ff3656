//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! A block belongs to one run of one server. After a restart or a failover the counter may have
//! lost its last increments, so older blocks are dropped, and the first draw skips ahead of all ids
//! that may be in use. A block is also dropped after a second, so that ids can be read as a time.
//!
//! All requests wait while a block is drawn, so the next block is drawn ahead, by twice the time
//! that the last draw took. If Redis is far away, no request waits; if it is near, there are few
//! draws without need. In a cluster, each adder requests ids for the lanes of its own server, and
//! all adders share the blocks. There, each draw also brings a `reserve` for an outage of the
//! counter's server.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::FromRedisValue;
use tokio::time::Instant;

use self::blocks::{Blocks, Run, Size};
use self::pool::{Drawn, IdRequest};
use super::script;
use super::session::Session;
use super::transport::fault::silent;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use super::transport::servers::one;
use super::transport::slot;
use crate::model::task::TaskId;
use crate::store::{Error, Result};

pub(crate) mod blocks;
pub(crate) mod counter;
pub(crate) mod pool;
mod reserve;

/// How long the counter may take while there is a reserve.
const PATIENCE: Duration = Duration::from_millis(100);

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
    let (run, is_away) = run_to_draw(session, &mut blocks).await?;
    blocks.keep_fresh(&run);
    let mut drawn = Vec::with_capacity(requests.len());
    loop {
        blocks.pool.take_for(requests, &mut drawn);
        let open = &requests[drawn.len()..];
        if open.is_empty() {
            if blocks.pool.is_soon_over() && !is_away {
                blocks.pool.is_ahead = true;
                let block = blocks.pool.size_for(&[]);
                let size = size_of(session, &blocks, block);
                let ahead = draw_ahead(session.clone(), run.clone(), size, blocks.pool.emptied);
                tokio::spawn(ahead);
            }
            return Ok((drawn, run));
        }
        let block = blocks.pool.size_for(open);
        match draw_now(session, &mut blocks, &run, block, is_away).await {
            Ok(()) => blocks.run = Some(run.clone()),
            Err(_) if blocks.put_from_reserve(block) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The run whose ids are used, and whether its server is away, so that only its reserve is left.
async fn run_to_draw(session: &Session, blocks: &mut Blocks) -> Result<(Run, bool)> {
    let Some(reserved) = blocks.reserve_run() else {
        return Ok((current_run(session).await?, false));
    };
    if blocks.counter_rests() {
        return Ok((reserved, true));
    }
    match tokio::time::timeout(PATIENCE, current_run(session)).await {
        Ok(Ok(run)) => Ok((run, false)),
        Ok(Err(_)) | Err(_) => {
            blocks.counter_failed();
            Ok((reserved, true))
        }
    }
}

/// Draws a block, unless the counter is away. While there is a reserve, this takes little time.
async fn draw_now(
    session: &Session,
    blocks: &mut Blocks,
    run: &Run,
    block: u64,
    is_away: bool,
) -> Result<()> {
    let has_reserve = blocks.reserve_run().is_some();
    if is_away || (has_reserve && blocks.counter_rests()) {
        return Err(silent());
    }
    let (began, size) = (Instant::now(), size_of(session, blocks, block));
    let drawing = draw_block(session, run, size, blocks.skip(run));
    let ids = if has_reserve {
        let in_time = tokio::time::timeout(PATIENCE, drawing).await;
        in_time.unwrap_or_else(|_| Err(silent())).inspect_err(|_| blocks.counter_failed())?
    } else {
        drawing.await?
    };
    blocks.put(ids, size, began, Instant::now());
    Ok(())
}

/// How many ids to draw for a block of this size. Without a cluster, no lane works without the
/// server of the counter, so there is no reserve.
fn size_of(session: &Session, blocks: &Blocks, block: u64) -> Size {
    blocks.size_of(block, session.servers.is_cluster(), session.clock.now())
}

/// Drops all ids, because the counter was raised past other ids.
pub(super) async fn drop_blocks(session: &Session) {
    session.ids.lock().await.empty();
}

/// Whether tasks get ids without the counter.
pub(super) async fn has_reserve(session: &Session) -> bool {
    session.ids.lock().await.reserve_run().is_some()
}

/// Draws a further block, unless its ids have become unusable meanwhile.
async fn draw_ahead(session: Arc<Session>, run: Run, size: Size, emptied: u64) {
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
        blocks.put(ids, size, began, drawn);
    }
}

async fn draw_block(session: &Session, run: &Run, size: Size, skip: u64) -> Result<Range<u64>> {
    let size = size.block + size.reserve;
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
