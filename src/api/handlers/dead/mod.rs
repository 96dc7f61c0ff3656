//! Dead letters: grouping them by cause, replaying them, deleting them.
//!
//! One call looks at a bounded number of dead tasks, in pages ([`Scan`]). If there are more, the
//! answer says so, and the caller repeats the call with the answer's cursor.

use std::sync::Arc;
use std::time::Duration;

use delayd_wire::{AtMost, Done, Number};
pub(crate) use delayd_wire::{
    DeadPurgeRequest as PurgeRequest, DeadReplayRequest as ReplayRequest,
};

use crate::api::auth::Caller;
use crate::api::handlers::task::scan::{PAGE, Scan, ScanBounds, Selection, TaskFilter};
use crate::api::middleware::audit_target::KnownTarget;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId, Topic};
use crate::store::{Admin, Delivery, Spread};
use axum::extract;

pub(crate) mod causes;

/// The most tasks of one call.
const MAX_TASKS: u32 = 100_000;
/// A call begins no page after this time, which is well below the request's timeout.
const TIME: Duration = Duration::from_secs(4);
/// The most ids of one request.
const MAX_IDS: usize = 10_000;

type Ids = AtMost<delayd_wire::TaskId, MAX_IDS>;

/// `POST /delay/dead/replay`
pub(crate) async fn replay(
    extract::State(api): extract::State<Arc<Api>>,
    caller: Caller,
    target: KnownTarget,
    Json(request): Json<ReplayRequest>,
) -> Result<Success<Done>, Error> {
    api.check_accepting()?;
    let ReplayRequest { topic, task_ids, all, reason, rate, dry_run, limit, cursor } = request;
    let which = SelectedTasks { topic, task_ids, all, reason: reason.clone(), limit, cursor };
    let step = rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate.per_second()));
    let dry_run = dry_run.unwrap_or_default();
    let mut dead = which.scan(&api, &caller).await?;
    let mut count = 0;
    target.changed(0, None);
    while let Some((lane, ids)) = dead.next(&api).await? {
        count += match dry_run {
            true => ids.len(),
            // Tasks that were replayed in between leave a gap in the rate.
            false => {
                let spread = Spread { first: step.mul_f64(count as f64), step };
                api.store.replay(&lane, ids, reason.as_deref(), spread).await?
            }
        };
        target.changed(count, reason.as_deref());
    }
    let until = (count > 0 && !dry_run).then(|| api.clock.now() + step.mul_f64((count - 1) as f64));
    let what = if dry_run { "counted for a replay" } else { "replayed" };
    tracing::info!(count, dry_run, "{count} dead tasks were {what} by hand");
    Ok(Success::of(Done { until_ms: until.map(Into::into), ..done(count, &dead) }))
}

/// `POST /delay/dead/purge`
pub(crate) async fn purge(
    extract::State(api): extract::State<Arc<Api>>,
    caller: Caller,
    target: KnownTarget,
    Json(request): Json<PurgeRequest>,
) -> Result<Success<Done>, Error> {
    let PurgeRequest { topic, task_ids, all, reason, dry_run, limit, cursor } = request;
    let which = SelectedTasks { topic, task_ids, all, reason: reason.clone(), limit, cursor };
    let dry_run = dry_run.unwrap_or_default();
    let mut dead = which.scan(&api, &caller).await?;
    let mut count = 0;
    target.changed(0, None);
    while let Some((lane, ids)) = dead.next(&api).await? {
        count += match dry_run {
            true => ids.len(),
            false => api.store.discard(&lane, State::Dead, ids, reason.as_deref()).await?,
        };
        target.changed(count, reason.as_deref());
    }
    let what = if dry_run { "counted for a purge" } else { "purged" };
    tracing::info!(count, dry_run, "{count} dead tasks were {what} by hand");
    Ok(Success::of(done(count, &dead)))
}

fn done(count: usize, Dead { scan, .. }: &Dead) -> Done {
    let cursor = scan.cursor();
    Done { count: count as u64, seen: scan.seen(), more: cursor.is_some(), cursor, until_ms: None }
}

/// The fields of a request that select tasks.
struct SelectedTasks {
    topic: Topic,
    task_ids: Option<Ids>,
    all: Option<bool>,
    reason: Option<String>,
    limit: Option<Number>,
    cursor: Option<String>,
}

