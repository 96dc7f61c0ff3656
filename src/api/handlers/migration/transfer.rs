//! The old store's side of a move: `records` shows tasks or leases them to the mover, `moved`
//! removes them.
//!
//! A mover leases waiting tasks here, has the other store adopt them, and then confirms that here.
//! [`crate::store`] describes the guarantees ("From one store to another").

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract;
use delayd_wire::{AtMost, Ended, Record, Records, StaleTask};

use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{self, within};
use crate::api::wire::shown::{last_outcome, way_of};
use crate::metrics::TaskEnd;
use crate::model::task::{Lane, Options, Receipt, State, StoreId, TaskId, Topic};
use crate::store::{
    Admin, Asker, AttemptNote, Delivery, LeaseKind, MAX_LEASE, Reader, Settle, Settled, Signals,
    Task, TopicEntry, Transition,
};

/// The most ids of a call, and the most bytes of content in its answer. A single task may be
/// longer.
const MAX_IDS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;
/// The shortest lease.
const MIN_LEASE: Duration = Duration::from_secs(1);

type Ids = AtMost<delayd_wire::TaskId, MAX_IDS>;
pub(crate) use delayd_wire::{MovedRequest, RecordsRequest};

fn record(topic: &Topic, task: Task, notes: Vec<AttemptNote>, store: StoreId) -> Record {
    let waits = task.lease.and_then(LeaseKind::returns_to);
    let names_destination = task.options.removed.is_some() && !task.destination.is_pull();
    let destination = names_destination.then(|| task.destination.to_string());
    let key = task.options.key.clone();
    let origin = task.options.origin.or(Some(store));
    let options = Options { key: None, origin, ..task.options };
    Record {
        topic: topic.clone(),
        task_id: task.id.into(),
        state: if waits.is_some() { State::Scheduled } else { task.state },
        mode: way_of(&task.destination).into(),
        created_ms: task.created.into(),
        due_ms: task.due.into(),
        waits_ms: waits.filter(|waits| *waits != task.due).map(Into::into),
        finished_ms: task.finished.map(Into::into),
        attempts: task.attempts,
        last_outcome: last_outcome(task.last_outcome),
        cancelling: task.cancelling,
        key,
        key_set_ms: task.key_set.map(|set| set.max(task.created).into()),
        lent: false,
        options: delayd_wire::object(&options),
        content: task.content,
        destination,
        log: notes.into_iter().map(Into::into).collect(),
        others: Default::default(),
    }
}

/// `POST /delay/task/records`
pub(crate) async fn records(
    extract::State(api): extract::State<Arc<Api>>,
    Json(request): Json<RecordsRequest>,
) -> Result<Success<Records>, Error> {
    let topic = request.topic;
    let mut ids = ids(request.task_ids)?;
    let entry = api.topics.reload(&topic).await?.ok_or_else(Error::no_topic)?.entry;
    let store = api.store.id().await?;
    let receipt = match request.lend {
        Some(lease) => {
            let lease = within(lease.0, "lend", MIN_LEASE..=MAX_LEASE)?;
            let receipt = request.receipt.unwrap_or_else(Receipt::random);
            ids = leased_or_ended(&api, &entry, ids, &receipt, lease).await?;
            Some(receipt)
        }
        None if request.receipt.is_some() => {
            return Err(Error::invalid("receipt: is only allowed together with lend"));
        }
        None => None,
    };
    let reader = if receipt.is_some() { Reader::Worker } else { Reader::Viewer };
    let (mut records, mut bytes) = (Vec::new(), 0);
    let mut ids = ids.into_iter();
    while bytes < MAX_BYTES
        && let Some(id) = ids.next()
    {
        let lane = entry.lane_of(id);
        let Some(task) = api.store.get(reader, &lane, id).await? else { continue };
        let notes = match task.attempts {
            0 => Vec::new(),
            // The answer is useful without them.
            _ => api.store.notes(&lane, id).await.unwrap_or_default(),
        };
        bytes += task.content.len();
        records.push(record(&topic, task, notes, store));
    }
    if receipt.is_some() {
        // A task that was returned and claimed between the two reads belongs to another holder.
        records.retain(|record| record.state != State::Leased);
        records.iter_mut().for_each(|record| record.lent = record.state == State::Scheduled);
    }
    Ok(Success::of(Records {
        receipt: receipt.map(|receipt| receipt.to_string()),
        records,
        rest: ids.map(Into::into).collect(),
    }))
}

