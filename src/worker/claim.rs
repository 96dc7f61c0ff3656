//! Claiming: one lane asks the store for as many tasks as it has permits for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::delays::{Answered, Delays};
use super::permits::{self, Reserved, Waiters};
use super::shared::Shared;
use crate::callback::Caller;
use crate::limits::Availability;
use crate::model::clock::UnixMillis;
use crate::model::lateness::Lateness;
use crate::model::task::{Destination, Lane, Receipt};
use crate::store::{
    Claim, Claimed, Delivery, Grant, LeasedTask, MAX_OUTLOOK, Outlook, Result, Want,
};

/// How many recent destinations a claim asks for.
const RECENT: usize = 4;
/// The most tasks of a claim from a far server, unless the setting is larger: see [`claim_batch`].
const LARGEST: usize = 256;

/// Claims the tasks of one lane.
#[derive(Debug)]
pub(super) struct Claimer {
    lane: Lane,
    waiters: Waiters,
    /// What the last answer showed.
    outlook: Outlook,
    /// The pages so far of a list of due destinations that is longer than one outlook.
    seen: Vec<Destination>,
    /// How many destinations were looked at for these pages.
    skip: usize,
    /// Destinations that had tasks lately. A claim asks for them before they are seen due, which
    /// saves a claim.
    recent: Vec<Destination>,
    /// The last destination that got something. The next claim begins after it, by name, so that
    /// all get something in turn.
    last: Option<Destination>,
    /// Whether the store may keep the lane's lock for this instance.
    keeps_lock: bool,
    /// What delays the lane's tasks.
    delays: Delays,
}

/// What a claim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// What is due and has permits.
    Tasks,
    /// Only what is due. The store frees the lane's lock.
    Nothing,
}

/// What came of a claim.
#[derive(Debug)]
pub(super) enum ClaimResult {
    /// The store has answered, perhaps with no tasks.
    Granted(Batch),
    /// Another instance has the lane's lock.
    Refused {
        /// The rest of its lock.
        retry_in: Duration,
    },
    /// Nothing was asked: settles wait for the lane's server, and they go first.
    ServerAway {
        /// The number of the server.
        server: u64,
    },
}

/// The tasks of one claim.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) tasks: Vec<LeasedTask>,
    /// The receipt of all their leases.
    pub(super) receipt: Receipt,
    /// The leases hold at least for `worker.lease` from here.
    pub(super) since: Instant,
    pub(super) permits: Reserved,
    /// When the claim was sent and answered.
    pub(super) claim: Answered,
}

impl Claimer {
    pub(super) fn new(lane: Lane) -> Self {
        Self {
            lane,
            waiters: Waiters::default(),
            outlook: Outlook::default(),
            seen: Vec::new(),
            skip: 0,
            recent: Vec::new(),
            last: None,
            keeps_lock: false,
            delays: Delays::default(),
        }
    }

    /// Asks the store for the tasks of due and recent destinations, as many as there are permits.
    ///
    /// While a list of due destinations is read page by page, it only asks for the next page. Tasks
    /// that were claimed in between would shift the pages, and destinations would be missed.
    ///
    /// # Errors
    /// The store's. The permits are free again then, and the next claim asks for no tasks: permits
    /// that wait for a store in trouble would be missing to healthy lanes.
    pub(super) async fn claim(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        ask: Ask,
    ) -> Result<ClaimResult> {
        let server = shared.parts.store.server_of(&self.lane);
        if shared.settler.is_away(server) {
            self.waiters.suspend();
            self.delays.store_fails(shared.time.store_now());
            return Ok(ClaimResult::ServerAway { server });
        }
        let result = self.send(shared, ask).await;
        if result.is_err() {
            self.outlook = Outlook::default();
            self.recent.clear();
            self.seen.clear();
            self.skip = 0;
        }
        result
    }

    async fn send(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        ask: Ask,
    ) -> Result<ClaimResult> {
        let (permits, more) = if ask == Ask::Nothing || self.is_paging() {
            self.waiters.suspend();
            Default::default()
        } else {
            let due = in_turn(self.outlook.due.iter(), self.last.as_ref());
            let (topic, delays) = (&self.lane.topic, &mut self.delays);
            let most = claim_batch(shared, &self.lane);
            self.waiters.reserve(shared, topic, &due, &self.recent, most, delays)
        };
        let wants: Vec<Want> = in_turn(permits.destinations(), self.last.as_ref())
            .into_iter()
            .map(|name| Want { destination: name.clone(), slots: permits.count(name) })
            .collect();
        let last = wants.last().map(|want| want.destination.clone());
        // If the answer is lost, the store may have kept the lock.
        self.keeps_lock = more && !wants.is_empty();
        let claim = Claim {
            lane: self.lane.clone(),
            wants,
            lease: shared.params.lease,
            holder: Some(shared.holder.clone()),
            more,
            skip: self.skip,
            in_hand: 0,
            misfires: shared.parts.topics.misfires_of(&self.lane.topic),
        };
        let (since, asked) = (Instant::now(), shared.parts.clock.now());
        let asked_store = shared.time.at(asked);
        let claimed = shared.parts.store.claim(claim).await;
        match &claimed {
            Ok(_) => self.delays.store_answers(asked_store, shared.time.store_now()),
            Err(_) => self.delays.store_fails(asked_store),
        }
        let grant = match claimed? {
            Claimed::Granted(grant) => grant,
            Claimed::Refused { retry_in } => {
                self.keeps_lock = false;
                return Ok(ClaimResult::Refused { retry_in });
            }
        };
        shared.time.saw(grant.now, asked);
        let Grant { now, receipt, tasks, outlook, .. } = grant;
        self.keeps_lock &= !outlook.due.is_empty();
        self.learn(&tasks, outlook, last);
        // The answer may have been on its way for a while, so `now` is too early.
        let claim = Answered { asked: asked_store, answered: shared.time.store_now().max(now) };
        Ok(ClaimResult::Granted(Batch { tasks, receipt, since, permits, claim }))
    }

