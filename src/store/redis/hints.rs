//! Hints: in this process through a channel, to other instances through Redis' PUBLISH. They only save time.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{self, cmd};
use futures_util::StreamExt;
use tokio::sync::{broadcast, mpsc};

use super::Inner;
use crate::clock::UnixMillis;
use crate::store::Hint;

/// Hints that a slow listener may fall behind.
const BACKLOG: usize = 1_024;
/// The wait before the subscription is tried again.
const RECONNECT: Duration = Duration::from_secs(1);

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
        let _ = inner.working.run(&[publish]).await;
    }
}

/// Hears the others' hints, for ever.
pub(super) async fn listen(inner: Arc<Inner>, client: redis::Client) {
    loop {
        if let Ok(mut subscription) = client.get_async_pubsub().await
            && subscription.subscribe(inner.keys.hints()).await.is_ok()
        {
            let mut messages = subscription.on_message();
            while let Some(message) = messages.next().await {
                if let Some(hint) = message.get_payload::<String>().ok().as_deref().and_then(read) {
                    let _ = inner.hints.local.send(hint);
                }
            }
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

fn read(message: &str) -> Option<Hint> {
    let (lane, due) = message.split_once(' ')?;
    Some(Hint { lane: lane.parse().ok()?, due: UnixMillis(due.parse().ok()?) })
}
