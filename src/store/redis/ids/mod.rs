//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! No id is drawn twice, although a server may lose the last increments of the counter in a restart
//! or a failover: the first draw after it skips ahead of all ids that may be in use (ADR 23). So
//! ids stay valid when the server changes. A block is dropped after a second, so that ids can be
//! read as a time.
//!
//! There is one draw at a time, in a task of its own, and all requests that find no id wait for it.
//! The next block is drawn ahead, by twice the time that the last draw took. If Redis is far away,
//! no request waits; if it is near, there are few draws without need. In a cluster, each adder
//! requests ids for the lanes of its own server, and all adders share the blocks. There, each draw
//! also brings a `reserve` for an outage of the counter's server.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::FromRedisValue;
use tokio::sync::watch;
use tokio::time::Instant;

use self::pool::{Drawn, IdRequest};
use self::stock::{Brought, Drawing, Order, Stock};
use super::answer::corrupt;
use super::script;
use super::session::Session;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use super::transport::servers::one;
use super::transport::slot;
use crate::model::task::TaskId;
use crate::store::{Error, Result};

pub(crate) mod counter;
pub(crate) mod pool;
mod reserve;
pub(crate) mod shared;
mod stock;

/// How far reserves may bring the counter ahead of the clock.
const AHEAD: u64 = 2 * TaskId::PER_SECOND;
/// How far the first draw in a new run of the server skips ahead: beyond all reserves, by a margin
/// of three seconds for clocks that differ and for a primary that was replaced and still answers.
const SKIP: u64 = AHEAD + 3 * TaskId::PER_SECOND;

/// New ids as requested. They grow, unless they have to lead to certain lanes, or the counter is
/// away.
///
/// # Errors
/// [`Error::Unavailable`]; then no id was used.
pub(super) async fn draw(session: &Arc<Session>, requests: &[IdRequest]) -> Result<Vec<Drawn>> {
    let mut drawn = Vec::with_capacity(requests.len());
    while let Some((drawing, patience)) = take(session, requests, &mut drawn) {
        match ended(drawing, patience).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                session.ids.stock().take_for(requests, &mut drawn);
                return if drawn.len() == requests.len() { Ok(drawn) } else { Err(error) };
            }
            None => session.ids.stock().counter_is_away(),
        }
    }
    Ok(drawn)
}

/// Takes ids. If some are missing, returns the draw to wait for, and how long to wait before the
/// reserve is used, if there is one.
fn take(
    session: &Arc<Session>,
    requests: &[IdRequest],
    drawn: &mut Vec<Drawn>,
) -> Option<(Drawing, Option<Duration>)> {
    let mut stock = session.ids.stock();
    stock.take_for(requests, drawn);
    let open = &requests[drawn.len()..];
    if !open.is_empty() {
        let drawing = stock.drawing().unwrap_or_else(|| begin(session, &mut stock, open));
        return Some((drawing, stock.patience(round_trip(session))));
    }
    if stock.is_to_draw() {
        begin(session, &mut stock, open);
    }
    None
}

/// The result of a draw; `None` if it takes longer than `patience`.
async fn ended(mut drawing: Drawing, patience: Option<Duration>) -> Option<Result<()>> {
    let result = async {
        let result = drawing.wait_for(Option::is_some).await;
        let closed = || Err(Error::Unavailable("the store is closed".into()));
        result.map_or_else(|_| closed(), |result| result.clone().unwrap_or(Ok(())))
    };
    match patience {
        Some(patience) => tokio::time::timeout(patience, result).await.ok(),
        None => Some(result.await),
    }
}

/// Begins a draw for the requests that remain. Nobody can cut it off: a late answer counts, too.
fn begin(session: &Arc<Session>, stock: &mut Stock, open: &[IdRequest]) -> Drawing {
    let (result, drawing) = watch::channel(None);
    let order = stock.order(open, session.ids.outage);
    stock.begins(drawing.clone());
    let session = session.clone();
    tokio::spawn(async move {
        let began = Instant::now();
        let (brought, error) = match ask(&session, order).await {
            Ok(brought) => (Some(brought), Ok(())),
            Err(error) => (None, Err(error)),
        };
        session.ids.stock().ended(order, brought, began);
        result.send_replace(Some(error));
    });
    drawing
}

async fn ask(session: &Session, order: Order) -> Result<Brought> {
    let mut draw = session.call(&script::IDS, &[session.keys.last_id(), session.keys.id_run()]);
    draw.arg(order.block).arg(order.reserve).arg(order.highest).arg(SKIP).arg(AHEAD);
    // A repeated draw only leaves ids unused.
    let answer = one(session.servers.run(Purpose::Working, &[draw], Repeat::Once).await)?;
    let (last, reserve) = <(u64, u64)>::from_redis_value(answer).map_err(corrupt)?;
    let end = last + 1;
    if last > TaskId::MAX.0 {
        return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
    }
    let middle = end - reserve;
    Ok(Brought { block: middle - order.block..middle, reserve: middle..end })
}

/// The round trip to the server of the counter; zero if it is unknown.
fn round_trip(session: &Session) -> Duration {
    let map = session.servers.map();
    let node = map.owner(Some(slot::of_key(session.keys.last_id().as_bytes())));
    node.map_or(Duration::ZERO, |node| node.link(Purpose::Working).round_trip())
}
