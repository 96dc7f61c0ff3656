//! Claiming: one lane asks the store for as many tasks as it has permits for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::delays::{ClaimTimes, Delays};
use super::due::DueDestinations;
use super::pages::{DuePage, News, Pages};
use super::permits::Reserved;
use super::shared::Shared;
use crate::callback::CallClient;
use crate::limits::Availability;
use crate::model::clock::UnixMillis;
use crate::model::lateness::Lateness;
use crate::model::task::{Destination, Lane, Receipt};
use crate::store::{Claim, Claimed, Delivery, Grant, LeasedTask, MAX_SWEEP, Outlook, Result, Want};

/// How many recent destinations a claim asks for.
const RECENT: usize = 4;
/// The most tasks of a claim from a far server, unless the setting is larger: see [`claim_batch`].
const LARGEST: usize = 256;

/// Claims the tasks of one lane.
#[derive(Debug)]
pub(super) struct Claimer {
    lane: Lane,
    due: DueDestinations,
    pages: Pages,
    /// The next later moment, as the last answer showed it.
    next: Option<UnixMillis>,
    /// Whether the last claim failed.
    has_failed: bool,
    /// Whether the last claim swept as many leases as one may.
    was_sweep_cut: bool,
    /// Destinations that are not due any more, or were recent.
    gone: Vec<Destination>,
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
    Granted(ClaimedBatch),
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
pub(super) struct ClaimedBatch {
    pub(super) tasks: Vec<LeasedTask>,
    /// The receipt of all their leases.
    pub(super) receipt: Receipt,
    /// The leases hold at least for `worker.lease` from here.
    pub(super) since: Instant,
    pub(super) permits: Reserved,
    /// When the claim was sent and answered.
    pub(super) claim: ClaimTimes,
}

impl Claimer {
    /// `wake` is notified when there may be a permit for something that is due.
    pub(super) fn new(lane: Lane, wake: Arc<Notify>) -> Self {
        Self {
            due: DueDestinations::new(lane.topic.clone(), wake),
            lane,
            pages: Pages::default(),
            next: None,
            has_failed: false,
            was_sweep_cut: false,
            gone: Vec::new(),
            recent: Vec::new(),
            last: None,
            keeps_lock: false,
            delays: Delays::default(),
        }
    }

    /// Asks the store for the tasks of due and recent destinations, as many as there are permits,
    /// and for a page of the due destinations.
    ///
    /// # Errors
    /// The store's. The permits are free again then, and the next claim asks for no tasks: permits
    /// that wait for a store in trouble would be missing to healthy lanes.
    pub(super) async fn claim(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        ask: Ask,
    ) -> Result<ClaimResult> {
        let server = shared.parts.store.server_of(&self.lane);
        if shared.settler.is_away(server) {
            self.due.suspend();
            self.pages.begin_again();
            self.delays.store_fails(shared.time.store_now());
            return Ok(ClaimResult::ServerAway { server });
        }
        let result = self.send(shared, ask).await;
        self.has_failed = result.is_err();
        if self.has_failed {
            self.gone.append(&mut self.recent);
            self.pages.begin_again();
        }
        result
    }

