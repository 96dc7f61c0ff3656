//! Which lanes have work coming: one task for each of those, and none for the others.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{FusedFuture, OptionFuture};
use tokio::sync::broadcast::error::RecvError;
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
    may_claim: bool,
    /// Whether the last look did.
    look_failed: bool,
}

/// Runs until the instance stops and all lanes' tasks have ended.
pub(super) async fn run(shared: Arc<Shared<impl Store, impl Caller>>) {
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

/// The safety look: the registry, what is held by hand, then all lanes together.
async fn look(shared: &Shared<impl Store, impl Caller>) -> Seen {
    // The registry, or what is held, may be on a server that is away while lanes are not: then those that are known are looked at. But
    // nothing is claimed before it was known once what is held, and which store this is: calls name it.
    let refreshed = shared.parts.topics.refresh().await.err().map(|error| error.to_string());
    let all: Vec<Lane> = shared
        .parts
        .topics
        .known()
        .iter()
        // Nothing is coming of a topic that is paused; the look after its end finds what is.
        .filter(|known| known.paused.is_none())
        .flat_map(|known| known.entry.lanes())
        .collect();
    let asked = shared.parts.limits.ask_holds();
    let read = shared.parts.store.holds().await.map(|holds| {
        let released = holds.released.into_iter().collect();
        shared.parts.limits.set_holds(asked, holds.held.into_iter().collect(), released);
    });
    let identified = shared.parts.store.id().await.map(|id| shared.saw_store(id));
    let may_claim = read.is_ok() && identified.is_ok();
    let held = read.and(identified).err().map(|error| error.to_string());
    let asked = shared.parts.clock.now();
    let mut due = Vec::new();
    let looked = shared.parts.store.next_due(all.clone()).await.map(|next| {
        shared.time.saw(next.now, asked);
        due.extend(all.into_iter().zip(next.lanes).filter_map(|(lane, due)| Some((lane, due?))));
    });
    let failed = refreshed.or(held).or(looked.err().map(|error| error.to_string()));
    Seen { may_claim, due, failed }
}

fn take_in(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, seen: Seen) {
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

fn take_hint(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, hint: Hint) {
    // Else the next look finds the task, once it is known what is held and which store this is.
    if lanes.may_claim && !hint.is_pull {
        tell(shared, lanes, hint.lane, hint.due);
    }
}

/// Wakes the lane's task, or starts it if its work is near.
fn tell(shared: &Arc<Shared<impl Store, impl Caller>>, lanes: &mut Lanes, lane: Lane, due: UnixMillis) {
    if let Some(nudge) = lanes.nudges.get(&lane) {
        nudge.at(due, shared.time.store_now());
    } else if due <= shared.time.store_now() + COMING && !shared.is_paused(&lane.topic) {
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
