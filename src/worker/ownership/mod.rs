//! Which lanes this instance looks at. This decides which instance looks, never which may claim
//! (`docs/adr/0022-instances-divide-the-looking.md`).
//!
//! A lane is *open* for an instance that owns it or stands in for its owner. An open lane is looked
//! at each second, and started and woken by hints.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::Instance;

mod members;

pub(super) use members::OWNS_FOR;
use members::{Hashed, Members, ROUND};

/// An instance stands in for an owner for this long after the last reason for it.
const STANDS_IN: Duration = Duration::from_secs(5);
/// A lane that has been due for this long is open to each instance that looks at it.
const OPEN_AFTER: Duration = Duration::from_millis(500);
/// The first interval between two requests for help with one lane, of all instances together. It
/// doubles while no request leads to a claim here.
pub(super) const ASKS_EVERY: Duration = Duration::from_secs(2);
/// The longest such interval.
const ASKS_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
/// A request may come this much later than its interval says: a lane asks when a poll wakes it.
const ASKS_LATE: Duration = Duration::from_secs(3);
/// The first request for help with a lane is for so many instances, those that rank first after its
/// owner. A lane that is open for all instances at once costs a claim of each.
const FIRST_HELPERS: usize = 4;
/// Each further request for the same trouble is for so many times as many.
const MORE_HELPERS: usize = 4;
/// The most lanes of earlier polls that the next poll looks at again. The others have their turns.
const MOST_AGAIN: usize = 16_384;

/// The lanes of this instance, as it knows the others.
#[derive(Debug)]
pub(super) struct Ownership {
    /// The id of this instance.
    id: String,
    /// Whether this instance has workers.
    works: bool,
    /// Whether other instances divide the lanes with this one. If not, every lane is open.
    is_shared: AtomicBool,
    view: Mutex<View>,
}

#[derive(Debug)]
struct View {
    members: Members,
    /// When heartbeats were last read.
    heard: Option<Instant>,
    /// The second of the store's clock of the last look. `None`: the next look has all lanes.
    looked: Option<i64>,
    /// The lanes that the next look has whatever the turns are: their servers did not answer, or
    /// they have just become due.
    again: HashSet<Lane>,
    /// The subscription to messages at the last look.
    subscription: Option<u64>,
    /// Whether messages have been lost since the last look.
    has_lost: bool,
    /// Whether the others have to hear that this instance may have missed requests for help.
    has_missed: bool,
    /// Whether the members have changed since the last look.
    has_changed: bool,
    /// The lanes that this instance stands in for.
    stands_in: HashMap<Lane, StandIn>,
    /// The last request for help with each lane, of any instance.
    requests: HashMap<Lane, Request>,
    /// Whether the last poll allowed claims.
    may_claim: bool,
    /// Since when each poll has had lanes without an answer.
    lacks_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct StandIn {
    until: Instant,
    /// Whether another instance asked for help. If not, a look found the lane overdue.
    was_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    at: Instant,
    /// No instance asks again within this time.
    again_in: Duration,
    /// How many requests there were before for the same trouble.
    before: u32,
    /// Whether this instance has claimed something since then.
    helped: bool,
}

impl Request {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.at) < self.again_in
    }

    /// Whether the next request still belongs to the same trouble.
    fn is_known(&self, now: Instant) -> bool {
        now.duration_since(self.at) < 2 * self.again_in + ASKS_LATE
    }
}

/// How many instances a request is for, in the order of their ranks, if `before` others came before
/// it for the same trouble.
fn helpers(before: u32) -> usize {
    FIRST_HELPERS.saturating_mul(MORE_HELPERS.saturating_pow(before))
}

impl View {
    fn owns(&self, lane: &Lane) -> bool {
        self.members.owns(Hashed::lane(lane))
    }

    /// How this instance stands in for the owner of the lane, if it does.
    fn stands_in(&self, lane: &Lane) -> Option<StandIn> {
        self.stands_in.get(lane).copied().filter(|it| it.until > Instant::now())
    }

    fn stand_in(&mut self, lane: &Lane, time: Duration, was_asked: bool) {
        let before = self.stands_in(lane);
        let until = Instant::now() + time;
        let until = before.map_or(until, |it| it.until.max(until));
        let was_asked = was_asked || before.is_some_and(|it| it.was_asked);
        self.stands_in.insert(lane.clone(), StandIn { until, was_asked });
    }

    /// How many requests for the present trouble with the lane there were. A trouble ends if no
    /// request comes for a while.
    fn requests_so_far(&self, lane: &Lane) -> u32 {
        let known = self.requests.get(lane).filter(|last| last.is_known(Instant::now()));
        known.map_or(0, |last| last.before.saturating_add(1))
    }

