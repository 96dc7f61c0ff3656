//! Which lanes this instance looks at. This decides who looks, never who may claim
//! (`docs/adr/0022-instances-divide-the-looking.md`).
//!
//! A lane is *open* for an instance that owns it or stands in for its owner. An open lane is looked
//! at each second, and started and woken by hints.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::Instance;

mod members;

pub(super) use members::OWNS_FOR;
use members::{Hashed, Members};

/// An instance stands in for an owner for this long after the last reason for it.
const STANDS_IN: Duration = Duration::from_secs(5);
/// A lane that has been due for this long is open to each instance that looks at it.
const OPEN_AFTER: Duration = Duration::from_millis(500);
/// The shortest time between two requests for help with one lane, of all instances together. Each
/// second poll of an owner that still cannot claim asks again.
const ASKS_EVERY: Duration = Duration::from_millis(1_500);

/// The lanes of this instance, as it knows the others.
#[derive(Debug)]
pub(super) struct Ownership {
    /// The id of this instance.
    id: String,
    /// Whether this instance has workers.
    works: bool,
    /// Whether other instances may work. If not, every lane is open, and nothing below is read.
    is_shared: AtomicBool,
    view: Mutex<View>,
}

#[derive(Debug)]
struct View {
    members: Members,
    /// When heartbeats were last read.
    heard: Option<Instant>,
    /// The second of the store's clock of the last look that was answered.
    looked: Option<i64>,
    /// The lanes that this instance stands in for.
    stands_in: HashMap<Lane, StandIn>,
    /// When any instance last asked for help with a lane.
    asked: HashMap<Lane, Instant>,
}

#[derive(Clone, Copy, Debug)]
struct StandIn {
    until: Instant,
    /// Whether another instance asked for help. If not, a look found the lane overdue.
    was_asked: bool,
}

impl View {
    fn owns(&self, lane: &Lane) -> bool {
        self.members.owns(Hashed::lane(lane))
    }

    /// How this instance stands in for the owner of the lane, if it does.
    fn stands_in(&self, lane: &Lane) -> Option<StandIn> {
        self.stands_in.get(lane).copied().filter(|it| it.until > Instant::now())
    }

    fn stand_in(&mut self, lane: &Lane, was_asked: bool) {
        let until = Instant::now() + STANDS_IN;
        let was_asked = was_asked || self.stands_in(lane).is_some_and(|it| it.was_asked);
        self.stands_in.insert(lane.clone(), StandIn { until, was_asked });
    }
}

impl Ownership {
    /// All lanes are open until the first heartbeats are read.
    pub(super) fn new(id: &str, works: bool) -> Self {
        let members = Members::alone(id, works);
        let view = View {
            members,
            heard: None,
            looked: None,
            stands_in: HashMap::new(),
            asked: HashMap::new(),
        };
        Self { id: id.to_owned(), works, is_shared: AtomicBool::new(true), view: Mutex::new(view) }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether other instances may work.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Takes in the heartbeats; `None` if they could not be read. Returns whether the working
    /// instances have changed.
    ///
    /// An instance that reads no heartbeats for [`OWNS_FOR`] works all lanes.
    pub(super) fn heard(&self, living: Option<&[Instance]>) -> bool {
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
        view.asked.retain(|_, asked| now.duration_since(*asked) < ASKS_EVERY);
        let has_changed = view.members != members;
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
    /// or knows no other instance yet.
    pub(super) fn concerns_others(&self, lane: &Lane) -> bool {
        self.is_shared() && {
            let view = self.view();
            view.heard.is_none() || !view.owns(lane)
        }
    }

    /// Those of the lanes that this instance looks at now: the open ones, and those where it has
    /// had a turn since the last look.
    pub(super) fn to_look_at(&self, mut lanes: Vec<Lane>, store_now: UnixMillis) -> Vec<Lane> {
        if self.is_shared() {
            let (view, now) = (self.view(), second(store_now));
            if let Some(since) = view.looked {
                lanes.retain(|lane| {
                    view.members.looks(Hashed::lane(lane), since, now)
                        || view.stands_in(lane).is_some()
                });
            }
        }
        lanes
    }

    /// A look that was sent at this time was answered for all of its lanes.
    pub(super) fn looked(&self, asked: UnixMillis) {
        if self.is_shared() {
            self.view().looked = Some(second(asked));
        }
    }

    /// Takes in that a look found the lane due from this moment on, by its due index. Returns
    /// whether the lane is open. From [`OPEN_AFTER`] on this instance stands in for its owner.
    pub(super) fn saw(&self, lane: &Lane, due: UnixMillis, store_now: UnixMillis) -> bool {
        if !self.is_shared() {
            return true;
        }
        let mut view = self.view();
        if view.owns(lane) {
            return true;
        }
        if due + OPEN_AFTER <= store_now {
            view.stand_in(lane, false);
        }
        view.stands_in(lane).is_some()
    }

    /// Takes in that another instance asks for help with the lane.
    pub(super) fn was_asked(&self, lane: &Lane) {
        let mut view = self.view();
        view.asked.insert(lane.clone(), Instant::now());
        view.stand_in(lane, true);
    }

    /// Whether this instance, which cannot claim what is due in the lane, asks the others for help.
    /// It does not if one of them has asked, lately or of this instance.
    pub(super) fn asks(&self, lane: &Lane) -> bool {
        if !self.is_shared() {
            return false;
        }
        let mut view = self.view();
        let now = Instant::now();
        let has_asked =
            view.asked.get(lane).is_some_and(|asked| now.duration_since(*asked) < ASKS_EVERY);
        let may_ask = || view.owns(lane) || view.stands_in(lane).is_some_and(|it| !it.was_asked);
        let asks = !has_asked && may_ask();
        if asks {
            view.asked.insert(lane.clone(), now);
        }
        asks
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
