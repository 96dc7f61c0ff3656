//! Plans the occurrences of recurring schedules, in the lanes that the poll found due.
//!
//! The poll of each second notes the lanes in which a planned moment has passed. Instances do not
//! wait for each other: the store compares each plan with the schedule.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::model::task::{Lane, ScheduleName};
use crate::planner;
use crate::store::{
    AnyStore, Error, MAX_DUE_SCHEDULES, Planned, Reader, Result, Schedules, Topics,
};
use crate::topic::Registry;

/// How long the planner leaves a lane alone after an error.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// How long after an occurrence that was due at once the planner looks at its lane again. A backlog
/// of missed moments is then made up for faster than by one moment in each poll.
const BEHIND: Duration = Duration::from_millis(100);

/// How many lanes are planned at a time. A lane whose server is slow delays no other one, unless
/// this many lanes wait for it.
const LANES_AT_ONCE: usize = 16;

/// How many schedules of a lane are planned at a time. The store writes them together.
const PLANS_AT_ONCE: usize = 16;

/// After how many looks that planned something the other lanes have their turn.
const MOST_LOOKS: usize = 4;

/// How long a schedule that cannot be read is remembered. Each look finds it again.
const REMEMBER: Duration = Duration::from_secs(10);

/// The planner of this instance.
#[derive(Debug)]
pub(super) struct Parts<S = AnyStore> {
    pub(super) store: Arc<S>,
    pub(super) topics: Arc<Registry<S>>,
    pub(super) metrics: Arc<Metrics>,
}

/// The due schedules that this version cannot read, and when each was found last.
#[derive(Debug, Default)]
struct Unreadable(HashMap<(Lane, ScheduleName), Instant>);

impl Unreadable {
    /// Adds a schedule, and logs it if it is new here.
    fn found(&mut self, lane: &Lane, name: ScheduleName) {
        if self.0.insert((lane.clone(), name.clone()), Instant::now()).is_none() {
            tracing::error!(%lane, schedule = %name, "This version cannot read schedule {name}");
        }
    }

    /// Forgets those that were not found again, and returns how many there are.
    fn count(&mut self) -> usize {
        self.0.retain(|_, found| found.elapsed() < REMEMBER);
        self.0.len()
    }
}

/// Runs until it is aborted.
pub(super) async fn run<S: Schedules + Topics>(parts: &Parts<S>) {
    let due = parts.topics.due_lanes();
    let (unreadable, slots) = (Mutex::new(Unreadable::default()), Semaphore::new(LANES_AT_ONCE));
    let (unreadable, slots) = (&unreadable, &slots);
    let turn = |lane: Lane| async move {
        let is_behind = take_turn(parts, &lane, slots, unreadable).await;
        (lane, is_behind)
    };
    // The lanes that have a turn, and whether each was found due again since.
    let mut in_hand: HashMap<Lane, bool> = HashMap::new();
    let mut turns = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            lanes = due.take() => for lane in lanes {
                match in_hand.entry(lane) {
                    Entry::Occupied(mut again) => {
                        again.insert(true);
                    }
                    Entry::Vacant(new) => {
                        turns.push(turn(new.key().clone()));
                        new.insert(false);
                    }
                }
            },
            Some((lane, is_behind)) = turns.next() => {
                if in_hand.remove(&lane).unwrap_or_default() || is_behind {
                    in_hand.insert(lane.clone(), false);
                    turns.push(turn(lane));
                }
            }
            () = tokio::time::sleep(REMEMBER) => {}
        }
        let count = unreadable.lock().unwrap_or_else(PoisonError::into_inner).count();
        parts.metrics.schedules.set_unreadable(count);
    }
}

/// Plans a lane once it has a slot. Returns whether it is to be planned again at once. A lane that
/// waits takes no slot.
async fn take_turn<S: Schedules + Topics>(
    parts: &Parts<S>,
    lane: &Lane,
    slots: &Semaphore,
    unreadable: &Mutex<Unreadable>,
) -> bool {
    let planned = {
        let _slot = slots.acquire().await.expect("the slots are never closed");
        plan_lane(parts, lane, unreadable).await
    };
    match planned {
        Ok(is_behind) => {
            if is_behind {
                tokio::time::sleep(BEHIND).await;
            }
            is_behind
        }
        Err(error) => {
            parts.metrics.schedules.plan_failed();
            tracing::warn!(%lane, %error, "Could not plan the schedules of lane {lane}");
            tokio::time::sleep(AFTER_ERROR).await;
            false
        }
    }
}

/// Plans all schedules of a lane that are due. Returns whether one of them is behind: its new
/// occurrence was due at once, or there are too many for one turn.
async fn plan_lane<S: Schedules + Topics>(
    parts: &Parts<S>,
    lane: &Lane,
    unreadable: &Mutex<Unreadable>,
) -> Result<bool> {
    let Some(known) = parts.topics.known_entry(&lane.topic) else { return Ok(false) };
    if known.paused.is_some() {
        return Ok(false);
    }
    let (store, entry) = (&*parts.store, &known.entry);
    let found = |name| {
        unreadable.lock().unwrap_or_else(PoisonError::into_inner).found(lane, name);
    };
    let (mut skip, mut looks, mut is_behind) = (0, 0, false);
    loop {
        let due = parts.store.due_schedules(lane, skip).await?;
        let (count, skipped) = (due.names.len(), skip);
        let mut has_planned = false;
        let planner::ReadSchedules { mut schedules, unreadable: damaged } =
            planner::read(store, Reader::Worker, lane, due.names).await?;
        skip += damaged.len();
        damaged.into_iter().for_each(found);
        while !schedules.is_empty() {
            let some: Vec<_> = schedules.drain(..schedules.len().min(PLANS_AT_ONCE)).collect();
            let plans = some.into_iter().map(|schedule| async move {
                let planned = planner::plan(store, entry, &schedule).await;
                (schedule.name, planned)
            });
            let mut failed = None;
            for (name, planned) in join_all(plans).await {
                match planned {
                    Ok(Planned::Stale) => {}
                    Ok(planned) => {
                        has_planned = true;
                        if let Planned::Added { due: at, .. } = planned {
                            parts.metrics.schedules.planned();
                            is_behind |= at <= due.now;
                        }
                    }
                    // The others are planned all the same.
                    Err(Error::Corrupt(_)) => {
                        found(name);
                        skip += 1;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            failed.map_or(Ok(()), Err)?;
        }
        if count < MAX_DUE_SCHEDULES || !has_planned && skip == skipped {
            return Ok(is_behind);
        }
        // What was planned is no longer first, so the next turn goes on behind it.
        looks += usize::from(has_planned);
        if looks == MOST_LOOKS {
            return Ok(true);
        }
    }
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
