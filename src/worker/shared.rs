//! The state that the supervisor, the lanes and the calls share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ambiguity::AmbiguityWarnings;
use super::in_flight::InFlight;
use super::notes::Notes;
use super::ownership::Ownership;
use super::params::{Params, Parts};
use super::settler::Settler;
use super::time::StoreTime;
use crate::model::task::{StoreId, Topic, TopicPolicy};
use crate::store::LockToken;

/// The shared state of one instance's workers.
#[derive(Debug)]
pub(super) struct Shared<S, C> {
    pub(super) parts: Parts<S, C>,
    pub(super) params: Params,
    /// This instance's name in the locks of lanes.
    pub(super) holder: LockToken,
    pub(super) time: StoreTime,
    /// Which lanes this instance looks at.
    pub(super) ownership: Ownership,
    pub(super) in_flight: InFlight,
    pub(super) settler: Arc<Settler>,
    pub(super) notes: Notes,
    pub(super) ambiguity: AmbiguityWarnings,
    pub(super) calls: TaskTracker,
    /// Cancelled when the instance begins to stop: claims end.
    pub(super) stopping: CancellationToken,
    /// Set at the end of the grace period: calls that end later are not settled.
    pub(super) cut_off: AtomicBool,
    store_id: Mutex<Option<StoreId>>,
}

impl<S, C> Shared<S, C> {
    pub(super) fn new(
        parts: Parts<S, C>,
        params: Params,
        holder: LockToken,
        settler: Arc<Settler>,
        notes: Notes,
    ) -> Self {
        Self {
            time: StoreTime::new(parts.clock.clone(), parts.metrics.clone()),
            ownership: Ownership::new(parts.instances.id(), params.enabled),
            parts,
            params,
            holder,
            in_flight: InFlight::default(),
            settler,
            notes,
            ambiguity: AmbiguityWarnings::default(),
            calls: TaskTracker::new(),
            stopping: CancellationToken::new(),
            cut_off: AtomicBool::new(false),
            store_id: Mutex::default(),
        }
    }

    /// The store's id, as it was read last. Nothing is claimed before it is known.
    pub(super) fn store_id(&self) -> Option<StoreId> {
        *self.store_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_store_id(&self, id: StoreId) {
        *self.store_id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    /// The topic's settings, as this instance knows them.
    pub(super) fn policy_of(&self, topic: &Topic) -> Arc<TopicPolicy> {
        self.parts.topics.policy_of(topic)
    }

    /// Whether the topic is paused, so that none of its tasks may be claimed.
    pub(super) fn is_paused(&self, topic: &Topic) -> bool {
        self.parts.topics.is_paused(topic)
    }
}
