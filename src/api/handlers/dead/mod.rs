//! Dead letters: grouping them by cause, replaying them, deleting them.
//!
//! One call looks at a bounded number of dead tasks, in pages ([`walk`]). If there are more, the
//! answer says so, and the caller repeats the call with the answer's cursor.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::{AtMost, Done, Number};
pub(crate) use delayd_wire::{
    DeadPurgeRequest as PurgeRequest, DeadReplayRequest as ReplayRequest,
};

use crate::api::auth::{Access, Caller};
use crate::api::middleware::audit_target::KnownTarget;
use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{self, cursor};
use crate::api::wire::json;
use crate::model::task::{State, TaskId, Topic};
use crate::store::{Admin, Spread};

pub(crate) mod causes;
mod walk;

use walk::{MAX_TASKS, Selection, Walk};

/// The most ids of one request.
const MAX_IDS: usize = 10_000;

type Ids = AtMost<delayd_wire::TaskId, MAX_IDS>;

/// `POST /delay/dead/replay`
pub(crate) async fn replay(
    api: Arc<Api>,
    Routed { request, caller, route, target, .. }: Routed,
) -> Result<Success<Done>, Error> {
    api.check_accepting()?;
    let request: ReplayRequest = json::read(request.body())?;
    let ReplayRequest { topic, task_ids, all, reason, rate, dry_run, limit, cursor } = request;
    let which = Which { topic, task_ids, all, reason: reason.clone(), limit, cursor };
    let step = rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate.per_second()));
    let dry_run = dry_run.unwrap_or_default();
    let mut dead = which.walk(&api, &caller, route.access).await?;
    let mut count = 0;
    note(&target, 0, None);
    while let Some((lane, page)) = dead.next(&api).await? {
        let ids: Vec<TaskId> = page.iter().map(|task| task.id).collect();
        count += match dry_run {
            true => ids.len(),
            // Tasks that were replayed in between leave a gap in the rate.
            false => {
                let spread = Spread { first: step.mul_f64(count as f64), step };
                api.store.replay(&lane, ids, reason.as_deref(), spread).await?
            }
        };
        note(&target, count, reason.as_deref());
    }
    let until = (count > 0 && !dry_run).then(|| api.clock.now() + step.mul_f64((count - 1) as f64));
    let what = if dry_run { "counted for a replay" } else { "replayed" };
    tracing::info!(count, dry_run, "{count} dead tasks were {what} by hand");
    Ok(Success::of(Done { until_ms: until.map(Into::into), ..done(count, &dead) }))
}

/// `POST /delay/dead/purge`
pub(crate) async fn purge(
    api: Arc<Api>,
    Routed { request, caller, route, target, .. }: Routed,
) -> Result<Success<Done>, Error> {
    let PurgeRequest { topic, task_ids, all, reason, dry_run, limit, cursor } =
        json::read(request.body())?;
    let which = Which { topic, task_ids, all, reason: reason.clone(), limit, cursor };
    let dry_run = dry_run.unwrap_or_default();
    let mut dead = which.walk(&api, &caller, route.access).await?;
    let mut count = 0;
    note(&target, 0, None);
    while let Some((lane, page)) = dead.next(&api).await? {
        let ids: Vec<TaskId> = page.iter().map(|task| task.id).collect();
        count += match dry_run {
            true => ids.len(),
            false => api.store.discard(&lane, State::Dead, ids, reason.as_deref()).await?,
        };
        note(&target, count, reason.as_deref());
    }
    let what = if dry_run { "counted for a purge" } else { "purged" };
    tracing::info!(count, dry_run, "{count} dead tasks were {what} by hand");
    Ok(Success::of(done(count, &dead)))
}

/// Tells the audit log how many tasks were changed so far.
fn note(target: &Option<KnownTarget>, count: usize, reason: Option<&str>) {
    if let Some(target) = target {
        target.changed(count, reason);
    }
}

fn done(count: usize, dead: &Walk) -> Done {
    let cursor = dead.cursor().map(|cursor| cursor.to_string());
    Done {
        count: count as u64,
        seen: dead.seen() as u64,
        more: cursor.is_some(),
        cursor,
        until_ms: None,
    }
}

/// The fields of a request that select tasks.
struct Which {
    topic: Topic,
    task_ids: Option<Ids>,
    all: Option<bool>,
    reason: Option<String>,
    limit: Option<Number>,
    cursor: Option<String>,
}

impl Which {
    /// The walk takes a place among the changes of many tasks, unless the request names its tasks.
    async fn walk(self, api: &Api, caller: &Caller, access: Access) -> Result<Walk, Error> {
        let topic = self.topic;
        let ids = match (self.task_ids, self.all.unwrap_or_default()) {
            (None, true) => None,
            (Some(AtMost(ids)), false) if !ids.is_empty() => Some(fields::ids(ids)?),
            (Some(_), false) => {
                return Err(Error::Invalid(format!("task_ids: must hold 1 to {MAX_IDS} ids")));
            }
            _ => {
                return Err(Error::invalid(
                    "task_ids and all: give exactly one of the two (all must be true)",
                ));
            }
        };
        let limit =
            self.limit.map_or(Ok(MAX_TASKS), |limit| limit.whole("limit", 1..=MAX_TASKS))? as usize;
        let from = cursor(self.cursor)?;
        let lanes = api.topic(&topic).await?.entry.lanes().collect();
        let place = match ids {
            None => Some(api.place(&api.changes, caller, access).await?),
            Some(_) => None,
        };
        Walk::begin(api, Selection { lanes, ids, reason: self.reason, from, limit }, place).await
    }
}
