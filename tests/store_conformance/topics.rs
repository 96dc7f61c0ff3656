//! The model's registry of topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Topic, TopicPolicy};
use delayd::store::{Creator, MAX_MISFIRES, Misfire, Misfired, Registered, TopicEntry};

/// All topics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topics(BTreeMap<Topic, Registered>);

impl Topics {
    /// `None` if the creator may create no more topics.
    pub(crate) fn create(
        &mut self,
        entry: TopicEntry,
        creator: Option<Creator>,
    ) -> Option<TopicEntry> {
        let created_by = creator.as_ref().map(|creator| creator.token.clone());
        let created = self.0.values().filter(|topic| topic.created_by == created_by).count();
        let is_refused = creator.and_then(|creator| creator.most).is_some_and(|n| created >= n);
        if is_refused && !self.0.contains_key(&entry.topic) {
            return None;
        }
        let new = Registered { created_by, ..Registered::plain(entry.clone()) };
        Some(self.0.entry(entry.topic).or_insert(new).entry.clone())
    }

    pub(crate) fn all(&self) -> Vec<Registered> {
        self.0.values().cloned().collect()
    }

    pub(crate) fn set_policy(&mut self, topic: &Topic, policy: &TopicPolicy) -> bool {
        self.0.get_mut(topic).map(|topic| topic.policy = Arc::new(policy.clone())).is_some()
    }

    pub(crate) fn pause(&mut self, topic: &Topic, now: UnixMillis) -> Option<UnixMillis> {
        self.0.get_mut(topic).map(|topic| *topic.paused.get_or_insert(now))
    }

    pub(crate) fn resume(
        &mut self,
        topic: &Topic,
        becomes: Option<Misfired>,
        now: UnixMillis,
    ) -> Option<bool> {
        let topic = self.0.get_mut(topic)?;
        let Some(from) = topic.paused.take() else { return Some(false) };
        topic.misfires.extend(becomes.map(|becomes| Misfire { from, to: now, becomes }));
        let too_many = topic.misfires.len().saturating_sub(MAX_MISFIRES);
        topic.misfires.drain(..too_many);
        Some(true)
    }

    /// Notes that a topic may have recurring schedules.
    pub(crate) fn note_schedules(&mut self, topic: &Topic) {
        self.0.get_mut(topic).into_iter().for_each(|topic| topic.has_schedules = true);
    }

    pub(crate) fn forget_misfire(&mut self, topic: &Topic, misfire: Misfire) {
        self.0
            .get_mut(topic)
            .into_iter()
            .for_each(|topic| topic.misfires.retain(|known| *known != misfire));
    }

    pub(crate) fn unregister(&mut self, topic: &Topic) {
        self.0.remove(topic);
    }
}
