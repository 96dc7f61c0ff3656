//! Hints and messages: within this process through channels, to other instances through Redis. They
//! only save time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, broadcast};

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt};
use crate::store::{Hint, Message};

/// How many hints or messages a slow receiver may fall behind.
const BACKLOG: usize = 1_024;
/// The most lanes of each kind that wait to be published: more than most deployments have. A
/// receiver that falls behind looks at all lanes.
const MOST_LANES: usize = 16_384;

/// Sends hints to this process, and hints and messages to other instances.
#[derive(Debug)]
pub(super) struct HintSender {
    local: broadcast::Sender<Hint>,
    /// What the workers of other instances say.
    messages: broadcast::Sender<Message>,
    outbox: Mutex<Outbox>,
    /// Notified when something is in the outbox.
    is_filled: Notify,
    /// The suffix of this instance's own messages, which Redis sends back to it.
    origin: String,
}

/// What waits to be published. Each kind has its own bound, so none can keep another from being
/// sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Hints for consumers, and the earliest moment of each lane.
    pulls: HashMap<Lane, UnixMillis>,
    /// [`Message::Due`].
    dues: HashMap<Lane, UnixMillis>,
    /// [`Message::Leaves`].
    leaves: bool,
}

/// What one instance publishes for the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// For consumers that wait there.
    Pull(Hint),
    /// For the workers.
    Workers(Message),
}

/// Keeps the earliest moment of each lane. If there are many lanes, the others' polls find the
/// rest.
fn keep_earliest(lanes: &mut HashMap<Lane, UnixMillis>, lane: Lane, due: UnixMillis) {
    if let Some(earliest) = lanes.get_mut(&lane) {
        *earliest = due.min(*earliest);
    } else if lanes.len() < MOST_LANES {
        lanes.insert(lane, due);
    }
}

impl Outbox {
    fn into_publications(self) -> Vec<Publication> {
        let Self { pulls, dues, leaves } = self;
        let pulls = pulls
            .into_iter()
            .map(|(lane, due)| Publication::Pull(Hint { lane, due, is_pull: true }));
        let leaves = leaves.then_some(Message::Leaves);
        let dues = dues.into_iter().map(|(lane, due)| Message::Due { lane, due });
        let workers = leaves.into_iter().chain(dues);
        pulls.chain(workers.map(Publication::Workers)).collect()
    }
}