    async fn send(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        ask: Ask,
    ) -> Result<ClaimResult> {
        let (permits, more) = if ask == Ask::Nothing || self.has_failed {
            self.due.suspend();
            Default::default()
        } else {
            let most = claim_batch(shared, &self.lane);
            let (last, delays) = (self.last.as_ref(), &mut self.delays);
            self.due.reserve(shared, last, &self.recent, most, delays)
        };
        let wants: Vec<Want> = in_turn(permits.destinations(), self.last.as_ref())
            .into_iter()
            .map(|name| Want { destination: name.clone(), slots: permits.count(name) })
            .collect();
        let wanted: Vec<Destination> = wants.iter().map(|it| it.destination.clone()).collect();
        let page = self.pages.next();
        // If the answer is lost, the store may have kept the lock.
        self.keeps_lock = more && !wants.is_empty();
        let claim = Claim {
            lane: self.lane.clone(),
            wants,
            lease: shared.params.lease,
            holder: Some(shared.holder.clone()),
            more,
            after: page.after.clone(),
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
        let Grant { now, receipt, tasks, outlook, swept } = grant;
        self.keeps_lock &= !outlook.due.is_empty();
        self.learn(shared, &tasks, outlook, wanted, (page, now));
        // The leases that ran out since the claim before are behind the front. If that could not
        // sweep all, these may be before it.
        if swept.push_leases > 0 && self.was_sweep_cut {
            self.pages.begin_again();
        }
        self.was_sweep_cut = swept.push_leases as usize >= MAX_SWEEP;
        // The answer may have been on its way for a while, so `now` is too early.
        let claim = ClaimTimes { asked: asked_store, answered: shared.time.store_now().max(now) };
        Ok(ClaimResult::Granted(ClaimedBatch { tasks, receipt, since, permits, claim }))
    }

    fn learn(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
        tasks: &[LeasedTask],
        outlook: Outlook,
        mut wanted: Vec<Destination>,
        (page, now): (DuePage, UnixMillis),
    ) {
        // The destinations after that of the last task may have got nothing, because the bytes of
        // one claim are limited.
        let last_task = tasks.last().map(|task| task.destination.clone());
        self.last = last_task.or(wanted.last().cloned()).or(self.last.take());
        for task in tasks {
            if !self.recent.contains(&task.destination) {
                self.recent.insert(0, task.destination.clone());
                self.gone.extend(self.recent.drain(RECENT.min(self.recent.len())..));
            }
        }
        let Outlook { due, end, next } = outlook;
        self.next = next;
        let scan_ends = page.is_of_scan && end.is_none();
        if page.is_of_scan && page.after.is_none() {
            self.due.scan_begins();
        }
        self.pages.read(&page, now, end);
        // The answer names the wanted ones that are still due.
        let still: BTreeSet<&Destination> = due.iter().collect();
        wanted.retain(|destination| !still.contains(destination));
        self.gone.extend(wanted.into_iter().filter(|destination| self.due.remove(destination)));
        for destination in due {
            self.due.named(shared, destination, &mut self.delays);
        }
        if scan_ends {
            self.gone.extend(self.due.scan_ends());
        }
    }

    /// Takes in what the supervisor has told since the last claim.
    pub(super) fn take_in(&mut self, news: News) {
        self.pages.take_in(news);
    }

    /// Whether there is a permit for a due destination. If not, the lane is notified once there may
    /// be one, in its turn.
    pub(super) fn check_permits(
        &mut self,
        shared: &Shared<impl Delivery, impl CallClient>,
    ) -> Availability {
        self.due.check(shared, &mut self.delays)
    }

    /// How late the tasks of a claim are, and who delayed them.
    pub(super) fn lateness<'a, S, C>(
        &'a self,
        shared: &'a Shared<S, C>,
        claim: ClaimTimes,
    ) -> impl Fn(&LeasedTask) -> Lateness + use<'a, S, C> {
        self.delays.of_claim(shared, &self.lane.topic, claim)
    }

    /// The tasks of the last claim have been handed out, by the store's clock at `now`.
    pub(super) fn handed_out(&mut self, now: UnixMillis) {
        if self.due.is_empty() && !self.is_paging() {
            self.delays.topic_blocked(now, None);
        }
        for destination in self.gone.drain(..).chain(self.recent.iter().cloned()) {
            if !self.due.contains(&destination) {
                self.delays.forget(&destination);
            }
        }
    }

    /// Gives the lane's lock back, if the store may keep it for this instance.
    pub(super) async fn release_lock(&mut self, shared: &Shared<impl Delivery, impl CallClient>) {
        if self.keeps_lock {
            // On an error it ends by itself after two seconds.
            let _ = self.send(shared, Ask::Nothing).await;
        }
    }

    /// The due destinations, as far as they were read.
    pub(super) fn due(&self) -> &DueDestinations {
        &self.due
    }

    /// The next later moment, as the last answer showed it.
    pub(super) fn next(&self) -> Option<UnixMillis> {
        self.next
    }

    /// Whether the list of due destinations has more pages, which the next claims ask for.
    pub(super) fn is_paging(&self) -> bool {
        self.pages.has_more()
    }