    fn look_again(&mut self, lanes: impl IntoIterator<Item = Lane>) {
        let left = MOST_AGAIN.saturating_sub(self.again.len());
        self.again.extend(lanes.into_iter().take(left));
    }
}

impl Ownership {
    /// All lanes are open until the first heartbeats are read.
    pub(super) fn new(id: &str, works: bool) -> Self {
        let view = View {
            members: Members::alone(id, works),
            heard: None,
            looked: None,
            again: HashSet::new(),
            subscription: None,
            has_lost: false,
            has_missed: false,
            has_changed: false,
            stands_in: HashMap::new(),
            requests: HashMap::new(),
            may_claim: false,
            lacks_since: None,
        };
        Self { id: id.to_owned(), works, is_shared: AtomicBool::new(true), view: Mutex::new(view) }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether other instances divide the lanes with this one.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// The heartbeat with what others have to know of this instance: whether it divides the lanes
    /// with them, and whether servers have not answered its polls for [`OWNS_FOR`].
    pub(super) fn announce(&self, heartbeat: Instance) -> Instance {
        let view = self.view();
        let divides = self.works && view.may_claim;
        let lacks_lanes = view.lacks_since.is_some_and(|since| since.elapsed() >= OWNS_FOR);
        Instance { divides, lacks_lanes, ..heartbeat }
    }

    /// This instance may claim from now on.
    pub(super) fn may_claim(&self) {
        self.view().may_claim = true;
    }

    /// Takes in the heartbeats; `None` if they could not be read. Returns whether other instances
    /// divide the lanes than before.
    ///
    /// An instance that reads no heartbeats for [`OWNS_FOR`] works all lanes.
    pub(super) fn update_members(&self, living: Option<&[Instance]>) -> bool {
        let mut view = self.view();
        let now = Instant::now();
        let is_silent = view.heard.is_none_or(|heard| now.duration_since(heard) >= OWNS_FOR);
        let members = match living {
            Some(living) => Members::of(living, &self.id, self.works),
            None if is_silent => Members::alone(&self.id, self.works),
            None => view.members.clone(),
        };
        if living.is_some() {
            view.heard = Some(now);
            self.is_shared.store(!members.is_alone(), Ordering::Relaxed);
        }
        view.stands_in.retain(|_, it| it.until > now);
        view.requests.retain(|_, request| request.is_known(now));
        let has_changed = view.members != members;
        if has_changed {
            // A new instance has not heard the requests.
            view.requests.clear();
            view.has_changed = true;
        }
        view.members = members;
        has_changed
    }

    /// Whether this instance owns the lane.
    pub(super) fn owns(&self, lane: &Lane) -> bool {
        if !self.is_shared() {
            return self.works;
        }
        self.view().owns(lane)
    }

    /// Whether this instance owns the lane, or stands in for its owner.
    pub(super) fn is_open(&self, lane: &Lane) -> bool {
        !self.is_shared() || {
            let view = self.view();
            view.stands_in(lane).is_some() || view.owns(lane)
        }
    }

    /// Whether other instances have to hear of new work in the lane: this instance does not own it,
    /// or the others do not know yet that it does.
    pub(super) fn concerns_others(&self, lane: &Lane) -> bool {
        self.is_shared() && {
            let view = self.view();
            view.heard.is_none() || !view.may_claim || !view.owns(lane)
        }
    }

    /// Those of the lanes that this instance looks at now: the open ones, those where it has had a
    /// turn since the last look, and those of [`View::again`]. All lanes after messages may have
    /// been lost: without a subscription, or with another one than at the last look.
    pub(super) fn to_look_at(
        &self,
        mut lanes: Vec<Lane>,
        store_now: UnixMillis,
        subscription: Option<u64>,
    ) -> Vec<Lane> {
        let mut view = self.view();
        let hears_all = subscription.is_some() && view.subscription == subscription;
        view.subscription = subscription;
        if std::mem::take(&mut view.has_lost) || !hears_all {
            view.looked = None;
            view.requests.clear();
            view.has_missed = subscription.is_some() && self.is_shared();
        }
        if std::mem::take(&mut view.has_changed) {
            // The last turns may have been those of an instance that has gone. The others repeat
            // them: two rounds, because they notice it in different seconds.
            view.looked = view.looked.map(|second| second - 2 * ROUND as i64);
        }
        if self.is_shared()
            && let Some(since) = view.looked
        {
            let now = second(store_now);
            lanes.retain(|lane| {
                view.members.looks(Hashed::lane(lane), since, now)
                    || view.stands_in(lane).is_some()
                    || view.again.contains(lane)
            });
        }
        lanes
    }

    /// Whether the others have to hear that this instance may have missed requests for help: they
    /// would not repeat them for up to [`ASKS_AT_LEAST_EVERY`]. Says so once.
    pub(super) fn take_missed(&self) -> bool {
        std::mem::take(&mut self.view().has_missed)
    }

    /// Another instance may have missed requests for help.
    pub(super) fn repeat_requests(&self) {
        self.view().requests.clear();
    }

    /// Messages have been lost: the next look has all lanes.
    pub(super) fn lost_messages(&self) {
        self.view().has_lost = true;
    }

    /// The look of this moment was answered, except for the lanes of `unanswered`. They are looked
    /// at again, whatever the turns are. `at` is the moment that [`Self::to_look_at`] was given.
    pub(super) fn looked(&self, at: UnixMillis, unanswered: Vec<Lane>) {
        let mut view = self.view();
        view.looked = Some(second(at));
        view.lacks_since = match unanswered.is_empty() {
            true => None,
            false => view.lacks_since.or(Some(Instant::now())),
        };
        view.again.clear();
        view.look_again(unanswered);
    }

    /// No lane of the look was answered. The next look has its turns.
    pub(super) fn look_failed(&self) {
        let mut view = self.view();
        view.lacks_since = view.lacks_since.or(Some(Instant::now()));
    }

    /// Takes in that a look at `store_now` found the lane due from `due` on, by its due index.
    /// Returns whether the lane is open. From [`OPEN_AFTER`] on, this instance stands in for its
    /// owner. If the lane is due for less, the next look has it again.
    pub(super) fn note_due(&self, lane: &Lane, due: UnixMillis, store_now: UnixMillis) -> bool {
        if !self.is_shared() {
            return true;
        }
        let mut view = self.view();
        if view.owns(lane) {
            return true;
        }
        if due + OPEN_AFTER <= store_now {
            view.stand_in(lane, STANDS_IN, false);
        } else if due <= store_now {
            view.look_again([lane.clone()]);
        }
        view.stands_in(lane).is_some()
    }

    /// Takes in that another instance asks for help with the lane, and not again within this time.
    /// Returns whether that opens the lane here.
    ///
    /// The first request opens it for the first [`FIRST_HELPERS`] instances after its owner, and
    /// each further one for more. It stays open until the next request.
    pub(super) fn was_asked(&self, lane: &Lane, again_in: Duration) -> bool {
        let again_in = again_in.clamp(ASKS_EVERY, ASKS_AT_LEAST_EVERY);
        let mut view = self.view();
        let was_open = view.owns(lane) || view.stands_in(lane).is_some();
        let before = view.requests_so_far(lane);
        let request = Request { at: Instant::now(), again_in, before, helped: false };
        view.requests.insert(lane.clone(), request);
        if !view.members.is_among_first(helpers(before), Hashed::lane(lane)) {
            return false;
        }
        view.stand_in(lane, STANDS_IN.max(again_in + ASKS_LATE), true);
        !was_open
    }

    /// Whether this instance, which cannot claim what is due in the lane, asks the others for help,
    /// and if so, within which time it does not ask again. `None` if one of them has asked lately,
    /// or has asked this instance.
    pub(super) fn should_request_help(&self, lane: &Lane) -> Option<Duration> {
        if !self.is_shared() {
            return None;
        }
        let mut view = self.view();
        let now = Instant::now();
        let last = view.requests.get(lane).copied();
        let may_ask = || view.owns(lane) || view.stands_in(lane).is_some_and(|it| !it.was_asked);
        if last.is_some_and(|last| last.is_fresh(now)) || !may_ask() {
            return None;
        }
        let again_in = match last.filter(|last| last.is_known(now) && !last.helped) {
            Some(last) => (2 * last.again_in).min(ASKS_AT_LEAST_EVERY),
            None => ASKS_EVERY,
        };
        let before = view.requests_so_far(lane);
        view.requests.insert(lane.clone(), Request { at: now, again_in, before, helped: false });
        Some(again_in)
    }

    /// This instance has claimed something in the lane. The next request begins with the shortest
    /// interval.
    pub(super) fn made_progress(&self, lane: &Lane) {
        if !self.is_shared() {
            return;
        }
        if let Some(request) = self.view().requests.get_mut(lane) {
            (request.helped, request.again_in) = (true, ASKS_EVERY);
        }
    }

    /// This instance no longer stands in for the owner of the lane.
    pub(super) fn withdraw(&self, lane: &Lane) {
        self.view().stands_in.remove(lane);
    }
}

fn second(moment: UnixMillis) -> i64 {
    moment.0.div_euclid(1_000)
}

#[cfg(test)]
mod tests;
