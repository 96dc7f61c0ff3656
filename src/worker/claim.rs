//! Claiming: which destinations have free slots, and how many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Shared;
use crate::callback::{Caller, Permits};
use crate::clock::UnixMillis;
use crate::store::{Claim, Claimed, Grant, Result, Store, Want};
use crate::task::{Destination, Lane};

/// Slots in hand, by destination.
pub(super) type Slots = BTreeMap<Destination, Permits>;

/// What a lane's task claims with.
#[derive(Debug)]
pub(super) struct Claimer {
    lane: Lane,
    /// Destinations that had tasks lately: asked for without having been seen due, which saves a look.
    recent: Vec<Destination>,
    /// How many due destinations the next outlook passes over.
    skip: usize,
}

/// Destinations that are asked for on suspicion.
const RECENT: usize = 4;

/// A claim that came back.
#[derive(Debug)]
pub(super) enum Taken {
    /// Another instance works the lane just now.
    Refused(Duration),
    /// Tasks, the slots to call them with, and from when their leases surely last.
    Granted { grant: Grant, slots: Slots, since: Instant },
}

impl Claimer {
    pub(super) fn new(lane: Lane) -> Self {
        Self { lane, recent: Vec::new(), skip: 0 }
    }

    /// Claims whatever of `due`, and of the recent destinations, has free slots.
    ///
    /// # Errors
    /// The store's; the reserved slots are free again then.
    pub(super) async fn take(
        &mut self,
        shared: &Shared<impl Store, impl Caller>,
        due: &[Destination],
    ) -> Result<Taken> {
        let (slots, more) = self.reserve(shared, due);
        let wants = slots
            .iter()
            .map(|(destination, permits)| Want { destination: destination.clone(), slots: permits.len() })
            .collect();
        let claim = Claim {
            lane: self.lane.clone(),
            wants,
            lease: shared.params.lease,
            holder: Some(shared.holder.clone()),
            more,
            skip: self.skip,
            misfires: Vec::new(),
        };
        let (since, asked) = (Instant::now(), shared.parts.clock.now());
        match shared.parts.store.claim(claim).await? {
            Claimed::Refused { retry_in } => Ok(Taken::Refused(retry_in)),
            Claimed::Granted(grant) => {
                shared.time.saw(grant.now, asked);
                self.learn(&grant);
                Ok(Taken::Granted { grant, slots, since })
            }
        }
    }

    /// Free slots for each wanted destination, together at most a batch, of which none takes so much that nothing is left for
    /// the others; and whether more slots are free than that.
    fn reserve(&self, shared: &Shared<impl Store, impl Caller>, due: &[Destination]) -> (Slots, bool) {
        let mut slots = Slots::new();
        let mut left = shared.params.claim_batch;
        let mut waiting = due.len();
        let mut more = false;
        for (i, destination) in due.iter().chain(&self.recent).enumerate() {
            let is_due = i < due.len();
            if left == 0 && (more || !is_due) {
                break;
            }
            let most = left.div_ceil(waiting.max(1));
            waiting = waiting.saturating_sub(1);
            if slots.contains_key(destination) {
                continue;
            }
            let Some(service) = shared.parts.services.get(destination.as_str()) else { continue };
            let permits = shared.parts.limits.reserve(destination, service.allowance(), most);
            if !permits.is_empty() {
                left -= permits.len();
                slots.insert(destination.clone(), permits);
            }
            more |= is_due && shared.parts.limits.free(destination, service.allowance()) > 0;
        }
        (slots, more)
    }

    /// Asks for no destination on suspicion until one has been seen again.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
        self.skip = 0;
    }

    fn learn(&mut self, grant: &Grant) {
        for task in &grant.tasks {
            if !self.recent.contains(&task.destination) {
                self.recent.insert(0, task.destination.clone());
                self.recent.truncate(RECENT);
            }
        }
        // A full outlook may hide others behind it; the next one begins after it, the one after that anew.
        self.skip =
            if grant.outlook.due.len() == crate::store::MAX_OUTLOOK { self.skip + grant.outlook.due.len() } else { 0 };
    }

    /// Whether a full outlook was passed over, so that there is more to see at once.
    pub(super) fn sees_part(&self) -> bool {
        self.skip > 0
    }
}

/// What stands between a lane and its due destinations.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// One of them could be claimed now.
    Free,
    /// None can. `freed` is woken when a slot comes free; after the wait, time alone (the end of a hold, a token, a breaker) may
    /// have freed one.
    None { wait: Option<Duration> },
}

/// Whether one of the due destinations could be claimed now.
pub(super) fn room(shared: &Shared<impl Store, impl Caller>, due: &[Destination], freed: &Arc<Notify>) -> Room {
    let limits = &shared.parts.limits;
    let mut least: Option<Duration> = None;
    for destination in due {
        let Some(service) = shared.parts.services.get(destination.as_str()) else { continue };
        // Registered first and looked at then: a slot that comes free in between is seen one way or the other.
        limits.wake_when_free(destination, freed.clone());
        if limits.free(destination, service.allowance()) > 0 {
            return Room::Free;
        }
        if let Some(wait) = limits.wait_for(destination) {
            least = Some(least.map_or(wait, |least| least.min(wait)));
        }
    }
    Room::None { wait: least }
}

/// Says which due destinations nobody knows: their tasks are held back, not killed.
pub(super) fn warn_of_unknown(
    shared: &Shared<impl Store, impl Caller>,
    lane: &Lane,
    due: &[Destination],
    now: UnixMillis,
    last: &mut UnixMillis,
) {
    const EVERY: Duration = Duration::from_secs(60);
    if now.since(*last) < EVERY {
        return;
    }
    for sn in due.iter().filter(|destination| shared.parts.services.get(destination.as_str()).is_none()) {
        *last = now;
        tracing::warn!(%sn, %lane, "Tasks for service {sn} are due but [services] does not list it; they wait");
    }
}
