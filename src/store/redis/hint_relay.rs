//! Publishes this instance's hints through Redis, and receives those of other instances.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value, cmd};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::session::Session;
use super::transport::node::Purpose;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::Hint;

/// The most hints that are sent together.
const BACKLOG: usize = 1_024;
/// The delay before the subscription is tried again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The interval between two checks of the subscription.
const ROUND: Duration = Duration::from_secs(5);

/// Publishes hints until the sender is dropped. Hints that arrive during a round trip are sent
/// together, each lane once.
pub(super) async fn publish(session: Arc<Session>, mut hints: mpsc::Receiver<Hint>) {
    let mut gathered = Vec::with_capacity(BACKLOG);
    while hints.recv_many(&mut gathered, BACKLOG).await > 0 {
        let mut earliest = HashMap::new();
        for Hint { lane, due, is_pull } in gathered.drain(..) {
            let first = earliest.entry((lane, is_pull)).or_insert(due);
            *first = due.min(*first);
        }
        let publish = |((lane, is_pull), due): ((Lane, bool), UnixMillis)| {
            cmd("PUBLISH")
                .arg(session.keys.hints())
                .arg(session.hints.write(&lane, due, is_pull))
                .take()
        };
        let commands: Vec<Cmd> = earliest.into_iter().map(publish).collect();
        // A lost hint costs at most a second: the other instances poll.
        let _ = session.working.run_repeatable(&commands).await;
    }
}

/// Receives hints for ever.
pub(super) async fn listen(session: Arc<Session>) {
    loop {
        // Whatever ended the subscription, it begins again.
        let _ = listen_once(&session).await;
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Receives hints until the server closes the connection, falls silent, or leaves the cluster's
/// map. In a cluster, any node passes on what is published on another.
async fn listen_once(session: &Session) -> Option<()> {
    let node = session.servers.map().owner(None)?.clone();
    let live = node.link(Purpose::Working).current()?;
    let client = session.servers.client(live.at()).ok()?;
    drop(live);
    let subscribe = async {
        let mut subscription = client.get_async_pubsub().await.ok()?;
        subscription.subscribe(session.keys.hints()).await.ok()?;
        Some(subscription)
    };
    let (mut asking, mut messages) =
        tokio::time::timeout(session.timeout, subscribe).await.ok()??.split();
    let mut rounds = tokio::time::interval(ROUND);
    loop {
        tokio::select! {
            message = messages.next() => {
                let told = message?.get_payload::<String>().ok();
                if let Some(hint) = told.as_deref().and_then(|text| session.hints.read(text)) {
                    session.hints.tell_here(hint);
                }
            }
            _ = rounds.tick() => {
                let map = session.servers.map();
                let is_ours = map.nodes().iter().any(|ours| ours.number == node.number);
                let answer = tokio::time::timeout(session.timeout, asking.ping::<Value>()).await;
                if !is_ours || !matches!(answer, Ok(Ok(_))) {
                    return None;
                }
            }
        }
    }
}