    fn learn(&mut self, tasks: &[LeasedTask], outlook: Outlook, last_asked: Option<Destination>) {
        // The destinations after that of the last task may have got nothing, because the bytes of
        // one claim are limited.
        let last_task = tasks.last().map(|task| task.destination.clone());
        self.last = last_task.or(last_asked).or(self.last.take());
        for task in tasks {
            if !self.recent.contains(&task.destination) {
                self.recent.insert(0, task.destination.clone());
                self.recent.truncate(RECENT);
            }
        }
        // A full outlook may hide others behind it. The next claim asks for the next page.
        let is_full = outlook.looked == MAX_OUTLOOK;
        self.outlook = outlook;
        self.seen.append(&mut self.outlook.due);
        self.skip += self.outlook.looked;
        if !is_full {
            self.skip = 0;
            self.outlook.due = std::mem::take(&mut self.seen);
        }
    }

    /// Whether there is a permit for a due destination. If not, `wake` is notified once there may
    /// be one, in the lane's turn.
    pub(super) fn check_permits(
        &mut self,
        shared: &Shared<impl Delivery, impl Caller>,
        wake: &Arc<Notify>,
    ) -> Availability {
        let (topic, due) = (&self.lane.topic, &self.outlook.due);
        self.waiters.check(shared, topic, due, wake, &mut self.delays)
    }

    /// Whether something that is due has no permit here, and is not held by operators.
    pub(super) fn lacks_permits(&self, shared: &Shared<impl Delivery, impl Caller>) -> bool {
        permits::are_lacking(shared, &self.lane.topic, &self.outlook.due)
    }

    /// How late the tasks of a claim are, and who delayed them.
    pub(super) fn lateness<'a, S, C>(
        &'a self,
        shared: &'a Shared<S, C>,
        claim: Answered,
    ) -> impl Fn(&LeasedTask) -> Lateness + use<'a, S, C> {
        self.delays.of_claim(shared, &self.lane.topic, claim)
    }

    /// The tasks of the last claim have been handed out, by the store's clock at `now`.
    pub(super) fn handed_out(&mut self, now: UnixMillis) {
        if !self.is_paging() {
            self.delays.keep_only(&self.outlook.due, now);
        }
    }

    /// Gives the lane's lock back, if the store may keep it for this instance.
    pub(super) async fn release_lock(&mut self, shared: &Shared<impl Delivery, impl Caller>) {
        if self.keeps_lock {
            // On an error it ends by itself after two seconds.
            let _ = self.send(shared, Ask::Nothing).await;
        }
    }

    /// What the last answer showed. `due` is empty while its list is read page by page.
    pub(super) fn outlook(&self) -> &Outlook {
        &self.outlook
    }

    /// Whether a list of due destinations has more pages, which the next claim asks for.
    pub(super) fn is_paging(&self) -> bool {
        self.skip > 0
    }

    /// Whether the store may keep the lane's lock for this instance, so that no other can claim.
    pub(super) fn keeps_lock(&self) -> bool {
        self.keeps_lock
    }
}

/// The most tasks of one claim: `worker.claim_batch` for each whole millisecond of the round trip.
/// A lane claims once in a round trip, so the size limits the rate of the lane. To a near server,
/// small claims are better (`docs/adr/0013-claims-of-64.md`).
fn claim_batch(shared: &Shared<impl Delivery, impl Caller>, lane: &Lane) -> usize {
    batch_at(shared.params.claim_batch, shared.parts.store.round_trip(lane))
}

fn batch_at(near: usize, round_trip: Duration) -> usize {
    near.saturating_mul(round_trip.as_millis() as usize).clamp(near, near.max(LARGEST))
}

/// Each name once, beginning after `last`. They are ordered by name, since by due moment those of a
/// flooded destination would always be the first.
fn in_turn<'a>(
    names: impl Iterator<Item = &'a Destination>,
    last: Option<&Destination>,
) -> Vec<&'a Destination> {
    let names: BTreeSet<&Destination> = names.collect();
    let mut names: Vec<&Destination> = names.into_iter().collect();
    let first = names.partition_point(|name| Some(*name) <= last);
    names.rotate_left(first);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_grows_with_the_round_trip_up_to_a_limit() {
        for (near, ms, batch) in [(64, 0, 64), (64, 3, 192), (64, 90, 256), (512, 90, 512)] {
            assert_eq!(batch_at(near, Duration::from_millis(ms)), batch, "{near}, {ms} ms");
        }
    }
}
