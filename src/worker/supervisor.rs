//! Runs one tokio task per lane that has work coming, as the poll of each second, hints, and the
//! messages of other instances say.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{FusedFuture, OptionFuture};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::lane::{self, COMING, Nudge};
use super::poll::{self, DueLane, Polled};
use super::shared::Shared;
use super::time::JumpWatch;
use crate::callback::CallClient;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{Delivery, Hint, Instance, Look, Message};

/// Other instances hear of work that begins within this time. The poll of the lane's owner finds
/// later work before it is due: it comes each second, and may take a second.
const NEAR: Duration = Duration::from_secs(2);

/// The shortest interval between two polls, except after a change of the members.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(200);

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
pub(super) async fn run(shared: Arc<Shared<impl Delivery, impl CallClient>>) {
    let mut hints = shared.parts.store.hints();
    let mut messages = shared.parts.store.messages();
    let mut polls = Polls::new(shared.params.poll_every);
    let mut lanes = Lanes::default();
    let mut jumps = JumpWatch::new(shared.parts.clock.clone());
    // The poll runs beside the hints: they must not wait for a slow server.
    let mut polling = pin!(OptionFuture::from(None));
    while !shared.stopping.is_cancelled() {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => {}
            Some(polled) = polling.as_mut() => {
                let polled: Polled = polled;
                polling.set(OptionFuture::from(None));
                // The others hear at once that this instance divides the lanes with them.
                let joins = polled.may_claim && !lanes.may_claim;
                // An instance that has gone may have owned lanes that this one owns now.
                let members_changed = take_in(&shared, &mut lanes, polled);
                let missed_hint = lanes.may_claim && std::mem::take(&mut lanes.missed_hint);
                if members_changed || joins || missed_hint {
                    polls.ticks.reset_immediately();
                }
            }
            _ = polls.ticks.tick(), if polling.is_terminated() => {
                polls.last = Instant::now();
                if jumps.has_jumped() {
                    shared.parts.metrics.worker.clock_jumps.inc();
                }
                polling.set(OptionFuture::from(Some(poll::poll(&shared).fuse())));
            }
            Some(ended) = lanes.tasks.join_next_with_id() => reap(&shared, &mut lanes, ended),
            hint = hints.recv() => match hint {
                Ok(hint) => take_hint(&shared, &mut lanes, hint),
                // Some hints are lost. One poll finds their tasks.
                Err(RecvError::Lagged(_)) => polls.soon(),
                Err(RecvError::Closed) => return,
            },
            message = next(&mut messages) => match message {
                Ok(message) => take_message(&shared, &mut lanes, &mut polls, message),
                // Some messages are lost, perhaps one of an instance that leaves.
                Err(RecvError::Lagged(_)) => polls.soon(),
                Err(RecvError::Closed) => messages = None,
            },
        }
    }
    let ended = async { while lanes.tasks.join_next().await.is_some() {} };
    match messages {
        Some(_) => drop(tokio::join!(leave(&shared), ended)),
        None => ended.await,
    }
}

/// When the polls begin.
struct Polls {
    every: Duration,
    ticks: Interval,
    last: Instant,
}

impl Polls {
    fn new(every: Duration) -> Self {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { every, ticks, last: Instant::now() }
    }

    /// The next poll begins now, or [`SHORTEST_INTERVAL`] after the last one.
    fn soon(&mut self) {
        let earliest = self.last + SHORTEST_INTERVAL.min(self.every);
        self.ticks.reset_at(earliest.max(Instant::now()));
    }
}

/// The next message of another instance. Never returns if there are no others.
async fn next(messages: &mut Option<broadcast::Receiver<Message>>) -> Result<Message, RecvError> {
    match messages {
        Some(messages) => messages.recv().await,
        None => std::future::pending().await,
    }
}

/// Tells the other instances that this one stops working, so that its lanes have new owners at
/// once. If the store does not answer, they find it silent within two seconds.
async fn leave(shared: &Shared<impl Delivery, impl CallClient>) {
    let parts = &shared.parts;
    if shared.params.enabled && shared.ownership.is_shared() {
        let own = parts.instances.heartbeat(&parts.limits, parts.clock.now());
        let heartbeat = Some(Instance { has_workers: false, ..own });
        let seen = parts.topics.seen().revision;
        // The others read the heartbeat, so it must be stored before they hear of it.
        if parts.store.look(Look { seen, heartbeat, ..Look::default() }).await.instances.is_ok() {
            parts.store.tell_others(Message::Leaves);
        }
    }
}

