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
    /// Whether the members have changed since the last look.
    has_changed: bool,
    /// The lanes that this instance stands in for, and until when.
    stands_in: HashMap<Lane, Instant>,
    /// Whether the last poll allowed claims.
    may_claim: bool,
    /// Since when each poll has had lanes without an answer.
    lacks_since: Option<Instant>,
}

impl View {
    fn owns(&self, lane: &Lane) -> bool {
        self.members.owns(Hashed::lane(lane))
    }

    /// Whether this instance stands in for the owner of the lane.
    fn stands_in(&self, lane: &Lane) -> bool {
        self.stands_in.get(lane).is_some_and(|until| *until > Instant::now())
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
            has_changed: false,
            stands_in: HashMap::new(),
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

    /// Takes in the heartbeats; `None` if they could not be read. `answers` tells whether the lanes
    /// of the same poll were. Returns whether other instances divide the lanes than before.
    ///
    /// An instance that reads lanes and no heartbeats for [`OWNS_FOR`] works all lanes. If it reads
    /// neither, perhaps no instance does: the members stay, and so they do in the first poll that
    /// is answered then, because their heartbeats are as old as its own. If each instance took the
    /// others for dead, all would claim in all lanes, and a store that was late would stay late.
    pub(super) fn update_members(&self, living: Option<&[Instance]>, answers: bool) -> bool {
        let mut view = self.view();
        let now = Instant::now();
        let is_silent = view.heard.is_none_or(|heard| now.duration_since(heard) >= OWNS_FOR);
        let members = match living {
            Some(living) => {
                let members = Members::of(living, &self.id, self.works);
                if is_silent { members.joined(&view.members) } else { members }
            }
            None if is_silent && answers => Members::alone(&self.id, self.works),
            None => view.members.clone(),
        };
        if living.is_some() {
            view.heard = Some(now);
            self.is_shared.store(!members.is_alone(), Ordering::Relaxed);
        }
        view.stands_in.retain(|_, until| *until > now);
        let has_changed = view.members != members;
        view.has_changed |= has_changed;
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
            view.stands_in(lane) || view.owns(lane)
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
    /// turn since the last look, and those of [`View::again`]. The first look has all lanes.
    pub(super) fn to_look_at(&self, mut lanes: Vec<Lane>, store_now: UnixMillis) -> Vec<Lane> {
        let mut view = self.view();
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
                    || view.stands_in(lane)
                    || view.again.contains(lane)
            });
        }
        lanes
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
            view.stands_in.insert(lane.clone(), Instant::now() + STANDS_IN);
        } else if due <= store_now {
            view.look_again([lane.clone()]);
        }
        view.stands_in(lane)
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
