//! Hints: in this process through a channel, to other instances through Redis' PUBLISH. They only save time.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use futures_util::StreamExt;
use tokio::sync::{broadcast, mpsc};

use super::Inner;
use super::node::Purpose;
use crate::clock::UnixMillis;
use crate::store::Hint;

/// Hints that a slow listener may fall behind.
const BACKLOG: usize = 1_024;
/// The wait before the subscription is tried again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The time between two looks at whether the subscription still stands.
const ROUND: Duration = Duration::from_secs(5);

/// Where hints are told and heard.
#[derive(Debug)]
pub(super) struct Hints {
    local: broadcast::Sender<Hint>,
    outward: Option<mpsc::Sender<Hint>>,
}

impl Hints {
    /// With `publish`, hints also go to other instances: what comes out of the receiver is theirs.
    pub(super) fn new(publish: bool) -> (Self, Option<mpsc::Receiver<Hint>>) {
        let (outward, receiver) = mpsc::channel(BACKLOG);
        let hints = Self { local: broadcast::Sender::new(BACKLOG), outward: publish.then_some(outward) };
        (hints, publish.then_some(receiver))
    }

    pub(super) fn tell(&self, hint: Hint) {
        if let Some(outward) = &self.outward {
            // A full queue means that enough hints are on their way.
            let _ = outward.try_send(hint.clone());
        }
        // Nobody may be listening.
        let _ = self.local.send(hint);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.local.subscribe()
    }
}

/// Sends this instance's hints to the others until the sender is gone.
pub(super) async fn publish(inner: Arc<Inner>, mut hints: mpsc::Receiver<Hint>) {
    while let Some(hint) = hints.recv().await {
        let message = format!("{} {}", hint.lane, hint.due);
        let publish = cmd("PUBLISH").arg(inner.keys.hints()).arg(message).take();
        // Lost hints cost a second at most: the others look by themselves.
        let _ = inner.working.run_once(publish).await;
    }
}

/// Hears the others' hints, for ever.
pub(super) async fn listen(inner: Arc<Inner>) {
    loop {
        // Whatever ended it, it begins anew.
        let _ = listen_once(&inner).await;
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Listens until the server breaks off, falls silent, or is none of ours any more. In a cluster any node hears what is published on any
/// other.
async fn listen_once(inner: &Inner) -> Option<()> {
    let node = inner.servers.map().owner(None)?.clone();
    let live = node.link(Purpose::Working).current()?;
    let client = inner.servers.client(live.at()).ok()?;
    drop(live);
    let subscribe = async {
        let mut subscription = client.get_async_pubsub().await.ok()?;
        subscription.subscribe(inner.keys.hints()).await.ok()?;
        Some(subscription)
    };
    let (mut asking, mut messages) = tokio::time::timeout(inner.timeout, subscribe).await.ok()??.split();
    let mut rounds = tokio::time::interval(ROUND);
    loop {
        tokio::select! {
            message = messages.next() => {
                if let Some(hint) = message?.get_payload::<String>().ok().as_deref().and_then(read) {
                    // Nobody may be listening.
                    let _ = inner.hints.local.send(hint);
                }
            }
            _ = rounds.tick() => {
                let is_ours = inner.servers.map().nodes().iter().any(|ours| ours.number == node.number);
                let answer = tokio::time::timeout(inner.timeout, asking.ping::<deadpool_redis::redis::Value>()).await;
                if !is_ours || !matches!(answer, Ok(Ok(_))) {
                    return None;
                }
            }
        }
    }
}

fn read(message: &str) -> Option<Hint> {
    let (lane, due) = message.split_once(' ')?;
    Some(Hint { lane: lane.parse().ok()?, due: UnixMillis(due.parse().ok()?) })
}