/// Returns whether other instances divide the lanes than before.
fn take_in(
    shared: &Arc<Shared<impl Delivery, impl CallClient>>,
    lanes: &mut Lanes,
    polled: Polled,
) -> bool {
    lanes.may_claim |= polled.may_claim;
    for DueLane { lane, due, at } in polled.due {
        if lanes.may_claim && shared.ownership.note_due(&lane, due, at) {
            tell(shared, lanes, lane, due, false);
        }
    }
    match &polled.error {
        None if lanes.poll_failed => tracing::info!("All topics can be read again"),
        Some(error) if !lanes.poll_failed => {
            tracing::warn!(error, "Could not read all topics; trying again every second");
        }
        _ => {}
    }
    lanes.poll_failed = polled.error.is_some();
    polled.members_changed
}

/// New work through this instance. Its owner hears of it, if that is another instance.
fn take_hint(shared: &Arc<Shared<impl Delivery, impl CallClient>>, lanes: &mut Lanes, hint: Hint) {
    let Hint { lane, due, is_pull } = hint;
    if is_pull {
        return;
    }
    let is_near = || due <= shared.time.store_now() + NEAR;
    if shared.ownership.concerns_others(&lane) && is_near() {
        shared.parts.store.tell_others(Message::Due { lane: lane.clone(), due });
    }
    tell_open(shared, lanes, lane, due);
}

fn take_message(
    shared: &Arc<Shared<impl Delivery, impl CallClient>>,
    lanes: &mut Lanes,
    polls: &mut Polls,
    message: Message,
) {
    match message {
        // The poll reads the registry first. Without it, the limits of the topic are unknown.
        Message::Due { lane, .. } if is_unknown(shared, &lane) => polls.soon(),
        Message::Due { lane, due } => tell_open(shared, lanes, lane, due),
        Message::Leaves => polls.soon(),
    }
}

/// Whether this instance does not know the lane's topic yet.
fn is_unknown(shared: &Shared<impl Delivery, impl CallClient>, lane: &Lane) -> bool {
    shared.parts.topics.known_entry(&lane.topic).is_none()
}

/// Wakes or starts the lane, if it is open for this instance.
fn tell_open(
    shared: &Arc<Shared<impl Delivery, impl CallClient>>,
    lanes: &mut Lanes,
    lane: Lane,
    due: UnixMillis,
) {
    if !shared.params.enabled || !shared.ownership.is_open(&lane) {
        return;
    }
    match lanes.may_claim {
        true => tell(shared, lanes, lane, due, true),
        // The poll after the holds and the store's id are known finds the task.
        false => lanes.missed_hint = true,
    }
}

/// Wakes the lane, or starts it if something is due soon.
fn tell(
    shared: &Arc<Shared<impl Delivery, impl CallClient>>,
    lanes: &mut Lanes,
    lane: Lane,
    due: UnixMillis,
    is_hint: bool,
) {
    if let Some(nudge) = lanes.nudges.get(&lane) {
        nudge.at(due, is_hint, shared.time.store_now());
    } else if due <= shared.time.store_now() + COMING && !shared.is_paused(&lane.topic) {
        start(shared, lanes, lane);
    }
}

fn start(shared: &Arc<Shared<impl Delivery, impl CallClient>>, lanes: &mut Lanes, lane: Lane) {
    let nudge = Arc::new(Nudge::new());
    let task = lanes.tasks.spawn(lane::run(shared.clone(), lane.clone(), nudge.clone()));
    tracing::debug!(%lane, "Working lane {lane}");
    lanes.names.insert(task.id(), lane.clone());
    lanes.nudges.insert(lane, nudge);
}

/// Removes a lane whose tokio task has ended. It is started again after a panic, and if work has
/// come meanwhile.
fn reap(
    shared: &Arc<Shared<impl Delivery, impl CallClient>>,
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
