//! Whether the store answers.

use std::sync::Arc;

use deadpool_redis::redis::cmd;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::session::Session;
use super::transport::fault::silent;
use super::transport::link::Repeat;
use super::transport::node::{Node, Purpose};
use super::transport::slot;
use crate::model::clock::UnixMillis;
use crate::store::{Error, Result};

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
/// server of the id counter answers or, with a reserve of ids, another server does.
async fn ping_alone(session: &Session) -> Result<UnixMillis> {
    if session.ids.reserve_left() == 0 {
        return ping_counter(session).await;
    }
    // Half of the time is left for the others.
    match tokio::time::timeout(session.timeout / 2, ping_counter(session)).await {
        Ok(Ok(now)) => Ok(now),
        Ok(Err(error)) => ping_others(session).await.ok_or(error),
        Err(_) => ping_others(session).await.ok_or_else(silent),
    }
}

/// Asks the server of the id counter, through both kinds of connections.
async fn ping_counter(session: &Session) -> Result<UnixMillis> {
    let counter = || cmd("EXISTS").arg(session.keys.last_id()).take();
    session.adding.run_one(counter()).await?;
    session.working.run_one(counter()).await?;
    session.now().await
}

/// The now of another server that takes adds.
async fn ping_others(session: &Session) -> Option<UnixMillis> {
    let map = session.servers.map();
    let counter = map.owner(Some(slot::of_key(session.keys.last_id().as_bytes())));
    let is_other = |node: &&Arc<Node>| counter.is_none_or(|counter| node.number != counter.number);
    let others = map.nodes().iter().filter(is_other).map(|node| {
        Box::pin(async {
            let answers = node.run(Purpose::Adding, &[cmd("TIME")], Repeat::Once).await.ok()?;
            session.read_time(answers.into_iter().next()?.ok()?).ok()
        })
    });
    let mut asked: FuturesUnordered<_> = others.collect();
    while let Some(answer) = asked.next().await {
        if answer.is_some() {
            return answer;
        }
    }
    None
}
