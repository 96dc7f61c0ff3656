//! Publishes this instance's hints and messages through Redis, and receives those of others.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value, cmd};
use futures_util::StreamExt;

use super::session::Session;
use super::transport::node::Purpose;
use crate::store::Error;

/// The delay before the subscription is tried again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The interval between two checks of the subscription, and the longest wait for an answer.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The pause between two pipelines. What comes meanwhile is joined: one message of each kind for a
/// lane. Otherwise a flood would publish for each task.
const PAUSE: Duration = Duration::from_millis(2);

/// Publishes hints and messages for ever. Those that arrive during a round trip, or during the
/// pause after it, are sent together. They use the link of polls, so that claims do not wait for
/// them. What cannot be published is dropped: the polls of the others find it within a second.
pub(super) async fn publish(session: Arc<Session>) {
    loop {
        let publications = session.hints.outgoing().await;
        let command = |publication| {
            cmd("PUBLISH").arg(session.keys.hints()).arg(session.hints.write(publication)).take()
        };
        let commands: Vec<Cmd> = publications.iter().map(command).collect();
        let answers = session.polling.run_repeatable(&commands).await;
        for error in answers.into_iter().filter_map(Result::err) {
            // The link logs that its server is away.
            if !matches!(error, Error::Unavailable(_) | Error::Moving(_)) {
                session.log_once.error(&format!(
                    "Redis refuses messages to other instances, so that tasks may be late by some \
                     seconds: {error}"
                ));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Receives hints and messages for ever.
pub(super) async fn listen(session: Arc<Session>) {
    loop {
        // Whatever ended the subscription, it begins again.
        let _ = listen_once(&session).await;
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Receives until the server closes the connection, falls silent, leaves the cluster's map, or is
/// not the one that the link of claims leads to: a primary that became a replica may answer for
/// ever, and pass on nothing. In a cluster, any node passes on what is published on another.
async fn listen_once(session: &Session) -> Option<()> {
    let node = session.servers.map().owner(None)?.clone();
    let live = node.link(Purpose::Working).current()?;
    let at = live.at().clone();
    drop(live);
    let subscribe = async {
        let mut subscription = session.servers.subscriber(&at).await.ok()?;
        subscription.subscribe(session.keys.hints()).await.ok()?;
        Some(subscription)
    };
    let (mut asking, mut messages) =
        tokio::time::timeout(session.timeout, subscribe).await.ok()??.split();
    let mut checks = tokio::time::interval(CHECK_EVERY);
    let longest = session.timeout.min(CHECK_EVERY);
    loop {
        tokio::select! {
            message = messages.next() => {
                if let Ok(text) = message?.get_payload::<String>() {
                    session.hints.take_in(&text);
                }
            }
            _ = checks.tick() => {
                let map = session.servers.map();
                let is_ours = map.nodes().iter().any(|ours| ours.number == node.number);
                let current = node.link(Purpose::Working).current();
                let is_ours = is_ours && current.is_none_or(|live| *live.at() == at);
                let answer = tokio::time::timeout(longest, asking.ping::<Value>()).await;
                if !is_ours || !matches!(answer, Ok(Ok(_))) {
                    return None;
                }
            }
        }
    }
}