impl HintSender {
    pub(super) fn new() -> Self {
        Self {
            local: broadcast::Sender::new(BACKLOG),
            messages: broadcast::Sender::new(BACKLOG),
            outbox: Mutex::default(),
            is_filled: Notify::new(),
            origin: Receipt::random().as_str().to_owned(),
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a hint to this process, and to consumers that wait at other instances.
    pub(super) fn tell(&self, hint: Hint) {
        if hint.is_pull {
            self.publish(Publication::Pull(hint.clone()));
        }
        self.tell_here(hint);
    }

    /// Sends a hint to this process only.
    fn tell_here(&self, hint: Hint) {
        // There may be no listeners.
        let _ = self.local.send(hint);
    }

    /// Sends a hint to workers and to consumers, if the task's destination is not known.
    pub(super) fn tell_all(&self, lane: &Lane, due: UnixMillis) {
        for is_pull in [false, true] {
            self.tell(Hint { lane: lane.clone(), due, is_pull });
        }
    }

    /// Sends a message to the workers of other instances.
    pub(super) fn tell_others(&self, message: Message) {
        self.publish(Publication::Workers(message));
    }

    /// Puts into the outbox what is to be published.
    fn publish(&self, publication: Publication) {
        let mut outbox = self.outbox();
        match publication {
            Publication::Pull(hint) => keep_earliest(&mut outbox.pulls, hint.lane, hint.due),
            Publication::Workers(Message::Due { lane, due }) => {
                keep_earliest(&mut outbox.dues, lane, due);
            }
            Publication::Workers(Message::Leaves) => outbox.leaves = true,
        }
        drop(outbox);
        self.is_filled.notify_one();
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.local.subscribe()
    }

    pub(super) fn messages(&self) -> broadcast::Receiver<Message> {
        self.messages.subscribe()
    }

    /// Waits until something is to be published, and takes it.
    pub(super) async fn outgoing(&self) -> Vec<Publication> {
        loop {
            let taken = std::mem::take(&mut *self.outbox()).into_publications();
            if !taken.is_empty() {
                return taken;
            }
            self.is_filled.notified().await;
        }
    }

    /// Writes `lane due_ms` for a message about due work, which every version understands, and
    /// otherwise a word and the origin. Earlier versions ignore the words that they do not know.
    /// `keys.rs` lists all forms.
    pub(super) fn write(&self, publication: &Publication) -> String {
        let origin = &self.origin;
        match publication {
            Publication::Pull(Hint { lane, due, .. }) => format!("{lane} {due} pull {origin}"),
            Publication::Workers(Message::Due { lane, due }) => format!("{lane} {due}"),
            Publication::Workers(Message::Leaves) => format!("* 0 leaves {origin}"),
        }
    }

    /// Takes in what was published.
    pub(super) fn take_in(&self, text: &str) {
        match self.read(text) {
            Some(Publication::Pull(hint)) => self.tell_here(hint),
            // There are no listeners while the workers stop.
            Some(Publication::Workers(message)) => drop(self.messages.send(message)),
            None => {}
        }
    }

    /// Reads a message. `None` for this instance's own, and for those of other versions. Only a
    /// message about due work has no origin: an instance that reads its own wakes a lane once too
    /// often.
    fn read(&self, text: &str) -> Option<Publication> {
        let words: Vec<&str> = text.split(' ').collect();
        let ([name, due] | [name, due, _, _]) = words[..] else { return None };
        if words.get(3).is_some_and(|origin| *origin == self.origin) {
            return None;
        }
        let lane = || name.parse::<Lane>().ok();
        let number: i64 = due.parse().ok()?;
        let due = UnixMillis(number);
        match words.get(2) {
            None => Some(Publication::Workers(Message::Due { lane: lane()?, due })),
            Some(&"pull") => Some(Publication::Pull(Hint { lane: lane()?, due, is_pull: true })),
            Some(&"leaves") => Some(Publication::Workers(Message::Leaves)),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(n: usize) -> Lane {
        format!("t{n}:0").parse().unwrap()
    }

    async fn sent(from: &HintSender) -> Vec<String> {
        let mut texts: Vec<_> =
            from.outgoing().await.iter().map(|publication| from.write(publication)).collect();
        texts.sort_unstable();
        texts
    }

    #[tokio::test]
    async fn others_read_what_an_instance_writes_and_it_does_not() {
        let (here, there) = (HintSender::new(), HintSender::new());
        let pull = Hint { lane: lane(1), due: UnixMillis(7), is_pull: true };
        let messages = [Message::Due { lane: lane(2), due: UnixMillis(8) }, Message::Leaves];
        here.tell(pull.clone());
        messages.iter().for_each(|message| here.tell_others(message.clone()));
        let texts = sent(&here).await;
        let mut read: Vec<Publication> = texts.iter().filter_map(|text| there.read(text)).collect();
        for message in messages {
            assert!(
                read.contains(&Publication::Workers(message.clone())),
                "{message:?} in {texts:?}"
            );
            read.retain(|heard| *heard != Publication::Workers(message.clone()));
        }
        assert_eq!(read, [Publication::Pull(pull)]);
        let own: Vec<Publication> = texts.iter().filter_map(|text| here.read(text)).collect();
        let due = Message::Due { lane: lane(2), due: UnixMillis(8) };
        assert_eq!(own, [Publication::Workers(due)], "only this has no origin");
    }

    /// The version before knew `lane due` and `lane due pull origin`, and ignored other texts.
    #[test]
    fn texts_of_other_versions() {
        let hints = HintSender::new();
        let due = Message::Due { lane: lane(1), due: UnixMillis(5) };
        assert_eq!(hints.read("t1:0 5"), Some(Publication::Workers(due)));
        for text in [
            "",
            "t1:0",
            "t1:0 five",
            "t1 5",
            "t1:0 5 call",
            "t1:0 5 later another",
            "t1:0 -1 help another",
        ] {
            assert_eq!(hints.read(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn each_kind_has_a_bound_and_a_lane_is_sent_once() {
        let hints = HintSender::new();
        for n in 0..2 * MOST_LANES {
            hints.tell_others(Message::Due { lane: lane(n), due: UnixMillis(9) });
            hints.tell_others(Message::Due { lane: lane(0), due: UnixMillis(9 - n.min(5) as i64) });
        }
        hints.tell(Hint { lane: lane(9_999), due: UnixMillis(3), is_pull: true });
        let texts = sent(&hints).await;
        assert_eq!(texts.len(), MOST_LANES + 1, "the hint for consumers is among them");
        assert_eq!(texts.iter().filter(|text| text.starts_with("t0:0 ")).count(), 1);
        assert!(texts.contains(&"t0:0 4".to_owned()), "the earliest moment");
        assert!(texts.iter().any(|text| text.starts_with("t9999:0 3 pull ")));
    }
}
