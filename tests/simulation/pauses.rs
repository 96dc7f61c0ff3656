//! The pauses of topics in the history, and what each instance can know of them.
//!
//! An instance learns of a pause, and of its end, by its polls. A claim must follow the last poll
//! that was answered before the claim was sent. A moment in a history is the number of an event:
//! clocks are wrong and jump, the order of events is not.

use std::collections::BTreeMap;

use delayd::model::clock::UnixMillis;
use delayd::model::task::Topic;
use delayd::store::{Misfire, Misfired};

use crate::history::LifeId;

#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// The event that paused a topic, and its moment by the store's clock.
    held: BTreeMap<Topic, (usize, UnixMillis)>,
    /// The past pauses whose tasks are not delivered late, each with the event that ended it.
    over: BTreeMap<Topic, Vec<(usize, Misfire)>>,
    /// When an answer to a poll reached an instance, and how many events had happened when it was
    /// read.
    looks: BTreeMap<LifeId, Vec<(usize, usize)>>,
}

impl Pauses {
    pub(crate) fn paused(&mut self, topic: &Topic, at: usize, now: UnixMillis) {
        self.held.insert(topic.clone(), (at, now));
    }

    pub(crate) fn resumed(
        &mut self,
        topic: &Topic,
        becomes: Option<Misfired>,
        at: usize,
        now: UnixMillis,
    ) {
        let (_, from) = self.held.remove(topic).expect("only a paused topic is resumed");
        let misfire = becomes.map(|becomes| (at, Misfire { from, to: now, becomes }));
        self.over.entry(topic.clone()).or_default().extend(misfire);
    }

    pub(crate) fn looked(&mut self, by: LifeId, at: usize, read: usize) {
        self.looks.entry(by).or_default().push((at, read));
    }

    /// How many events the instance knew of when it sent something.
    fn known(&self, by: LifeId, sent: usize) -> usize {
        let looks = self.looks.get(&by).into_iter().flatten();
        looks.take_while(|(home, _)| *home < sent).last().map_or(0, |(_, read)| *read)
    }

    /// Whether a claim that was sent then knew of the current pause.
    pub(crate) fn is_known_to_hold(&self, topic: &Topic, by: LifeId, sent: usize) -> bool {
        self.held.get(topic).is_some_and(|(began, _)| *began < self.known(by, sent))
    }

    /// Whether a claim that was sent then knew that tasks due at that moment misfire.
    pub(crate) fn is_known_to_misfire(
        &self,
        topic: &Topic,
        due: UnixMillis,
        by: LifeId,
        sent: usize,
    ) -> bool {
        let known = self.known(by, sent);
        let over = self.over.get(topic).into_iter().flatten();
        over.filter(|(ended, _)| *ended < known).any(|(_, misfire)| covers(misfire, due))
    }

    /// Whether this pause existed.
    pub(crate) fn was(&self, topic: &Topic, misfire: &Misfire) -> bool {
        self.over.get(topic).into_iter().flatten().any(|(_, was)| was == misfire)
    }
}

pub(crate) fn covers(misfire: &Misfire, due: UnixMillis) -> bool {
    (misfire.from..=misfire.to).contains(&due)
}
