//! Hints between instances, through Redis' `PUBLISH`: this instance's go out, the others' come in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, cmd};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::session::Session;
use super::transport::node::Purpose;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::Hint;

/// Hints that are sent together.
const BACKLOG: usize = 1_024;
/// The wait before the subscription is tried again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The time between two looks at whether the subscription still stands.
const ROUND: Duration = Duration::from_secs(5);

/// Sends this instance's hints to the others until the sender is gone. What gathered during a round
/// trip goes together, each lane once.
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
        // Lost hints cost a second at most: the others look by themselves.
        let _ = session.working.run_repeatable(&commands).await;
    }
}

/// Hears the others' hints, for ever.
pub(super) async fn listen(session: Arc<Session>) {
    loop {
        // Whatever ended it, it begins anew.
        let _ = listen_once(&session).await;
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Listens until the server breaks off, falls silent, or is none of ours any more. In a cluster any
/// node hears what is published on any other.
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
                if let Some(hint) = told.as_deref().and_then(|message| session.hints.read(message)) {
                    session.hints.tell_here(hint);
                }
            }
            _ = rounds.tick() => {
                let is_ours = session.servers.map().nodes().iter().any(|ours| ours.number == node.number);
                let answer = tokio::time::timeout(session.timeout, asking.ping::<deadpool_redis::redis::Value>()).await;
                if !is_ours || !matches!(answer, Ok(Ok(_))) {
                    return None;
                }
            }
        }
    }
}