fn ids(AtMost(given): Ids) -> Result<Vec<TaskId>, Error> {
    if given.is_empty() {
        return Err(Error::Invalid(format!("task_ids: must hold 1 to {MAX_IDS} ids")));
    }
    fields::ids(given)
}

fn by_lane(entry: &TopicEntry, ids: Vec<TaskId>) -> HashMap<Lane, Vec<TaskId>> {
    let mut lanes: HashMap<Lane, Vec<TaskId>> = HashMap::new();
    for id in ids {
        lanes.entry(entry.lane_of(id)).or_default().push(id);
    }
    lanes
}

/// Leases waiting tasks. Returns, in order, those that are leased now or have ended.
async fn leased_or_ended(
    api: &Api,
    entry: &TopicEntry,
    ids: Vec<TaskId>,
    receipt: &Receipt,
    lease: Duration,
) -> Result<Vec<TaskId>, Error> {
    let mut is_answered: HashMap<TaskId, bool> = HashMap::new();
    for (lane, ids) in by_lane(entry, ids.clone()) {
        let lent = api.store.lend(&lane, ids.clone(), receipt, lease).await?;
        let others: Vec<TaskId> =
            ids.iter().zip(&lent).filter(|(_, is_lent)| !**is_lent).map(|(id, _)| *id).collect();
        is_answered.extend(ids.into_iter().zip(lent));
        if !others.is_empty() {
            let known = api.store.summaries(&lane, others).await?.into_iter().flatten();
            is_answered
                .extend(known.filter(|task| task.state.is_final()).map(|task| (task.id, true)));
        }
    }
    Ok(ids.into_iter().filter(|id| is_answered.get(id).is_some_and(|is| *is)).collect())
}

/// `POST /delay/task/moved`: removes tasks that another store has adopted. May be repeated.
pub(crate) async fn moved(
    extract::State(api): extract::State<Arc<Api>>,
    Json(request): Json<MovedRequest>,
) -> Result<Success<Ended>, Error> {
    let topic = request.topic;
    let receipt = request.receipt;
    let ids = ids(request.task_ids)?;
    let is_back = request.back.unwrap_or_default();
    let entry = api.topics.reload(&topic).await?.ok_or_else(Error::no_topic)?.entry;
    let settle = |id: &TaskId| Settle {
        lane: entry.lane_of(*id),
        id: *id,
        receipt: receipt.clone(),
        transition: if is_back { Transition::Release } else { Transition::Moved },
    };
    let settled = api.store.settle(Asker::Caller, ids.iter().map(settle).collect()).await;
    let (mut gone, mut count, mut stale) = (Vec::new(), 0, Vec::new());
    for (id, settled) in ids.into_iter().zip(settled) {
        match settled? {
            Settled::Stale { state } => stale.push(StaleTask { task_id: id.into(), state }),
            // An earlier call removed it, and its answer was lost.
            Settled::Unknown => count += 1,
            Settled::Cancelled => {
                api.metrics.tasks.ended(TaskEnd::PendingCancel);
                count += 1;
            }
            Settled::Done => {
                if !is_back {
                    api.metrics.tasks.ended(TaskEnd::Moved);
                }
                count += 1;
                gone.push(id);
            }
        }
    }
    if !is_back {
        for (lane, ids) in by_lane(&entry, gone) {
            api.store.discard(&lane, State::Delivered, ids, None).await?;
        }
    }
    Ok(Success::of(Ended { count, stale }))
}
