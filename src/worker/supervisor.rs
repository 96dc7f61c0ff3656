//! Which lanes have work coming: one task for each of those, and none for the others. And what
//! every instance has to know each second.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{FusedFuture, OptionFuture};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use super::lane::{self, COMING, Nudge};
use super::shared::Shared;
use crate::callback::Caller;
use crate::clock::UnixMillis;
use crate::store::{Delivery, Hint, Look, Looked, NextDue};
use crate::task::Lane;

/// The lanes' tasks.
#[derive(Debug, Default)]
struct Lanes {
    nudges: HashMap<Lane, Arc<Nudge>>,
    tasks: JoinSet<()>,
    names: HashMap<Id, Lane>,
    may_claim: bool,
    /// Whether a hint came before anything could be claimed. The look under way may not have seen
    /// its task.
    missed_hint: bool,
    /// Whether the last look did.
    look_failed: bool,
}

/// Runs until the instance stops and all lanes' tasks have ended.
pub(super) async fn run(shared: Arc<Shared<impl Delivery, impl Caller>>) {
    let mut hints = shared.parts.store.hints();
    let mut looks = tokio::time::interval(shared.params.look_every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lanes = Lanes::default();
    // A look that waits for a server in trouble must not keep the hints waiting.
    let mut looking = pin!(OptionFuture::from(None));
    while !shared.stopping.is_cancelled() {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => {}
            Some(seen) = looking.as_mut() => {
                looking.set(OptionFuture::from(None));
                take_in(&shared, &mut lanes, seen);
                if lanes.may_claim && std::mem::take(&mut lanes.missed_hint) {
                    looks.reset_immediately();
                }
            }
            _ = looks.tick(), if looking.is_terminated() => looking.set(OptionFuture::from(Some(look(&shared).fuse()))),
            Some(ended) = lanes.tasks.join_next_with_id() => reap(&shared, &mut lanes, ended),
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

/// What a look has seen.
struct Seen {
    may_claim: bool,
    /// The lanes that have work coming, and when.
    due: Vec<(Lane, UnixMillis)>,
    failed: Option<String>,
}

/// The look of each second: the registry if it has changed, what is held by hand, and all lanes,
/// together. An instance that does not work itself looks as well, for consumers pull from it and
/// callers add to it; but not into lanes.
async fn look(shared: &Shared<impl Delivery, impl Caller>) -> Seen {
    let Shared { parts, .. } = shared;
    let mut asked_lanes = lanes(shared);
    let awaited = parts.topics.awaited().lanes(|topic| {
        // Nothing is handed out of a topic that is paused; the look after its end finds what is
        // due.
        parts.topics.known_entry(topic).filter(|known| known.paused.is_none())
    });
    let began = Instant::now();
    let (seen, asked_holds, asked) =
        (parts.topics.seen(), parts.limits.ask_holds(), parts.clock.now());
    let look =
        Look { seen: seen.revision, workers: asked_lanes.clone(), consumers: awaited.clone() };
    let Looked { registry, holds, next, pulls, unknown } = parts.store.look(look).await;
    if let Some(pulls) = pulls.transpose() {
        parts.topics.awaited().tell(began, &awaited, pulls, &unknown);
    }
    // The registry, or what is held, may be on a server that is away while lanes are not: then
    // those that are known are looked at. But nothing is claimed before it was known once what is
    // held, and which store this is: calls name it.
    let mut failed = registry.as_ref().err().map(ToString::to_string);
    if let Ok(Some((revision, entries))) = registry {
        parts.topics.take_in(seen, revision, &entries);
    }
    let identified = parts.store.id().await.map(|id| shared.set_store_id(id));
    let may_claim = holds.is_ok() && identified.is_ok();
    match holds {
        Ok(holds) => {
            let released = holds.released.into_iter().collect();
            parts.limits.set_holds(asked_holds, holds.held.into_iter().collect(), released);
        }
        Err(error) => failed = failed.or(Some(error.to_string())),
    }
    failed = failed.or(identified.err().map(|error| error.to_string()));
    let mut due = Vec::new();
    let mut see = |lanes: &mut Vec<Lane>, next: NextDue| {
        shared.time.saw(next.now, asked);
        due.extend(
            std::mem::take(lanes)
                .into_iter()
                .zip(next.lanes)
                .filter_map(|(lane, due)| Some((lane, due?))),
        );
    };
    // Those of topics that this look has brought.
    let known: HashSet<Lane> = asked_lanes.iter().cloned().collect();
    let mut new: Vec<Lane> =
        lanes(shared).into_iter().filter(|lane| !known.contains(lane)).collect();
    match next {
        Ok(next) => next.into_iter().for_each(|next| see(&mut asked_lanes, next)),
        Err(error) => failed = failed.or(Some(error.to_string())),
    }
    if !new.is_empty() {
        match parts.store.next_due(new.clone()).await {
            Ok(next) => see(&mut new, next),
            Err(error) => failed = failed.or(Some(error.to_string())),
        }
    }
    Seen { may_claim, due, failed }
}

/// The lanes to be looked into. Nothing is coming of a topic that is paused; the look after its end
/// finds what is.
fn lanes(shared: &Shared<impl Delivery, impl Caller>) -> Vec<Lane> {
    if !shared.params.enabled {
        return Vec::new();
    }
    let known = shared.parts.topics.known();
    known
        .iter()
        .filter(|known| known.paused.is_none())
        .flat_map(|known| known.entry.lanes())
        .collect()
}

fn take_in(shared: &Arc<Shared<impl Delivery, impl Caller>>, lanes: &mut Lanes, seen: Seen) {
    lanes.may_claim |= seen.may_claim;
    for (lane, due) in seen.due {
        if lanes.may_claim {
            tell(shared, lanes, lane, due);
        }
    }
    match &seen.failed {
        None if lanes.look_failed => tracing::info!("Looking over the topics again"),
        Some(error) if !lanes.look_failed => {
            tracing::warn!(error, "Could not look over all topics; trying again every second");
        }
        _ => {}
    }
    lanes.look_failed = seen.failed.is_some();
}

fn take_hint(shared: &Arc<Shared<impl Delivery, impl Caller>>, lanes: &mut Lanes, hint: Hint) {
    if !shared.params.enabled || hint.is_pull {
        return;
    }
    match lanes.may_claim {
        true => tell(shared, lanes, hint.lane, hint.due),
        // The next look finds the task, once it is known what is held and which store this is.
        false => lanes.missed_hint = true,
    }
}

/// Wakes the lane's task, or starts it if its work is near.
fn tell(
    shared: &Arc<Shared<impl Delivery, impl Caller>>,
    lanes: &mut Lanes,
    lane: Lane,
    due: UnixMillis,
) {
    if let Some(nudge) = lanes.nudges.get(&lane) {
        nudge.at(due, shared.time.store_now());
    } else if due <= shared.time.store_now() + COMING && !shared.is_paused(&lane.topic) {
        start(shared, lanes, lane);
    }
}

fn start(shared: &Arc<Shared<impl Delivery, impl Caller>>, lanes: &mut Lanes, lane: Lane) {
    let nudge = Arc::new(Nudge::new());
    let task = lanes.tasks.spawn(lane::run(shared.clone(), lane.clone(), nudge.clone()));
    tracing::debug!(%lane, "Working lane {lane}");
    lanes.names.insert(task.id(), lane.clone());
    lanes.nudges.insert(lane, nudge);
}

/// A lane's task has ended: by itself after idling, or by a panic, after which it starts again.
fn reap(
    shared: &Arc<Shared<impl Delivery, impl Caller>>,
    lanes: &mut Lanes,
    ended: Result<(Id, ()), JoinError>,
) {
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
