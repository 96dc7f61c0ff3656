//! The permits of one claim, and of one call.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{Permit, Permits};
use crate::model::task::{Destination, Topic};

/// The permits of one claim: some of each destination and, if the topic has limits, as many of the
/// topic.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    by_destination: BTreeMap<Destination, Permits<Destination>>,
    of_topic: Option<Permits<Topic>>,
}

/// The permits of one call.
#[derive(Debug)]
pub(super) struct CallPermits {
    pub(super) destination: Permit<Destination>,
    pub(super) topic: Option<Permit<Topic>>,
}

impl CallPermits {
    /// The call begins, and has to end within `timeout`.
    pub(super) fn begin(&mut self, timeout: Duration) {
        self.destination.begin(timeout);
        self.topic.iter_mut().for_each(|topic| topic.begin(timeout));
    }
}

impl Reserved {
    /// Permits of the topic, for as many calls. `None`: the topic has no limits.
    pub(super) fn of_topic(of_topic: Option<Permits<Topic>>) -> Self {
        Self { of_topic, ..Self::default() }
    }

    /// Adds permits of a destination.
    pub(super) fn add(&mut self, destination: Destination, permits: Permits<Destination>) {
        self.by_destination.insert(destination, permits);
    }

    /// Whether the destination has permits.
    pub(super) fn contains(&self, destination: &Destination) -> bool {
        self.by_destination.contains_key(destination)
    }

    /// The permits of one call to the destination; `None` if none are left for it.
    pub(super) fn split_one(&mut self, destination: &Destination) -> Option<CallPermits> {
        let destination = self.by_destination.get_mut(destination)?.split_one()?;
        let topic = match &mut self.of_topic {
            Some(permits) => Some(permits.split_one()?),
            None => None,
        };
        Some(CallPermits { destination, topic })
    }

    /// The destinations that have permits, by name.
    pub(super) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.by_destination.keys()
    }

    /// How many permits the destination has.
    pub(super) fn count(&self, destination: &Destination) -> usize {
        self.by_destination.get(destination).map_or(0, Permits::len)
    }
}
