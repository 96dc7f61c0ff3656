//! Task ids, drawn from Redis in blocks (`lua/ids.lua`).
//!
//! No id is drawn twice, although a server may lose the last increments of the counter in a restart
//! or a failover: the first draw after it skips ahead of all ids that may be in use (ADR 23). So
//! ids stay valid when the server changes. A block is used for a second, so that ids can be read as
//! a time.
//!
//! There is one draw at a time, in a task of its own, and all requests that find no id wait for it.
//! The next block is drawn ahead, by twice the time that the last draw took. If Redis is far away,
//! no request waits; if it is near, there are few draws without need. In a cluster, the queue of
//! each server requests ids for that server's lanes, and all queues share the blocks. There,
//! what is left of the blocks of the last 30 s is the *id reserve*: it serves while the counter's
//! server does not answer.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::FromRedisValue;
use tokio::sync::watch;
use tokio::time::Instant;

use self::pool::{Drawn, IdRequest, open};
use self::stock::{Drawing, LONGEST_WAIT, Order, Stock};
use super::answer::corrupt;
use super::script;
use super::session::Session;
use super::transport::fault::silent;
use super::transport::link::Repeat;
use super::transport::node::Purpose;
use super::transport::servers::one;
use super::transport::slot;
use crate::model::task::TaskId;
use crate::store::{Error, Result};

pub(crate) mod counter;
pub(crate) mod pool;
pub(crate) mod shared;
mod stock;

/// How far the first draw in a new run of the server skips ahead of the counter that is left, and
/// of the clock: more than a server loses, and a margin for clocks that differ and for a primary
/// that was replaced and still answers.
const SKIP: u64 = 5 * TaskId::PER_SECOND;

/// New ids as requested, or why a request has none. They grow, unless they have to lead to certain
/// lanes, or the counter is away.
///
/// While there is an id reserve, all requests wait until one deadline, however many draws end
/// meanwhile. Then they use the id reserve. Requests for which it has no ids wait until a second
/// deadline.
pub(super) async fn draw(session: &Arc<Session>, requests: &[IdRequest]) -> Vec<Result<Drawn>> {
    let began = Instant::now();
    let mut drawn = vec![None; requests.len()];
    let mut patience = None;
    let mut error = silent();
    while let Some(missing) = take(session, requests, &mut drawn) {
        let patience = *patience.get_or_insert(missing.patience);
        let wait = if missing.is_away { patience.map(|_| LONGEST_WAIT) } else { patience };
        match ended(missing.drawing, wait.map(|wait| began + wait)).await {
            Some(Ok(())) => {}
            Some(Err(failure)) => {
                session.ids.stock().take_for(requests, &mut drawn);
                error = failure;
                break;
            }
            None if missing.is_away => break,
            None => session.ids.stock().counter_is_away(&error),
        }
    }
    drawn.into_iter().map(|drawn| drawn.ok_or_else(|| error.clone())).collect()
}

/// Requests have no ids yet.
struct MissingIds {
    /// The draw to wait for.
    drawing: Drawing,
    /// How long to wait before the id reserve is used; `None` if there is none.
    patience: Option<Duration>,
    /// Whether the id reserve was used already.
    is_away: bool,
}

/// Takes ids. If some are missing, returns what to wait for.
fn take(
    session: &Arc<Session>,
    requests: &[IdRequest],
    drawn: &mut [Option<Drawn>],
) -> Option<MissingIds> {
    let mut stock = session.ids.stock();
    let has_reserve = stock.has_reserve();
    if stock.take_for(requests, drawn) {
        if stock.is_to_draw() {
            begin(session, &mut stock, &[]);
        }
        return None;
    }
    let is_away = stock.is_away();
    let begin = |stock: &mut Stock| begin(session, stock, &open(requests, drawn));
    let drawing = stock.drawing().unwrap_or_else(|| begin(&mut stock));
    let patience = has_reserve.then(|| stock.patience(round_trip(session)));
    Some(MissingIds { drawing, patience, is_away })
}

/// The result of a draw; `None` if there is none at the deadline.
async fn ended(mut drawing: Drawing, deadline: Option<Instant>) -> Option<Result<()>> {
    let result = async {
        let result = drawing.wait_for(Option::is_some).await;
        let closed = || Err(Error::Unavailable("the store is closed".into()));
        result.map_or_else(|_| closed(), |result| result.clone().unwrap_or(Ok(())))
    };
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, result).await.ok(),
        None => Some(result.await),
    }
}

/// Begins a draw for the requests that remain, in a task of its own. It continues after its callers
/// have left, because a late answer counts, too.
fn begin(session: &Arc<Session>, stock: &mut Stock, open: &[IdRequest]) -> Drawing {
    let (result, drawing) = watch::channel(None);
    let order = stock.order(open);
    stock.begins(drawing.clone());
    let session = session.clone();
    tokio::spawn(async move {
        let began = Instant::now();
        let block = ask(&session, order).await;
        let end = block.as_ref().map(drop).map_err(Error::clone);
        session.ids.stock().ended(order, block, began);
        result.send_replace(Some(end));
    });
    drawing
}

async fn ask(session: &Session, order: Order) -> Result<Range<u64>> {
    let mut draw = session.call(&script::IDS, &[session.keys.last_id(), session.keys.id_run()]);
    draw.arg(order.block).arg(order.highest).arg(SKIP);
    // A repeated draw only leaves ids unused.
    let answer = one(session.servers.run(Purpose::Working, &[draw], Repeat::Once).await)?;
    let last = u64::from_redis_value(answer).map_err(corrupt)?;
    if last > TaskId::MAX.0 {
        return Err(Error::Corrupt(format!("the id counter stands at {last}, beyond 2^53")));
    }
    Ok(last + 1 - order.block..last + 1)
}

/// The round trip to the server of the counter; zero if it is unknown.
fn round_trip(session: &Session) -> Duration {
    let map = session.servers.map();
    let node = map.owner(Some(slot::of_key(session.keys.last_id().as_bytes())));
    node.map_or(Duration::ZERO, |node| node.link(Purpose::Working).round_trip())
}
