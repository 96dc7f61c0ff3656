//! Whether the store answers.

use std::sync::Arc;

use deadpool_redis::redis::{FromRedisValue, cmd};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout};

use super::session::Session;
use super::transport::fault::silent;
use super::transport::link::Repeat;
use super::transport::map::Map;
use super::transport::node::Node;
use super::transport::slot;
use crate::model::clock::UnixMillis;
use crate::store::{Error, Result};

/// How many keys are tried to find one in a slot of a node.
const KEYS_TRIED: usize = 1_000;

/// The store's now, as a sign that it answers. There is one ping at a time, and callers that arrive
/// meanwhile share its answer. Otherwise, if replicas were missing, pings that wait behind each
/// other on the connection would look like a silent server. A ping continues after its caller has
/// left, for the same reason.
pub(super) async fn ping(session: &Arc<Session>) -> Result<UnixMillis> {
    let (session, arrived) = (session.clone(), Instant::now());
    let pinging = tokio::spawn(async move {
        let mut last = session.pinged.lock().await;
        match &*last {
            Some((ended, answer)) if *ended >= arrived => answer.clone(),
            _ => {
                let answer = ping_alone(&session).await;
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    });
    pinging.await.unwrap_or_else(|_| Err(Error::Unavailable("the store is closed".into())))
}

/// A store that answers reads but accepts no tasks is not healthy. Tasks are accepted while the
/// server of the id counter answers or, with an id reserve, another server does.
async fn ping_alone(session: &Arc<Session>) -> Result<UnixMillis> {
    if session.ids.reserve_left() == 0 || session.servers.is_refused() {
        return ping_counter(session).await;
    }
    // It continues after the time limit, so that the breaker counts a silent server.
    let counter = tokio::spawn({
        let session = session.clone();
        async move { ping_counter(&session).await }
    });
    // Half of the time is left for the others.
    let half = session.timeout / 2;
    let error = match timeout(half, counter).await {
        Ok(Ok(Ok(now))) => return Ok(now),
        Ok(Ok(Err(error))) => error,
        Ok(Err(_)) | Err(_) => silent(),
    };
    timeout(half, ping_others(session)).await.ok().flatten().ok_or(error)
}

/// Asks the server of the id counter, through both kinds of connections.
async fn ping_counter(session: &Session) -> Result<UnixMillis> {
    let counter = || cmd("EXISTS").arg(session.keys.last_id()).take();
    session.beside_adds.run_one(counter()).await?;
    session.working.run_one(counter()).await?;
    session.now().await
}

/// The now of another server that takes adds.
async fn ping_others(session: &Session) -> Option<UnixMillis> {
    let map = session.servers.map();
    let counter = map.owner(Some(slot::of_key(session.keys.last_id().as_bytes())));
    let is_other = |node: &&Arc<Node>| counter.is_none_or(|counter| node.number != counter.number);
    let others = map.nodes().iter().filter(is_other).filter_map(|node| {
        let key = key_on(session, &map, node)?;
        Some(Box::pin(ping_node(session, node, key)))
    });
    let mut asked: FuturesUnordered<_> = others.collect();
    while let Some(answer) = asked.next().await {
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// The now of a node that takes adds: it has the slot of a key, and the cluster serves keys. With
/// `cluster-allow-reads-when-down`, a node answers reads while it refuses adds.
async fn ping_node(session: &Session, node: &Node, key: String) -> Option<UnixMillis> {
    let asked = [cmd("EXISTS").arg(key).take(), cmd("CLUSTER").arg("INFO").take(), cmd("TIME")];
    let answers = node.run(session.beside_adds.purpose, &asked, Repeat::Once).await.ok()?;
    let [exists, cluster, time] = <[_; 3]>::try_from(answers).ok()?;
    exists.ok()?;
    let cluster = String::from_redis_value(cluster.ok()?).ok()?;
    let is_well = cluster.lines().any(|line| line.trim() == "cluster_state:ok");
    is_well.then(|| session.read_time(time.ok()?).ok()).flatten()
}

/// The name of a key in a slot of the node; `None` if the node has hardly any slots.
fn key_on(session: &Session, map: &Map, node: &Node) -> Option<String> {
    let is_there = |key: &String| {
        let owner = map.owner(Some(slot::of_key(key.as_bytes())));
        owner.is_some_and(|owner| owner.number == node.number)
    };
    let prefix = session.keys.last_id();
    (0..KEYS_TRIED).map(|n| format!("{prefix}-{n}")).find(is_there)
}
