//! `POST /delay/task/ack`, `nack` and `extend`: calls of a lease's holder.
//!
//! The holder is a consumer that pulled, or a receiver that answered `delay-ack: later`.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use delayd_wire::{AckRequest, ExtendRequest, NackRequest};
use delayd_wire::{Nothing, Returned, Way};

use crate::api::handlers::task::due::{DueTime, Written};
use crate::api::handlers::task::pull::MIN_LEASE;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::api::wire::shown;
use crate::metrics::TaskEnd;
use crate::model::task::{Lane, Receipt, TaskId, Topic};
use crate::outcome;
use crate::store::{
    Admin, Asker, Delivery, MAX_LEASE, Moment, Reader, Settle, Settled, Transition,
};
use axum::extract::State;

/// `POST /delay/task/ack`
pub(crate) async fn ack(
    State(api): State<Arc<Api>>,
    Json(request): Json<AckRequest>,
) -> Result<Success<Nothing>, Error> {
    let lease =
        NamedLease { topic: request.topic, id: request.task_id.into(), receipt: request.receipt };
    let end = |lane| lease.end(&api, lane, Transition::Delivered { outcome: "acked".into() });
    api.in_lane(&lease.topic, lease.id, end).await
}

/// `POST /delay/task/nack`
pub(crate) async fn nack(
    State(api): State<Arc<Api>>,
    Json(request): Json<NackRequest>,
) -> Result<Success<Returned>, Error> {
    let delay = request
        .delay
        .map(|delay| within(delay, "delay", Duration::ZERO..=api.bounds().max_delay))
        .transpose()?;
    let written = Written::of(&request.at, &request.zone);
    let at = if written.is_given() {
        api.checked(None, |rules| written.read(rules.reach()))?
    } else {
        None
    };
    let due = match (delay, at) {
        (delay, None) => delay.map(|delay| DueTime { moment: Moment::After(delay), zone: None }),
        (None, at) => at,
        _ => return Err(Error::invalid("delay and at: give at most one of the two")),
    };
    let lease =
        NamedLease { topic: request.topic, id: request.task_id.into(), receipt: request.receipt };
    api.in_lane(&lease.topic, lease.id, |lane| retry(&api, &lease, lane, due.as_ref())).await
}

async fn retry(
    api: &Api,
    lease: &NamedLease,
    lane: Lane,
    due: Option<&DueTime>,
) -> Result<Success<Returned>, Error> {
    // The number of attempts decides between a retry and a dead letter. If another claim comes
    // between this read and the settle, the receipt is stale, and the settle is refused.
    let task = api.store.get(Reader::Worker, &lane, lease.id).await?.ok_or_else(Error::no_task)?;
    let topic = api.topics.policy_of(&lane.topic);
    let policy = api.params.policy.for_topic(&topic).for_task(&task.options);
    let moment = due.map(|due| due.moment);
    let transition = outcome::nacked(&policy, task.attempts, moment, rand::random());
    let is_again = matches!(transition, Transition::Retry { .. });
    let settled = lease.settle(api, lane, transition).await?;
    answer(settled)?;
    let due = due.filter(|_| is_again && settled == Settled::Done);
    Ok(Success::of(match due {
        Some(DueTime { moment: Moment::At(at), zone }) => {
            // A past moment means now.
            let due = (*at).max(api.clock.now());
            Returned { due_ms: Some(due.into()), due: Some(shown::due(due, zone.as_ref())) }
        }
        _ => Returned::default(),
    }))
}

/// `POST /delay/task/extend`
pub(crate) async fn extend(
    State(api): State<Arc<Api>>,
    Json(request): Json<ExtendRequest>,
) -> Result<Success<Nothing>, Error> {
    let span = within(request.lease.0, "lease", MIN_LEASE..=MAX_LEASE)?;
    let lease =
        NamedLease { topic: request.topic, id: request.task_id.into(), receipt: request.receipt };
    let NamedLease { topic, id, receipt } = &lease;
    let store = &api.store;
    let extend = |lane: Lane| async move {
        answer(store.extend(Asker::Caller, &lane, *id, receipt, span).await?)
    };
    api.in_lane(topic, *id, extend).await
}

/// A lease, as its holder names it.
struct NamedLease {
    topic: Topic,
    id: TaskId,
    receipt: Receipt,
}

impl NamedLease {
    async fn end(
        &self,
        api: &Api,
        lane: Lane,
        transition: Transition,
    ) -> Result<Success<Nothing>, Error> {
        answer(self.settle(api, lane, transition).await?)
    }

    async fn settle(
        &self,
        api: &Api,
        lane: Lane,
        transition: Transition,
    ) -> Result<Settled, Error> {
        let end = match &transition {
            Transition::Delivered { .. } => Some(TaskEnd::Ack),
            Transition::Dead { .. } => Some(TaskEnd::AttemptsUsedUp),
            _ => None,
        };
        let settle = Settle { lane, id: self.id, receipt: self.receipt.clone(), transition };
        let settled = api.store.settle(Asker::Caller, vec![settle]).await;
        let settled = settled.into_iter().next().expect("a store answers every settle")?;
        match settled {
            Settled::Done => end.into_iter().for_each(|end| api.metrics.tasks.ended(end)),
            Settled::Cancelled => api.metrics.tasks.ended(TaskEnd::PendingCancel),
            Settled::Stale { .. } => api.metrics.tasks.stale_settle(Way::Pull),
            Settled::Unknown => {}
        }
        Ok(settled)
    }
}

fn answer(settled: Settled) -> Result<Success<Nothing>, Error> {
    match settled {
        Settled::Done | Settled::Cancelled => Ok(Success::of(Nothing {})),
        Settled::Stale { state } => Err(Error::Stale(state)),
        Settled::Unknown => Err(Error::no_task()),
    }
}
