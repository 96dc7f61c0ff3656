//! Hints: within this process through a channel, to other instances through Redis. They only save
//! time.

use tokio::sync::{broadcast, mpsc};

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt};
use crate::store::Hint;

/// How many hints a slow receiver may fall behind.
const BACKLOG: usize = 1_024;
/// Sends hints to this process and to other instances.
#[derive(Debug)]
pub(super) struct Hints {
    local: broadcast::Sender<Hint>,
    outward: mpsc::Sender<Hint>,
    /// Whether hints about called destinations are published. An instance that works keeps them to
    /// itself.
    publishes_calls: bool,
    /// The suffix of this instance's own messages, which Redis sends back to it.
    origin: String,
}

impl Hints {
    /// The hints, and a receiver of those to be published.
    pub(super) fn new(publishes_calls: bool) -> (Self, mpsc::Receiver<Hint>) {
        let (outward, receiver) = mpsc::channel(BACKLOG);
        let origin = Receipt::random().as_str().to_owned();
        (
            Self { local: broadcast::Sender::new(BACKLOG), outward, publishes_calls, origin },
            receiver,
        )
    }

    /// Sends a hint to this process and, if that can be of use, to other instances.
    pub(super) fn tell(&self, hint: Hint) {
        // Consumers may wait at any instance.
        if hint.is_pull || self.publishes_calls {
            // If the queue is full, enough hints are on their way.
            let _ = self.outward.try_send(hint.clone());
        }
        self.tell_here(hint);
    }

    /// Sends a hint to this process only.
    pub(super) fn tell_here(&self, hint: Hint) {
        // There may be no listeners.
        let _ = self.local.send(hint);
    }

    /// Sends a hint to workers and to consumers, if the task's destination is not known.
    pub(super) fn tell_all(&self, lane: &Lane, due: UnixMillis) {
        for is_pull in [false, true] {
            self.tell(Hint { lane: lane.clone(), due, is_pull });
        }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.local.subscribe()
    }

    /// Writes `lane due_ms`; for consumers also `pull` and the origin.
    pub(super) fn write(&self, lane: &Lane, due: UnixMillis, is_pull: bool) -> String {
        match is_pull {
            true => format!("{lane} {due} pull {}", self.origin),
            false => format!("{lane} {due}"),
        }
    }

    /// Reads a message. `None` for this instance's own, and for those of other versions.
    pub(super) fn read(&self, message: &str) -> Option<Hint> {
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
