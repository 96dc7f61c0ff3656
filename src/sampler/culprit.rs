//! Finds who delays the overdue tasks of a destination.

use std::collections::HashMap;

use crate::callback::Services;
use crate::limits::{Allowance, DestinationLimits, TopicLimits};
use crate::model::culprit::Culprit;
use crate::model::task::{Destination, Topic};
use crate::store::Registered;

/// The limits, topics and services at one moment, from which the culprits follow.
#[derive(Debug)]
pub(super) struct CulpritFinder<'a> {
    pub(super) services: &'a Services,
    pub(super) limits: &'a DestinationLimits,
    pub(super) topic_limits: &'a TopicLimits,
    pub(super) topics: HashMap<&'a Topic, &'a Registered>,
    /// The culprit of tasks that nothing blocks; `None` if this instance cannot tell.
    pub(super) unblocked: Option<Culprit>,
    /// The culprits of the destinations that were looked up before.
    known: HashMap<Destination, Option<Culprit>>,
}

impl<'a> CulpritFinder<'a> {
    pub(super) fn new(
        services: &'a Services,
        limits: &'a DestinationLimits,
        topic_limits: &'a TopicLimits,
        topics: &'a [Registered],
        unblocked: Option<Culprit>,
    ) -> Self {
        let topics = topics.iter().map(|known| (&known.entry.topic, known)).collect();
        Self { services, limits, topic_limits, topics, unblocked, known: HashMap::new() }
    }

    /// Who delays tasks of a topic for a destination; `None` if this instance cannot tell.
    /// `is_away`: the lane's server does not answer.
    pub(super) fn culprit(
        &mut self,
        topic: &Topic,
        destination: &Destination,
        is_away: bool,
    ) -> Option<Culprit> {
        let topic = self.topics.get(topic);
        if is_away {
            return Some(Culprit::Store);
        }
        if topic.is_some_and(|topic| topic.paused.is_some()) {
            return Some(Culprit::Operator);
        }
        if destination.is_pull() {
            return Some(Culprit::Consumer);
        }
        let has_rate = topic.is_some_and(|topic| topic.policy.rate.is_some());
        let blocked = match self.known.get(destination) {
            Some(known) => *known,
            None => {
                let blocked = self.blocked(destination);
                self.known.insert(destination.clone(), blocked);
                blocked
            }
        };
        let by_topic = || {
            let topic = topic?;
            let allowance = Allowance::of_topic(&topic.policy)?;
            self.topic_limits.delayed_by(&topic.entry.topic, allowance)
        };
        let by_rate = || has_rate.then_some(Culprit::Operator);
        blocked.or_else(by_topic).or_else(by_rate).or(self.unblocked)
    }

    fn blocked(&self, destination: &Destination) -> Option<Culprit> {
        // The operator has to configure it.
        let Some(service) = self.services.get(destination.as_str()) else {
            return Some(Culprit::Operator);
        };
        self.limits.delayed_by(destination, service.allowance())
    }
}
