//! Converts the store's types into those of answers.

use delayd_wire::{Count, Holder, Rfc3339, Stored, TaskSchedule, Way};

use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Occurrence, TaskId};
use crate::model::zone::Zone;
use crate::store::{Added, AttemptNote, Counts, Durability, LeaseKind, Novelty};

impl From<TaskId> for delayd_wire::TaskId {
    fn from(id: TaskId) -> Self {
        Self(id.0)
    }
}

impl From<delayd_wire::TaskId> for TaskId {
    fn from(id: delayd_wire::TaskId) -> Self {
        Self(id.0)
    }
}

impl From<UnixMillis> for delayd_wire::UnixMillis {
    fn from(moment: UnixMillis) -> Self {
        Self(moment.0)
    }
}

impl From<UnixMillis> for Rfc3339 {
    fn from(moment: UnixMillis) -> Self {
        Self(moment.rfc3339())
    }
}

impl From<LeaseKind> for Holder {
    fn from(kind: LeaseKind) -> Self {
        match kind {
            LeaseKind::Worker => Self::Worker,
            LeaseKind::Consumer => Self::Consumer,
            LeaseKind::Receiver => Self::Receiver,
            LeaseKind::Mover { .. } => Self::Mover,
        }
    }
}

impl From<&Occurrence> for TaskSchedule {
    fn from(occurrence: &Occurrence) -> Self {
        Self {
            name: occurrence.name.to_string(),
            moment_ms: occurrence.moment.into(),
            moment: occurrence.moment.into(),
            missed: occurrence.missed,
        }
    }
}

impl From<AttemptNote> for delayd_wire::Note {
    fn from(note: AttemptNote) -> Self {
        Self {
            attempt: note.attempt,
            started_ms: note.started.into(),
            duration_ms: note.took.as_millis() as u64,
            outcome: note.outcome,
            answer: note.answer,
        }
    }
}

impl From<Counts> for Count {
    fn from(counts: Counts) -> Self {
        let Counts { scheduled, leased, delivered, dead, cancelled, expired, .. } = counts;
        Self { scheduled, leased, delivered, dead, cancelled, expired }
    }
}

/// A due time as text, in the zone that the request named; `None`: UTC.
pub(crate) fn due(due: UnixMillis, zone: Option<&Zone>) -> Rfc3339 {
    zone.map_or_else(|| due.into(), |zone| Rfc3339(zone.rfc3339(due)))
}

/// How a task is delivered.
pub(crate) fn way_of(destination: &Destination) -> Way {
    if destination.is_pull() { Way::Pull } else { Way::Push }
}

/// The service or host that is called; `None` for a pulled task.
pub(crate) fn sn_of(destination: &Destination) -> Option<Destination> {
    (!destination.is_pull()).then(|| destination.clone())
}

/// The last outcome, if there was one.
pub(crate) fn last_outcome(outcome: String) -> Option<String> {
    Some(outcome).filter(|outcome| !outcome.is_empty())
}

/// The answer for a stored task, also as an item of a batch.
/// `zone` is the one in which its due time is shown; `None`: UTC.
pub(crate) fn stored(
    added: Added,
    mode: Way,
    zone: Option<&Zone>,
    durability: Durability,
) -> Stored {
    let (duplicate, state) = match added.novelty {
        Novelty::Duplicate { state } => (true, state),
        Novelty::New | Novelty::Replaced => (false, None),
    };
    Stored {
        task_id: added.id.into(),
        due_ms: added.due.into(),
        due: due(added.due, zone),
        mode,
        durability,
        duplicate,
        state,
        replaced: added.novelty == Novelty::Replaced,
    }
}
