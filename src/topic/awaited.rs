//! The topics whose tasks consumers wait for here, and what the look of each second says of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::{NextDue, Registered, Result};
use crate::task::{Lane, Topic};

/// What a look has found of a topic.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// When it was found.
    pub at: Instant,
    /// When there is something to pull, by shard; or why that is not known.
    pub next: Result<NextDue>,
}

/// The topics that are waited for. Those for which nobody waits any more are left out of the next
/// look.
#[derive(Debug, Default)]
pub struct Awaited(Mutex<HashMap<Topic, watch::Sender<Option<Outlook>>>>);

impl Awaited {
    /// What the looks from now on find of a topic, as long as the receiver lives.
    pub fn follow(&self, topic: &Topic) -> watch::Receiver<Option<Outlook>> {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outlook = topics.entry(topic.clone()).or_insert_with(|| watch::Sender::new(None));
        let mut following = outlook.subscribe();
        // What was found before is old.
        following.mark_unchanged();
        following
    }

    /// The lanes to be looked into, topic by topic, of those topics that are `known`.
    pub fn lanes(&self, known: impl Fn(&Topic) -> Option<Registered>) -> Vec<Lane> {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics.retain(|_, outlook| outlook.receiver_count() > 0);
        topics.keys().filter_map(known).flat_map(|known| known.entry.lanes().collect::<Vec<_>>()).collect()
    }

    /// What a look has found of these lanes.
    pub fn tell(&self, lanes: &[Lane], next: Result<NextDue>) {
        let topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        let mut from = 0;
        for lanes in lanes.chunk_by(|a, b| a.topic == b.topic) {
            let those = from..from + lanes.len();
            from = those.end;
            let next = next.as_ref().map_err(Clone::clone);
            let next = next.map(|next| NextDue { now: next.now, lanes: next.lanes[those].to_vec() });
            if let Some(outlook) = topics.get(&lanes[0].topic) {
                outlook.send_replace(Some(Outlook { at, next }));
            }
        }
    }
}
