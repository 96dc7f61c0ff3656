//! Publishes this instance's hints and messages through Redis, and receives those of others.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value, cmd};
use futures_util::StreamExt;

use super::session::Session;
use super::transport::node::Purpose;

/// The delay before the subscription is tried again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The interval between two checks of the subscription, and the longest wait for an answer. A
/// request for help that a dead connection swallows must be made good within three seconds.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The pause between two pipelines. What comes meanwhile is joined: one message of each kind for a
/// lane. Otherwise a flood would publish for each task.
const PAUSE: Duration = Duration::from_millis(2);

/// The delay before what was not published is sent again.
const RESEND: Duration = Duration::from_millis(200);

/// Publishes hints and messages for ever. Those that arrive during a round trip, or during the
/// pause after it, are sent together. They use the link of polls, so that claims do not wait for
/// them.
pub(super) async fn publish(session: Arc<Session>) {
    loop {
        let publish = |text| cmd("PUBLISH").arg(session.keys.hints()).arg(text).take();
        let mut unsent: Vec<Cmd> =
            session.hints.outgoing().await.into_iter().map(publish).collect();
        loop {
            let answers = session.polling.run_repeatable(&unsent).await;
            let failed = unsent.into_iter().zip(answers).filter(|(_, answer)| answer.is_err());
            unsent = failed.map(|(command, _)| command).collect();
            if unsent.is_empty() {
                break;
            }
            // No receiver notices a request for help that was not sent.
            tokio::time::sleep(RESEND).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Receives hints and messages for ever.
pub(super) async fn listen(session: Arc<Session>) {
    loop {
        // Whatever ended the subscription, it begins again.
        let _ = listen_once(&session).await;
        session.hints.unsubscribed();
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Receives until the server closes the connection, falls silent, or leaves the cluster's
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
    session.hints.subscribed();
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
                let answer = tokio::time::timeout(longest, asking.ping::<Value>()).await;
                if !is_ours || !matches!(answer, Ok(Ok(_))) {
                    return None;
                }
            }
        }
    }
}