    /// Whether the store may keep the lane's lock for this instance, so that no other can claim.
    pub(super) fn keeps_lock(&self) -> bool {
        self.keeps_lock
    }
}

/// The most tasks of one claim: `worker.claim_batch` for each whole millisecond of the round trip.
/// A lane claims once in a round trip, so the size limits the rate of the lane. To a near server,
/// small claims are better (`docs/adr/0013-claims-of-64.md`).
fn claim_batch(shared: &Shared<impl Delivery, impl CallClient>, lane: &Lane) -> usize {
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
    use crate::model::task::State;
    use crate::store::Reader;
    use crate::worker::testing::{Bench, lane};

    fn name(name: &str) -> Destination {
        name.parse().unwrap()
    }

    /// Leases so many new tasks to another holder, and waits until the leases have run out.
    async fn run_out(bench: &Bench, count: usize) {
        bench.add(vec!["s"; count]).await;
        let claim = Claim {
            lane: lane(),
            wants: vec![Want { destination: name("s"), slots: count }],
            lease: Duration::from_millis(1),
            holder: None,
            more: false,
            after: None,
            in_hand: 0,
            misfires: Vec::new(),
        };
        let store = &bench.store.store;
        let Claimed::Granted(grant) = store.claim(claim).await.unwrap() else { unreachable!() };
        assert_eq!(grant.tasks.len(), count);
        let last = grant.tasks[count - 1].id;
        while store.get(Reader::Worker, &lane(), last).await.unwrap().unwrap().state
            == State::Leased
        {
            tokio::task::yield_now().await;
        }
    }

    /// The first claim after a restart swept thousands of leases, and each claim began to read the
    /// due destinations again.
    #[tokio::test]
    async fn only_a_sweep_after_one_that_was_cut_has_all_pages_read_again() {
        let bench = Bench::start(&[("s", 1)], |params| params.enabled = false);
        let mut claimer = Claimer::new(lane(), Arc::default());
        for (lost, begins_again) in
            [(1, [false; 3]), (1, [false; 3]), (MAX_SWEEP + 1, [false, true, false])]
        {
            run_out(&bench, lost).await;
            for begins_again in begins_again {
                claimer.claim(&bench.worker.shared, Ask::Nothing).await.unwrap();
                let is_first_page = claimer.pages.next().after.is_none();
                assert_eq!((is_first_page, claimer.is_paging()), (begins_again, begins_again));
            }
        }
    }

    /// A lane kept the notes of each destination that had had tasks for as long as it ran.
    #[tokio::test]
    async fn a_destination_that_is_recent_no_more_has_no_notes_of_delays() {
        let names = ["a", "b", "c", "d", "e"];
        assert_eq!(names.len(), RECENT + 1);
        let bench = Bench::start(&names.map(|name| (name, 1)), |params| params.enabled = false);
        let mut claimer = Claimer::new(lane(), Arc::default());
        let mut calls = Vec::new();
        for due in names {
            bench.add([due]).await;
            // One claim sees what is due, and the next one takes it.
            claimer.take_in(News { hinted: None, polled: true });
            for _ in 0..2 {
                let claimed = claimer.claim(&bench.worker.shared, Ask::Tasks).await.unwrap();
                let ClaimResult::Granted(batch) = claimed else { unreachable!() };
                // The last claim noted that the recent ones are full.
                let is_full = claimer.delays.of_destination(&name("a")).is_some();
                assert!(is_full || !calls.contains(&name("a")));
                calls.extend(batch.tasks.iter().map(|task| task.destination.clone()));
                claimer.handed_out(batch.claim.answered);
                std::mem::forget(batch.permits);
            }
        }
        assert_eq!(calls, names.map(name));
        assert_eq!(claimer.recent, ["e", "d", "c", "b"].map(name));
        assert!(names.iter().all(|it| claimer.delays.of_destination(&name(it)).is_none()));
    }

    #[test]
    fn a_claim_grows_with_the_round_trip_up_to_a_limit() {
        for (near, ms, batch) in [(64, 0, 64), (64, 3, 192), (64, 90, 256), (512, 90, 512)] {
            assert_eq!(batch_at(near, Duration::from_millis(ms)), batch, "{near}, {ms} ms");
        }
    }
}
