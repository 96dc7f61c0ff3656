//! The pauses of topics as the checker reads them from the history, and what each instance can know
//! of them.
//!
//! An instance learns of a pause, and of its end, by its looks: what it was told last before it
//! sent a claim is what that claim must go by. Moments in a history are numbers of events: clocks
//! are wrong and jump, their order does not.

use std::collections::BTreeMap;

use delayd::model::clock::UnixMillis;
use delayd::model::task::Topic;
use delayd::store::{Misfire, Misfired};

use crate::history::LifeId;

#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// The event that paused a topic, and the store's moment of it.
    held: BTreeMap<Topic, (usize, UnixMillis)>,
    /// Those that are over and whose tasks are not delivered late, each with the event that ended
    /// it.
    over: BTreeMap<Topic, Vec<(usize, Misfire)>>,
    /// What came home to an instance when, and how many events had happened when it was read.
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
        let (_, from) = self.held.remove(topic).expect("only what is paused is resumed");
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

    /// Whether a claim that was sent then knew of the pause that holds now.
    pub(crate) fn is_known_to_hold(&self, topic: &Topic, by: LifeId, sent: usize) -> bool {
        self.held.get(topic).is_some_and(|(began, _)| *began < self.known(by, sent))
    }

    /// Whether a claim that was sent then knew that what is due at that moment misfires.
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

    /// Whether there was such a pause.
    pub(crate) fn was(&self, topic: &Topic, misfire: &Misfire) -> bool {
        self.over.get(topic).into_iter().flatten().any(|(_, was)| was == misfire)
    }
}

pub(crate) fn covers(misfire: &Misfire, due: UnixMillis) -> bool {
    (misfire.from..=misfire.to).contains(&due)
}
