//! Permits of destinations and topics. Dropping gives them back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::gate::CallEnding;
use super::params::Limited;
use super::shared::Shared;
use crate::model::breaker::Ticket;

/// Permits of one destination or topic that are not used yet. Dropping gives them back.
#[derive(Debug)]
pub struct Permits<K: Limited> {
    shared: Arc<Shared<K>>,
    key: K,
    count: usize,
    ticket: Option<Ticket>,
}

impl<K: Limited> Permits<K> {
    pub(super) fn new(
        shared: &Arc<Shared<K>>,
        key: &K,
        (count, ticket): (usize, Option<Ticket>),
    ) -> Self {
        Self { shared: Arc::clone(shared), key: key.clone(), count, ticket }
    }

    /// The number of permits.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no permits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Splits off one permit, for one call.
    pub fn split_one(&mut self) -> Option<Permit<K>> {
        self.count = self.count.checked_sub(1)?;
        Some(Permit {
            shared: Arc::clone(&self.shared),
            key: self.key.clone(),
            ticket: self.ticket,
            began: None,
            ending: None,
        })
    }
}

impl<K: Limited> Drop for Permits<K> {
    fn drop(&mut self) {
        let (count, ticket) = (self.count, self.ticket);
        if count > 0 {
            self.shared.update(&self.key, |entry, now| {
                entry.give_back(count, ticket, now);
                count
            });
        }
    }
}

/// The permit of one call. Dropping gives the slot back; if the call did not begin, the token and
/// the probe as well.
#[derive(Debug)]
pub struct Permit<K: Limited> {
    shared: Arc<Shared<K>>,
    key: K,
    ticket: Option<Ticket>,
    began: Option<Instant>,
    ending: Option<CallEnding>,
}

impl<K: Limited> Permit<K> {
    /// The call begins, and has to end within `timeout`. Otherwise the breaker counts it as failed.
    pub fn begin(&mut self, timeout: Duration) {
        self.began = Some(Instant::now());
        if let Some(ticket) = &mut self.ticket {
            self.shared.update(&self.key, |entry, now| {
                entry.gate.begin(ticket, timeout, now);
                0
            });
        }
    }

    /// The call showed that the destination is healthy. Counts when the permit is dropped.
    pub fn succeeded(&mut self) {
        self.ending = Some(CallEnding::Succeeded);
    }

    /// The call failed because of the destination, with this outcome. Counts when the permit is
    /// dropped.
    pub fn failed(&mut self, outcome: &str) {
        self.ending = Some(CallEnding::Failed(outcome.to_owned()));
    }
}

impl<K: Limited> Drop for Permit<K> {
    fn drop(&mut self) {
        let (ticket, ending, began) = (self.ticket, self.ending.take(), self.began);
        self.shared.update(&self.key, |entry, now| {
            match began {
                Some(began) => entry.end(ticket, ending, began, now),
                None => entry.give_back(1, ticket, now),
            }
            1
        });
    }
}
