//! Hints: in this process through a channel, to other instances through Redis' PUBLISH. They only
//! save time.

use tokio::sync::{broadcast, mpsc};

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt};
use crate::store::Hint;

/// Hints that a slow listener may fall behind.
const BACKLOG: usize = 1_024;
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
        self.tell_here(hint);
    }

    /// Tells this process alone.
    pub(super) fn tell_here(&self, hint: Hint) {
        // There may be no listeners.
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
    pub(super) fn write(&self, lane: &Lane, due: UnixMillis, is_pull: bool) -> String {
        match is_pull {
            true => format!("{lane} {due} pull {}", self.origin),
            false => format!("{lane} {due}"),
        }
    }

    /// `None` for what came from here, and for what another version says.
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
