//! Consuming: due tasks for whoever asks, leased or for good; or one task's content, only to be read.
//!
//! | asked with | the task is | its end |
//! |---|---|---|
//! | `lease` | leased for as long | the caller's `ack` or `nack`, or the lease runs out |
//! | neither | leased for [`WRITING`] | delivered once the answer has been written |
//! | `task_id` | left alone | |
//!
//! # Invariants
//!
//! - A claimed task is in the hands of a [`Held`] until its answer has been written, so that whatever goes wrong
//!   before (the caller hangs up, a timeout, a panic) gives it back unspent.
//! - The claim runs in a task of its own: a caller who hangs up while the store is at it would otherwise take the
//!   handler, and with it the only knowledge of what was claimed, along.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Api;
use super::body::JsonBody;
use super::envelope::Success;
use super::error::Error;
use super::fields::{Id, Name, Number, within};
use super::json::{self, required};
use super::layers::Slot;
use super::settle::settle_unasked;
use super::written::{Fate, watched};
use crate::span::Span;
use crate::store::{self, Claim, Claimed, MAX_LEASE, Settle, Store, TopicEntry, Transition, Want};
use crate::task::{Destination, Lane, Receipt, TaskId, Topic};

/// How long the answer of a pull without `lease` may take to be written.
const WRITING: Duration = Duration::from_secs(10);
const MIN_LEASE: Duration = Duration::from_secs(1);
const MAX_COUNT: u32 = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    topic: Option<Name<Topic>>,
    task_id: Option<Id>,
    lease: Option<Span>,
    count: Option<Number>,
}

