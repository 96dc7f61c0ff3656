//! Hints: in this process through a channel, to other instances through Redis' PUBLISH. They only
//! save time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, cmd};
use futures_util::StreamExt;
use tokio::sync::{broadcast, mpsc};

use super::Inner;
use super::transport::node::Purpose;
use crate::clock::UnixMillis;
use crate::store::Hint;
use crate::task::{Lane, Receipt};

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
    outward: mpsc::Sender<Hint>,
    /// Whether hints of called destinations go outward: those of an instance that works are its
    /// own.
    publishes_calls: bool,
    /// What this instance's own messages end in, which come back to it.
    origin: String,
}

impl Hints {
    /// What comes out of the receiver is to be told to the other instances.
    pub(super) fn new(publishes_calls: bool) -> (Self, mpsc::Receiver<Hint>) {
        let (outward, receiver) = mpsc::channel(BACKLOG);
        let origin = Receipt::random().as_str().to_owned();
        (
            Self { local: broadcast::Sender::new(BACKLOG), outward, publishes_calls, origin },
            receiver,
        )
    }

    /// Tells this process, and the other instances unless that would be in vain.
    pub(super) fn tell(&self, hint: Hint) {
        // Consumers may be waiting at any instance.
        if hint.is_pull || self.publishes_calls {
            // A full queue means that enough hints are on their way.
            let _ = self.outward.try_send(hint.clone());
        }
        // Nobody may be listening.
        let _ = self.local.send(hint);
    }

    /// Tells workers and consumers, where it is not known whose the task is.
    pub(super) fn tell_all(&self, lane: &Lane, due: UnixMillis) {
        for is_pull in [false, true] {
            self.tell(Hint { lane: lane.clone(), due, is_pull });
        }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.local.subscribe()
    }

    /// `lane due_ms`, and for consumers also `pull` and who tells it.
    fn write(&self, lane: &Lane, due: UnixMillis, is_pull: bool) -> String {
        match is_pull {
            true => format!("{lane} {due} pull {}", self.origin),
            false => format!("{lane} {due}"),
        }
    }

    /// `None` for what came from here, and for what another version says.
    fn read(&self, message: &str) -> Option<Hint> {
        let mut words = message.split(' ');
        let (lane, due) = (words.next()?.parse().ok()?, UnixMillis(words.next()?.parse().ok()?));
        match (words.next(), words.next()) {
            (None, _) => Some(Hint { lane, due, is_pull: false }),
            (Some("pull"), Some(origin)) if origin != self.origin => {
                Some(Hint { lane, due, is_pull: true })
            }
            _ => None,
        }
    }
}

/// Sends this instance's hints to the others until the sender is gone. What gathered during a round
/// trip goes together, each lane once.
pub(super) async fn publish(inner: Arc<Inner>, mut hints: mpsc::Receiver<Hint>) {
    let mut gathered = Vec::with_capacity(BACKLOG);
    while hints.recv_many(&mut gathered, BACKLOG).await > 0 {
        let mut earliest = HashMap::new();
        for Hint { lane, due, is_pull } in gathered.drain(..) {
            let first = earliest.entry((lane, is_pull)).or_insert(due);
            *first = due.min(*first);
        }
        let publish = |((lane, is_pull), due): ((Lane, bool), UnixMillis)| {
            cmd("PUBLISH")
                .arg(inner.keys.hints())
                .arg(inner.hints.write(&lane, due, is_pull))
                .take()
        };
        let commands: Vec<Cmd> = earliest.into_iter().map(publish).collect();
        // Lost hints cost a second at most: the others look by themselves.
        let _ = inner.working.run_repeatable(&commands).await;
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

/// Listens until the server breaks off, falls silent, or is none of ours any more. In a cluster any
/// node hears what is published on any other.
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
    let (mut asking, mut messages) =
        tokio::time::timeout(inner.timeout, subscribe).await.ok()??.split();
    let mut rounds = tokio::time::interval(ROUND);
    loop {
        tokio::select! {
            message = messages.next() => {
                let told = message?.get_payload::<String>().ok();
                if let Some(hint) = told.as_deref().and_then(|message| inner.hints.read(message)) {
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
