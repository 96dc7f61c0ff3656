//! Ending a lease: by its holder's word (`ack`, `nack`), and on its behalf; and making it longer (`extend`).
//!
//! The holder is a consumer who pulled, or a receiver who answered `delay-ack: later`.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::Nothing;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::handlers::task::pull::MIN_LEASE;
use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{Id, Name, within};
use crate::api::wire::json::{self, required};
use crate::api::wire::schema::{ReceiptText, TopicName};
use crate::outcome;
use crate::span::{self, Span};
use crate::store::{Admin, Delivery, MAX_LEASE, Settle, Settled, Transition};
use crate::task::{Lane, Receipt, TaskId, Topic};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AckRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// The task.
    #[schema(value_type = Id)]
    task_id: Option<Id>,
    /// The receipt of its lease.
    #[schema(value_type = ReceiptText)]
    receipt: Option<Name<Receipt>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NackRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// The task.
    #[schema(value_type = Id)]
    task_id: Option<Id>,
    /// The receipt of its lease.
    #[schema(value_type = ReceiptText)]
    receipt: Option<Name<Receipt>>,
    /// Due again after so long; without it, after its backoff.
    delay: Option<Span>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// The task.
    #[schema(value_type = Id)]
    task_id: Option<Id>,
    /// The receipt of its lease, which stays the same.
    #[schema(value_type = ReceiptText)]
    receipt: Option<Name<Receipt>>,
    /// So long from now: 1 s to 12 h.
    #[serde(default, deserialize_with = "span::lease_if_given")]
    #[schema(value_type = Span)]
    lease: Option<Span>,
}

/// `POST /delay/task/ack`
pub(crate) async fn ack(api: Arc<Api>, Routed { request, .. }: Routed) -> Result<Success<Nothing>, Error> {
    let request: AckRequest = json::read(request.body())?;
    let lease = Lease::read(request.topic, request.task_id, request.receipt)?;
    let end = |lane| lease.end(&api, lane, Transition::Delivered { outcome: "acked".into() });
    api.in_lane(&lease.topic, lease.id, end).await
}

/// `POST /delay/task/nack`
pub(crate) async fn nack(api: Arc<Api>, Routed { request, .. }: Routed) -> Result<Success<Nothing>, Error> {
    let request: NackRequest = json::read(request.body())?;
    let delay =
        request.delay.map(|delay| within(delay, "delay", Duration::ZERO..=api.bounds().max_delay)).transpose()?;
    let lease = Lease::read(request.topic, request.task_id, request.receipt)?;
    api.in_lane(&lease.topic, lease.id, |lane| retry(&api, &lease, lane, delay)).await
}

async fn retry(api: &Api, lease: &Lease, lane: Lane, delay: Option<Duration>) -> Result<Success<Nothing>, Error> {
    // The attempts decide between a retry and death. Should another claim come between this look and the settle,
    // the receipt is stale, and nothing is decided.
    let task = api.store.get(&lane, lease.id).await?.ok_or_else(Error::no_task)?;
    let topic = api.topics.policy_of(&lane.topic);
    let policy = api.params.policy.for_topic(&topic).for_task(&task.options);
    let transition = outcome::nacked(&policy, task.attempts, delay, rand::random());
    lease.end(api, lane, transition).await
}

/// `POST /delay/task/extend`
pub(crate) async fn extend(api: Arc<Api>, Routed { request, .. }: Routed) -> Result<Success<Nothing>, Error> {
    let request: ExtendRequest = json::read(request.body())?;
    let span = within(required(request.lease, "lease")?, "lease", MIN_LEASE..=MAX_LEASE)?;
    let lease = Lease::read(request.topic, request.task_id, request.receipt)?;
    let Lease { topic, id, receipt } = &lease;
    let store = &api.store;
    let extend = |lane: Lane| async move { answer(store.extend_confirmed(&lane, *id, receipt, span).await?) };
    api.in_lane(topic, *id, extend).await
}

/// A lease, named by who says to hold it.
struct Lease {
    topic: Topic,
    id: TaskId,
    receipt: Receipt,
}

impl Lease {
    fn read(topic: Option<Name<Topic>>, id: Option<Id>, receipt: Option<Name<Receipt>>) -> Result<Self, Error> {
        let Name(topic) = required(topic, "topic")?;
        let id = required(Id::given(id), "task_id")?;
        let Name(receipt) = required(receipt, "receipt")?;
        Ok(Self { topic, id, receipt })
    }

    async fn end(&self, api: &Api, lane: Lane, transition: Transition) -> Result<Success<Nothing>, Error> {
        let settle = Settle { lane, id: self.id, receipt: self.receipt.clone(), transition };
        let settled = api.store.settle_confirmed(vec![settle]).await;
        answer(settled.into_iter().next().expect("a store answers every settle")?)
    }
}

fn answer(settled: Settled) -> Result<Success<Nothing>, Error> {
    match settled {
        Settled::Done => Ok(Success::of(Nothing {})),
        Settled::Stale { state } => Err(Error::Stale(state)),
        Settled::Unknown => Err(Error::no_task()),
    }
}
