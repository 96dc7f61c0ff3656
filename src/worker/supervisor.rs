//! Runs one tokio task per lane that has work coming, and reads once a second what every instance
//! has to know: the registry, the holds, and the next due moments of lanes.

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
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{Delivery, Hint, Look, Looked, NextDue};

/// The running lanes.
#[derive(Debug, Default)]
struct Lanes {
    nudges: HashMap<Lane, Arc<Nudge>>,
    tasks: JoinSet<()>,
    names: HashMap<Id, Lane>,
    may_claim: bool,
    /// Whether a hint came before claims were allowed. A running poll may not have seen its task.
    missed_hint: bool,
    /// Whether the last poll failed.
    poll_failed: bool,
}

/// Runs until the instance stops and all lanes' tasks have ended.
pub(super) async fn run(shared: Arc<Shared<impl Delivery, impl Caller>>) {
    let mut hints = shared.parts.store.hints();
    let mut polls = tokio::time::interval(shared.params.poll_every);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lanes = Lanes::default();
    // The poll runs beside the hints: they must not wait for a slow server.
    let mut polling = pin!(OptionFuture::from(None));
    while !shared.stopping.is_cancelled() {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => {}
            Some(seen) = polling.as_mut() => {
                polling.set(OptionFuture::from(None));
                take_in(&shared, &mut lanes, seen);
                if lanes.may_claim && std::mem::take(&mut lanes.missed_hint) {
                    polls.reset_immediately();
                }
            }
            _ = polls.tick(), if polling.is_terminated() => {
                polling.set(OptionFuture::from(Some(poll(&shared).fuse())));
            }
            Some(ended) = lanes.tasks.join_next_with_id() => reap(&shared, &mut lanes, ended),
            hint = hints.recv() => match hint {
                Ok(hint) => take_hint(&shared, &mut lanes, hint),
                // Some hints are lost. One poll finds their tasks.
                Err(RecvError::Lagged(_)) => polls.reset_immediately(),
                Err(RecvError::Closed) => return,
            },
        }
    }
    while lanes.tasks.join_next().await.is_some() {}
}

/// The result of a poll.
struct Seen {
    may_claim: bool,
    /// The next due moments of the lanes that have one.
    due: Vec<(Lane, UnixMillis)>,
    failed: Option<String>,
}

/// Reads the registry if it has changed, the holds, and the next due moments of all lanes, in as
/// few requests as the store can. An instance without workers reads no lanes. It needs the rest,
/// because callers add tasks through it and consumers pull from it.
async fn poll(shared: &Shared<impl Delivery, impl Caller>) -> Seen {
    let Shared { parts, .. } = shared;
    let mut asked_lanes = lanes(shared);
    let awaited = parts.topics.awaited().lanes(|topic| {
        // A paused topic hands out nothing. The poll after the pause finds what is due.
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
    // The server of the registry or of the holds may be away while others answer. Then the known
    // lanes are worked. But nothing is claimed until the holds and the store's id were read once:
    // each call names the store.
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
    // The lanes of topics that this poll has found.
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

/// The lanes to read: those of topics that are not paused. None on an instance without workers.
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
        None if lanes.poll_failed => tracing::info!("All topics can be read again"),
        Some(error) if !lanes.poll_failed => {
            tracing::warn!(error, "Could not read all topics; trying again every second");
        }
        _ => {}
    }
    lanes.poll_failed = seen.failed.is_some();
}

fn take_hint(shared: &Arc<Shared<impl Delivery, impl Caller>>, lanes: &mut Lanes, hint: Hint) {
    if !shared.params.enabled || hint.is_pull {
        return;
    }
    match lanes.may_claim {
        true => tell(shared, lanes, hint.lane, hint.due),
        // The poll after the holds and the store's id are known finds the task.
        false => lanes.missed_hint = true,
    }
}

/// Wakes the lane, or starts it if something is due soon.
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

/// Removes a lane whose tokio task has ended. It is started again after a panic, and if work has
/// come meanwhile.
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