impl SelectedTasks {
    async fn scan(self, api: &Api, caller: &Caller) -> Result<Dead, Error> {
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
        let tasks =
            self.limit.map_or(Ok(MAX_TASKS), |limit| limit.whole("limit", 1..=MAX_TASKS))? as usize;
        let cursor = fields::cursor(self.cursor)?;
        let topic = api.topic(&topic).await?.entry;
        let lanes = topic.lanes().collect();
        let dead = Selection::dead(topic, lanes, now(api).await?).named(ids);
        let bounds = ScanBounds { tasks, time: TIME };
        let scan = Scan::of_change(api, caller, dead, bounds, cursor).await?;
        Ok(Dead { scan, filter: TaskFilter { outcome: self.reason, ..TaskFilter::default() } })
    }
}

/// The store's now.
async fn now(api: &Api) -> Result<UnixMillis, Error> {
    Ok(api.store.next_due(Vec::new()).await?.now)
}

/// A scan for dead tasks.
struct Dead {
    scan: Scan,
    filter: TaskFilter,
}

impl Dead {
    /// The tasks of the next page that are meant, and their lane; `None` at the end.
    async fn next(&mut self, api: &Api) -> Result<Option<(Lane, Vec<TaskId>)>, Error> {
        loop {
            let page = self.scan.next(api, PAGE).await?;
            let Some((first, _)) = page.first() else { return Ok(None) };
            let lane = self.scan.topic().lane_of(first.id);
            let tasks = page.into_iter().filter_map(|(_, task)| task);
            let meant = tasks.filter(|task| task.state == State::Dead && self.filter.selects(task));
            let ids: Vec<TaskId> = meant.map(|task| task.id).collect();
            if !ids.is_empty() {
                return Ok(Some((lane, ids)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use serde_json::json;

    use super::*;
    use crate::api::edge;
    use crate::api::testing::{Ask, edge_with_store};
    use crate::store::{Asker, Claim, Claimed, Settle, Transition, Want};

    const SERVICE: &str = "message.call";

    /// Lets all due tasks of the lane die.
    async fn die(api: &Api, lane: &Lane) -> usize {
        let mut count = 0;
        loop {
            let claim = Claim {
                lane: lane.clone(),
                wants: vec![Want { destination: SERVICE.parse().unwrap(), slots: 100 }],
                lease: Duration::from_secs(600),
                holder: None,
                more: false,
                after: None,
                in_hand: 0,
                misfires: Vec::new(),
            };
            let Claimed::Granted(grant) = api.store.claim(claim).await.unwrap() else {
                panic!("nobody else claims")
            };
            if grant.tasks.is_empty() {
                return count;
            }
            let died = grant.tasks.iter().map(|task| Settle {
                lane: lane.clone(),
                id: task.id,
                receipt: grant.receipt.clone(),
                transition: Transition::Dead { outcome: "410 Gone".into() },
            });
            let settled = api.store.settle(Asker::Worker, died.collect()).await;
            assert!(settled.iter().all(Result::is_ok), "{settled:?}");
            count += settled.len();
        }
    }

    /// A replay to a receiver that refused at once sometimes counted a task twice.
    #[tokio::test]
    async fn a_scan_returns_no_task_twice_although_it_dies_again() {
        const REST: usize = 10;
        let (api, _draining, _folder) = edge_with_store();
        let api = Arc::new(api);
        let task = json!({"topic": "t", "delay": 0, "content": {"sn": SERVICE, "url": "/"}});
        let tasks = json!({"tasks": vec![task; 3]}).to_string();
        for _ in 0..(PAGE + REST) / 3 {
            let add = Request::post("/delay/task/add_batch").body(Body::from(tasks.clone()));
            assert_eq!(edge(api.clone()).answer(add.unwrap()).await.status(), 200);
        }
        let lane: Lane = "t:0".parse().unwrap();
        assert_eq!(die(&api, &lane).await, PAGE + REST);
        let topic = api.topic(&lane.topic).await.unwrap().entry;
        let dead = Selection::dead(topic, vec![lane.clone()], now(&api).await.unwrap());
        let scan =
            Scan::begin(None, dead, ScanBounds { tasks: 5000, time: 60 * TIME }, None).unwrap();
        let filter = TaskFilter { outcome: Some("410 Gone".into()), ..TaskFilter::default() };
        let mut dead = Dead { scan, filter };
        let (_, ids) = dead.next(&api).await.unwrap().expect("a page");
        assert_eq!(ids.len(), PAGE);
        let at_once = Spread { first: Duration::ZERO, step: Duration::ZERO };
        assert_eq!(api.store.replay(&lane, ids, None, at_once).await.unwrap(), PAGE);
        assert_eq!(die(&api, &lane).await, PAGE);
        let (_, ids) = dead.next(&api).await.unwrap().expect("another page");
        assert_eq!(ids.len(), REST);
        assert!(dead.next(&api).await.unwrap().is_none(), "they died after the replay");
        assert_eq!((dead.scan.seen(), dead.scan.cursor()), ((PAGE + REST) as u64, None));
    }
}