/// A task as its consumer sees it; with nothing due, `content` and `task_id` are null.
#[derive(Debug, Default, Serialize)]
struct Pulled {
    content: Option<String>,
    task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

/// The answer of a pull with `count`.
#[derive(Debug, Serialize)]
struct Many {
    tasks: Vec<Pulled>,
}

/// `POST /delay/task/pull`
pub(super) async fn pull(
    State(api): State<Arc<Api>>,
    Extension(slot): Extension<Slot>,
    JsonBody(body): JsonBody,
) -> Result<Response, Error> {
    let request: Request = json::read(&body)?;
    let Name(topic) = required(request.topic, "topic")?;
    let lease = request.lease.map(|lease| within(lease, "lease", MIN_LEASE..=MAX_LEASE)).transpose()?;
    let count = request.count.map(|count| count.whole("count", 1..=MAX_COUNT)).transpose()?;
    if let Some(id) = Id::given(request.task_id) {
        if lease.is_some() || count.is_some() {
            return Err(Error::invalid("task_id: only reads that task, so lease and count do not go with it"));
        }
        return read(&api, &topic, id).await.map(IntoResponse::into_response);
    }
    api.check_accepting()?;
    let slots = count.unwrap_or(1) as usize;
    // Counted from before the claim, and over before the lease is: by then another may have the tasks.
    let deadline = Instant::now() + lease.unwrap_or(WRITING).min(WRITING).mul_f32(0.9);
    let (pulled, held) = match api.topics.find(&topic).await? {
        Some(known) => {
            let taking = take(api.clone(), known.entry, slots, lease);
            // The slot goes along: callers who hang up again and again must not pile up claims.
            let taking = async move {
                let _slot = slot;
                taking.await
            };
            api.pending.spawn(taking).await.map_err(|_| Error::Internal)??
        }
        None => (Vec::new(), Held::new(api.clone(), lease.is_none())),
    };
    match count {
        Some(_) => answer(&Success::of(Many { tasks: pulled }), deadline, held),
        None => answer(&Success::of(pulled.into_iter().next().unwrap_or_default()), deadline, held),
    }
}

/// One task's content, whatever its state.
async fn read(api: &Api, topic: &Topic, id: TaskId) -> Result<Success<Pulled>, Error> {
    let lane = api.lane_of(topic, id).await?;
    let task = api.store.get(&lane, id).await?.ok_or_else(Error::no_task)?;
    Ok(Success::of(Pulled {
        content: Some(task.content),
        task_id: Some(id),
        attempt: Some(task.attempts),
        receipt: None,
    }))
}

/// Claims up to `slots` tasks, lane by lane, beginning with another lane each time.
async fn take(
    api: Arc<Api>,
    entry: TopicEntry,
    slots: usize,
    lease: Option<Duration>,
) -> Result<(Vec<Pulled>, Held), Error> {
    let mut held = Held::new(api.clone(), lease.is_none());
    let mut pulled: Vec<Pulled> = Vec::new();
    let mut lanes: Vec<Lane> = entry.lanes().collect();
    let first = api.turn.fetch_add(1, Ordering::Relaxed) % lanes.len().max(1);
    lanes.rotate_left(first);
    for lane in lanes {
        let want = Want { destination: Destination::pull(), slots: slots - pulled.len() };
        let claim = Claim {
            lane: lane.clone(),
            wants: vec![want],
            lease: lease.unwrap_or(WRITING),
            holder: None,
            more: false,
            skip: 0,
            misfires: Vec::new(),
        };
        let grant = match claim_promptly(&api, claim).await {
            Ok(Claimed::Granted(grant)) => grant,
            // Only a claim under the lane's lock is refused, and consumers go past it.
            Ok(Claimed::Refused { .. }) => continue,
            // What other lanes gave is worth an answer.
            Err(error) if !pulled.is_empty() => {
                Error::from(error).log();
                break;
            }
            Err(error) => return Err(error.into()),
        };
        for task in grant.tasks {
            held.hold(lane.clone(), task.id, grant.receipt.clone());
            pulled.push(Pulled {
                content: Some(task.content),
                task_id: Some(task.id),
                attempt: Some(task.attempt),
                receipt: lease.map(|_| grant.receipt.to_string()),
            });
        }
        if pulled.len() >= slots {
            break;
        }
    }
    Ok((pulled, held))
}

/// A claim that no silent store holds up. What it takes after nobody waits any more is given back unspent: its lease may be of hours.
async fn claim_promptly(api: &Arc<Api>, claim: Claim) -> store::Result<Claimed> {
    let (reply, claimed) = oneshot::channel();
    let giving_back = api.clone();
    let claiming = async move {
        let lane = claim.lane.clone();
        if let Err(Ok(Claimed::Granted(grant))) = reply.send(giving_back.store.claim(claim).await) {
            let mut held = Held::new(giving_back, false);
            grant.tasks.iter().for_each(|task| held.hold(lane.clone(), task.id, grant.receipt.clone()));
        }
    };
    api.pending.spawn(claiming);
    let ended = || store::Error::Unavailable("the claim has ended without an answer".into());
    api.store.promptly(async { claimed.await.unwrap_or_else(|_| Err(ended())) }).await
}

/// The answer, which tells `held` what became of it.
fn answer(body: &impl Serialize, deadline: Instant, held: Held) -> Result<Response, Error> {
    let bytes = serde_json::to_vec(body).map_err(|_| Error::Internal)?;
    let body = watched(bytes.into(), deadline, move |fate| match fate {
        Fate::Written => held.written(),
        Fate::GivenBack => drop(held),
    });
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(([json], body).into_response())
}

/// Claimed tasks that their consumer does not have yet. Dropped, it gives them back.
struct Held {
    api: Arc<Api>,
    /// The consumer asked for no lease: the written answer ends the tasks.
    consumes: bool,
    leases: Vec<(Lane, TaskId, Receipt)>,
}

impl Held {
    fn new(api: Arc<Api>, consumes: bool) -> Self {
        Self { api, consumes, leases: Vec::new() }
    }

    fn hold(&mut self, lane: Lane, id: TaskId, receipt: Receipt) {
        self.leases.push((lane, id, receipt));
    }

    /// The consumer has them.
    fn written(mut self) {
        if self.consumes {
            self.end(&Transition::Delivered { outcome: "pulled".into() });
        }
        self.leases.clear();
    }

    fn end(&mut self, transition: &Transition) {
        let settles: Vec<Settle> = self
            .leases
            .drain(..)
            .map(|(lane, id, receipt)| Settle { lane, id, receipt, transition: transition.clone() })
            .collect();
        // Outside of a runtime the process is at its end, and the leases run out by themselves.
        if settles.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.api.pending.spawn(settle_unasked(self.api.store.clone(), settles));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(&Transition::Release);
    }
}
