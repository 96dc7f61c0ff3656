//! `POST /delay/task/pull`: due tasks for a consumer, or one task's content.
//!
//! | request | the task is | until |
//! |---|---|---|
//! | with `lease` | leased for this time | the consumer's `ack` or `nack`, or the lease expires |
//! | without | leased while the answer is written | the answer is written: then it is delivered |
//! | with `task_id` or a key | only read | |
//!
//! If nothing is due, a pull with `wait` joins the topic's wait queue. Without `wait` it is
//! answered at once.
//!
//! # Invariants
//!
//! - [`PulledTasks`] holds claimed tasks until their answer has been written.
//! - A pull whose token a reload removes gets no task: it ends with the refusal.
//! - The claim runs in a task of its own. If the caller disconnects, the handler is dropped, and
//!   with it would go the only record of which tasks were claimed.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use delayd_wire::{Pulled, PulledMany, SuccessAnswer, Way};
use http::{HeaderValue, header};
use tokio::time::Instant;

use crate::api::auth::Caller;
use crate::api::concurrency_limit::Slot;
use crate::api::handlers::task::named::{NamedTask, act_on};
use crate::api::long_poll::claim::{lanes_in_turn, take};
use crate::api::long_poll::delivery::{PullParams, PulledTasks};
use crate::api::long_poll::dispatcher;
use crate::api::middleware::call::Json;
use crate::api::middleware::deadline::Deadline;
use crate::api::state::Api;
use crate::api::transport::delivery_confirmation::{Confirmation, watched};
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::within;
use crate::model::task::{Lane, TaskId, Topic};
use crate::store::{Admin, MAX_LEASE, Reader, TaskName};

pub(crate) const MIN_LEASE: Duration = Duration::from_secs(1);
const MAX_COUNT: u32 = 256;
const MAX_WAIT: Duration = Duration::from_secs(30);

pub(crate) use delayd_wire::PullRequest as Request;

/// `POST /delay/task/pull`
pub(crate) async fn pull(
    State(api): State<Arc<Api>>,
    caller: Caller,
    slot: Slot,
    deadline: Deadline,
    Json(request): Json<Request>,
) -> Result<Response, Error> {
    let topic = request.topic;
    let lease =
        request.lease.map(|lease| within(lease.0, "lease", MIN_LEASE..=MAX_LEASE)).transpose()?;
    let count = request.count.map(|count| count.whole("count", 1..=MAX_COUNT)).transpose()?;
    let wait =
        request.wait.map(|wait| within(wait, "wait", Duration::ZERO..=MAX_WAIT)).transpose()?;
    let Request { task_id, key, idempotency_key, .. } = request;
    let named = NamedTask { task_id, key, idempotency_key };
    if let Some(field) = named.field() {
        if lease.is_some() || count.is_some() || wait.is_some() {
            return Err(Error::invalid(format!(
                "{field}: only reads that task, so lease, count and wait are not allowed with it"
            )));
        }
        let _place = api.place(&api.gets, &caller).await?;
        return read(&api, &topic, &named.read()?).await.map(IntoResponse::into_response);
    }
    api.check_accepting()?;
    let params = PullParams { slots: count.unwrap_or(1) as usize, lease };
    let came = Instant::now();
    let taking = async {
        match wait.filter(|wait| !wait.is_zero()) {
            Some(wait) => {
                slot.free();
                deadline.put_off(wait);
                let _place = api.waits.place(&caller).await?;
                let taken = dispatcher::wait(&api.pulls, &topic, params, wait).await?;
                Ok(taken.unwrap_or_else(|| api.pulls.nothing(params)))
            }
            None => take_now(&api, &topic, params, slot).await,
        }
    };
    let taken = tokio::select! {
        // If a reload has removed the token, the tasks return to the store.
        biased;
        error = api.tokens.refusal(&caller, Some(&topic)) => Err(error),
        taken = taking => taken,
    }?;
    observe_lateness(&api, &topic, &taken, came);
    answer(taken, count.is_some())
}

/// Claims what is due now.
async fn take_now(
    api: &Arc<Api>,
    topic: &Topic,
    params: PullParams,
    slot: Slot,
) -> Result<PulledTasks, Error> {
    let Some(known) = api.topics.find(topic).await? else { return Ok(api.pulls.nothing(params)) };
    let taking = {
        let pulls = api.pulls.clone();
        async move {
            // The claim keeps the slot, or callers that disconnect repeatedly could pile up claims.
            let _slot = slot;
            let lanes = lanes_in_turn(&pulls, &known);
            take(&pulls, &known, lanes, params).await
        }
    };
    api.pending.spawn(taking).await.map_err(|_| Error::Internal)?
}

/// Observes how late the tasks are that are handed out for the first time.
fn observe_lateness(api: &Api, topic: &Topic, taken: &PulledTasks, came: Instant) {
    if taken.first.is_empty() {
        return;
    }
    let metrics = &api.metrics.lateness;
    let (delays, own) = (metrics.delays.of(topic), api.topics.policy_of(topic).lateness_objective);
    for first in &taken.first {
        api.metrics.schedules.missed(first.missed);
        metrics.observe(Way::Pull, &first.lateness(came, &delays), own);
    }
}

/// One task's content, in any state.
async fn read(api: &Api, topic: &Topic, name: &TaskName) -> Result<Success<Pulled>, Error> {
    let store = &api.store;
    let find = |lane: Lane, id: TaskId| async move {
        store.get(Reader::Viewer, &lane, id).await?.ok_or_else(Error::no_task)
    };
    let task = act_on(api, topic, name, find).await?;
    Ok(Success::of(Pulled {
        schedule: task.options.schedule.as_deref().map(Into::into),
        content_removed: task.options.removed.is_some(),
        content: Some(task.content).filter(|_| task.options.removed.is_none()),
        task_id: Some(task.id.into()),
        attempt: Some(task.attempts),
        receipt: None,
    }))
}

/// The answer. It settles the leases when it is written or dropped.
fn answer(taken: PulledTasks, is_list: bool) -> Result<Response, Error> {
    let PulledTasks { tasks, held, deadline, .. } = taken;
    let bytes = match is_list {
        true => serde_json::to_vec(&SuccessAnswer::of(PulledMany { tasks })),
        false => {
            serde_json::to_vec(&SuccessAnswer::of(tasks.into_iter().next().unwrap_or_default()))
        }
    };
    let bytes = bytes.map_err(|_| Error::Internal)?;
    let body = watched(bytes.into(), deadline, move |confirmation| match confirmation {
        Confirmation::Written => held.written(),
        Confirmation::NotWritten => drop(held),
    });
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(([json], body).into_response())
}
