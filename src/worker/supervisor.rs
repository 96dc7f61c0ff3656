//! Which lanes have work coming: one task for each of those, and none for the others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use super::Shared;
use super::lane::{self, COMING, Nudge};
use crate::callback::Caller;
use crate::clock::UnixMillis;
use crate::store::{Hint, Store};
use crate::task::Lane;

/// The lanes' tasks.
#[derive(Debug, Default)]
struct Lanes {
    nudges: HashMap<Lane, Arc<Nudge>>,
    tasks: JoinSet<()>,
    names: HashMap<Id, Lane>,
    holds_are_known: bool,
}

/// Runs until the instance stops and all lanes' tasks have ended. `settled` tells of tasks that this instance itself has put back on
/// their schedules.
pub(super) async fn run(shared: Arc<Shared<impl Store, impl Caller>>, mut settled: mpsc::UnboundedReceiver<Hint>) {
    let mut hints = shared.parts.store.hints();
    let mut looks = tokio::time::interval(shared.params.look_every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lanes = Lanes::default();
    let mut fails = false;
    while !shared.stopping.is_cancelled() {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => {}
            _ = looks.tick() => fails = look(&shared, &mut lanes, fails).await,
            Some(ended) = lanes.tasks.join_next_with_id() => reap(&shared, &mut lanes, ended),
            Some(hint) = settled.recv() => take_hint(&shared, &mut lanes, hint),
            hint = hints.recv() => match hint {
                Ok(hint) => take_hint(&shared, &mut lanes, hint),
                // Too many to follow: one look sees them all.
                Err(RecvError::Lagged(_)) => looks.reset_immediately(),
                Err(RecvError::Closed) => return,
            },
        }
    }
    while lanes.tasks.join_next().await.is_some() {}
}

/// The safety look: the registry, what is held by hand, then all lanes in one pipeline. Answers whether it failed.
async fn look(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, failed_before: bool) -> bool {
    // The registry, or what is held, may be on a server that is away while lanes are not: then those that are known are looked at. But
    // nothing is claimed before it was known once what is held.
    let refreshed = shared.parts.topics.refresh().await.err().map(|error| error.to_string());
    let all: Vec<Lane> = shared.parts.topics.known().iter().flat_map(|known| known.entry.lanes()).collect();
    let read = shared.parts.store.holds().await.map(|holds| {
        shared.parts.limits.set_holds(holds.into_iter().collect());
        lanes.holds_are_known = true;
    });
    let held = read.err().map(|error| error.to_string());
    let asked = shared.parts.clock.now();
    let looked = shared.parts.store.next_due(all.clone()).await.map(|next| {
        shared.time.saw(next.now, asked);
        for (lane, due) in all.into_iter().zip(next.lanes) {
            if let Some(due) = due.filter(|_| lanes.holds_are_known) {
                tell(shared, lanes, lane, due);
            }
        }
    });
    let failed = refreshed.or(held).or(looked.err().map(|error| error.to_string()));
    match &failed {
        None if failed_before => tracing::info!("Looking over the topics again"),
        Some(error) if !failed_before => {
            tracing::warn!(error, "Could not look over all topics; trying again every second");
        }
        _ => {}
    }
    failed.is_some()
}

fn take_hint(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, hint: Hint) {
    // Else the next look finds the task, once it is known what is held.
    if lanes.holds_are_known && !hint.is_pull {
        tell(shared, lanes, hint.lane, hint.due);
    }
}

/// Wakes the lane's task, or starts it if its work is near.
fn tell(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, lane: Lane, due: UnixMillis) {
    if let Some(nudge) = lanes.nudges.get(&lane) {
        nudge.at(due, shared.time.store_now());
    } else if due <= shared.time.store_now() + COMING {
        start(shared, lanes, lane);
    }
}

fn start(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, lane: Lane) {
    let nudge = Arc::new(Nudge::new());
    let task = lanes.tasks.spawn(lane::run(shared.clone(), lane.clone(), nudge.clone()));
    tracing::debug!(%lane, "Working lane {lane}");
    lanes.names.insert(task.id(), lane.clone());
    lanes.nudges.insert(lane, nudge);
}

/// A lane's task has ended: by itself after idling, or by a panic, after which it starts again.
fn reap(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, ended: Result<(Id, ()), JoinError>) {
    let (id, panicked) = match ended {
        Ok((id, ())) => (id, false),
        Err(error) => (error.id(), true),
    };
    let Some(lane) = lanes.names.remove(&id) else { return };
    let nudge = lanes.nudges.remove(&lane);
    if panicked {
        tracing::error!(%lane, "The worker of lane {lane} panicked; it is started again");
    } else {
        tracing::debug!(%lane, "Lane {lane} is idle");
    }
    if panicked || nudge.is_some_and(|nudge| nudge.is_pending()) {
        start(shared, lanes, lane);
    }
}
