//! The poll of each second: reads what this instance has to know, in as few requests as the store
//! can.

use std::collections::HashSet;

use tokio::time::Instant;

use super::delays::SLOW;
use super::shared::Shared;
use crate::callback::CallClient;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{Delivery, Look, Looked, NextDue, Result};

/// What a poll found.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// Whether the holds and the store's id were read. Calls name the store.
    pub(super) may_claim: bool,
    /// The lanes that have a next due moment.
    pub(super) due: Vec<DueLane>,
    /// Whether other instances work now than before.
    pub(super) members_changed: bool,
    /// The first error, if any.
    pub(super) error: Option<String>,
}

/// The next due moment of a lane.
#[derive(Debug)]
pub(super) struct DueLane {
    pub(super) lane: Lane,
    pub(super) due: UnixMillis,
    /// The store's now in the answer.
    pub(super) at: UnixMillis,
}

impl Polled {
    /// The value of a part, or `None` after an error. Parts fail by themselves: the server of the
    /// registry or of the holds may be away while others answer, and then known lanes are worked.
    fn part<T>(&mut self, part: Result<T>) -> Option<T> {
        match part {
            Ok(value) => Some(value),
            Err(error) => {
                self.error.get_or_insert_with(|| error.to_string());
                None
            }
        }
    }

    fn add(&mut self, lanes: Vec<Lane>, next: NextDue) {
        let NextDue { now: at, lanes: dues } = next;
        let found = lanes.into_iter().zip(dues);
        self.due.extend(found.filter_map(|(lane, due)| Some(DueLane { lane, due: due?, at })));
    }
}

/// Reads the registry if it has changed, the holds, the store's id, and the next due moments of the
/// lanes that this instance looks at now. Sends its heartbeat, and reads those of the others.
///
/// An instance without workers reads no lanes. It needs the rest, because callers add tasks through
/// it and consumers pull from it.
pub(super) async fn poll(shared: &Shared<impl Delivery, impl CallClient>) -> Polled {
    let Shared { parts, .. } = shared;
    let mut polled = Polled::default();
    let lanes = lanes_of_workers(shared);
    let known: HashSet<Lane> = lanes.iter().cloned().collect();
    // Read once: another second at the end would skip turns.
    let looked_at = shared.time.store_now();
    let lanes = shared.ownership.to_look_at(lanes, looked_at);
    let awaited = parts.topics.awaited().lanes(|topic| {
        // A paused topic hands out nothing. The poll after the pause finds what is due.
        parts.topics.known_entry(topic).filter(|known| known.paused.is_none())
    });
    let planners: Vec<Lane> =
        lanes.iter().filter(|lane| parts.topics.may_have_schedules(&lane.topic)).cloned().collect();
    let (began, asked) = (Instant::now(), parts.clock.now());
    let (seen, asked_holds) = (parts.topics.seen(), parts.limits.ask_holds());
    let look = Look {
        seen: seen.revision,
        workers: lanes.clone(),
        consumers: awaited.clone(),
        planners: planners.clone(),
        heartbeat: Some(shared.ownership.announce(parts.instances.heartbeat(&parts.limits, asked))),
    };
    let looked = parts.store.look(look).await;
    let Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances } = looked;
    let living = polled.part(instances);
    polled.members_changed = shared.ownership.update_members(living.as_deref(), next.is_ok());
    let mut beat = None;
    if let Some(living) = living {
        let own = living.iter().find(|one| one.id == parts.instances.id());
        beat = own.map(|own| own.seen);
        for sn in parts.instances.take_in(living) {
            parts.limits.probe(&sn);
            tracing::info!(%sn, "Service {sn} is probed by hand");
        }
    }
    if let Some(Some(NextDue { now, lanes: looks })) = polled.part(plans) {
        let looked = planners.into_iter().zip(looks);
        let is_due = |look: Option<UnixMillis>| look.is_some_and(|look| look <= now);
        let due = looked.filter(|(_, look)| is_due(*look)).map(|(lane, _)| lane);
        parts.topics.due_lanes().add(due);
    }
    if let Some(pulls) = pulls.transpose() {
        parts.topics.awaited().tell(began, &awaited, pulls, &unknown);
    }
    // Without lanes, only the registry tells whether the store answers.
    let mut answers =
        next.is_ok() && unanswered.is_empty() && (!lanes.is_empty() || registry.is_ok());
    if let Some(Some((revision, entries))) = polled.part(registry) {
        parts.topics.take_in(seen, revision, &entries);
    }
    let holds = polled.part(holds).map(|holds| {
        let released = holds.released.into_iter().collect();
        parts.limits.set_holds(asked_holds, holds.held.into_iter().collect(), released);
    });
    let id = polled.part(parts.store.id().await).map(|id| {
        shared.set_store_id(id);
        parts.tracer.set_store(id);
    });
    answers &= id.is_some();
    polled.may_claim = holds.is_some() && id.is_some();
    if polled.may_claim {
        shared.ownership.may_claim();
    }
    match &next {
        Ok(_) => shared.ownership.looked(looked_at, unanswered),
        Err(_) => shared.ownership.look_failed(),
    }
    match polled.part(next) {
        Some(Some(next)) => {
            shared.time.saw(next.now, asked);
            polled.add(lanes, next);
        }
        // Without lanes, only the heartbeat tells the store's time.
        Some(None) => beat.into_iter().for_each(|now| shared.time.saw(now, asked)),
        None => {}
    }
    // The lanes of topics that this poll has found.
    let is_new = |lane: &Lane| !known.contains(lane) && shared.ownership.is_open(lane);
    let new: Vec<Lane> = lanes_of_workers(shared).into_iter().filter(is_new).collect();
    if !new.is_empty() {
        match polled.part(parts.store.next_due(new.clone()).await) {
            Some(next) => {
                shared.time.saw(next.now, asked);
                polled.add(new, next);
            }
            None => answers = false,
        }
    }
    note_delays(shared, asked, began, answers);
    polled
}

/// Notes the pauses of topics, and whether the store answered all that the poll asked.
fn note_delays(
    shared: &Shared<impl Delivery, impl CallClient>,
    asked: UnixMillis,
    began: Instant,
    answers: bool,
) {
    let delays = &shared.parts.metrics.lateness.delays;
    let (asked, now) = (shared.time.at(asked), shared.time.store_now());
    delays.begins(asked);
    if began.elapsed() >= SLOW || !answers {
        delays.saw_store(asked, false);
    }
    if answers {
        delays.saw_store(now, true);
    }
    let known = shared.parts.topics.known();
    delays.saw_pauses(now, known.iter().map(|known| (&known.entry.topic, known.paused)));
}

/// The lanes of topics that are not paused. None on an instance without workers.
fn lanes_of_workers(shared: &Shared<impl Delivery, impl CallClient>) -> Vec<Lane> {
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
