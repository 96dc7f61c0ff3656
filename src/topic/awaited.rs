//! The topics whose tasks consumers wait for on this instance, and what each poll shows of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::task::{Lane, Topic};
use crate::store::{Error, NextDue, Registered, Result};

/// What a poll showed of a topic.
#[derive(Clone, Debug)]
pub struct TopicOutlook {
    /// When the poll began.
    pub at: Instant,
    /// The next moment at which there is something to pull, by shard; or why it is not known.
    pub next: Result<NextDue>,
}

/// The topics that consumers wait for. The next poll leaves out topics without a receiver.
#[derive(Debug, Default)]
pub struct Awaited(Mutex<HashMap<Topic, watch::Sender<Option<TopicOutlook>>>>);

impl Awaited {
    /// Receives what later polls show of a topic, as long as the receiver lives.
    pub fn follow(&self, topic: &Topic) -> watch::Receiver<Option<TopicOutlook>> {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outlook = topics.entry(topic.clone()).or_insert_with(|| watch::Sender::new(None));
        let mut following = outlook.subscribe();
        // What was shown before is old.
        following.mark_unchanged();
        following
    }

    /// The lanes to poll: those of awaited topics for which `known` returns an entry.
    pub fn lanes(&self, known: impl Fn(&Topic) -> Option<Registered>) -> Vec<Lane> {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics.retain(|_, outlook| outlook.receiver_count() > 0);
        topics
            .keys()
            .filter_map(known)
            .flat_map(|known| known.entry.lanes().collect::<Vec<_>>())
            .collect()
    }

    /// Distributes what a poll showed of these lanes. `unknown` are the lanes whose server did not
    /// answer. `at` is when the poll began.
    pub fn tell(&self, at: Instant, lanes: &[Lane], next: Result<NextDue>, unknown: &[Lane]) {
        let topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown: HashSet<&Lane> = unknown.iter().collect();
        let mut from = 0;
        for lanes in lanes.chunk_by(|a, b| a.topic == b.topic) {
            let those = from..from + lanes.len();
            from = those.end;
            let next = match &next {
                Ok(_) if lanes.iter().all(|lane| unknown.contains(lane)) => {
                    Err(Error::Unavailable("the server of the topic does not answer".into()))
                }
                Ok(next) => Ok(NextDue { now: next.now, lanes: next.lanes[those].to_vec() }),
                Err(error) => Err(error.clone()),
            };
            if let Some(outlook) = topics.get(&lanes[0].topic) {
                outlook.send_replace(Some(TopicOutlook { at, next }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::UnixMillis;
    use crate::store::TopicEntry;

    fn entry(topic: &Topic) -> Option<Registered> {
        (topic.as_str() != "unknown")
            .then(|| Registered::plain(TopicEntry { topic: topic.clone(), shards: 2 }))
    }

    /// Both lanes of one topic, and one lane of the other, are on the server that is away.
    #[tokio::test]
    async fn each_topic_hears_of_its_own_lanes() {
        let awaited = Awaited::default();
        let [away, half, unknown]: [Topic; 3] =
            ["away", "half", "unknown"].map(|name| name.parse().unwrap());
        let (mut of_away, mut of_half) = (awaited.follow(&away), awaited.follow(&half));
        let of_unknown = awaited.follow(&unknown);
        let lanes = awaited.lanes(entry);
        assert_eq!(lanes.len(), 4);
        let is_away = |lane: &&Lane| lane.topic == away || lane.shard == 1;
        let gone: Vec<Lane> = lanes.iter().filter(is_away).cloned().collect();
        let moments = lanes.iter().map(|lane| (!is_away(&lane)).then_some(UnixMillis(7))).collect();
        let next = NextDue { now: UnixMillis(5), lanes: moments };
        awaited.tell(Instant::now(), &lanes, Ok(next), &gone);
        let told = |of: &mut watch::Receiver<Option<TopicOutlook>>| {
            of.borrow_and_update().clone().unwrap().next
        };
        assert!(matches!(told(&mut of_away), Err(Error::Unavailable(_))));
        assert_eq!(told(&mut of_half).unwrap().lanes, [Some(UnixMillis(7)), None]);
        assert!(!of_unknown.has_changed().unwrap());
        // Topics without a receiver are not polled.
        drop(of_away);
        assert_eq!(awaited.lanes(entry).len(), 2);
    }
}
