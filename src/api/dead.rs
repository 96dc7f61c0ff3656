//! Dead letters: why they died, replaying them, and throwing them away.
//!
//! One request goes over a bounded part of a topic's dead, a page at a time; the answer says if more are left, and the caller asks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::Api;
use super::body::JsonBody;
use super::envelope::Success;
use super::error::Error;
use super::fields::{Id, Name};
use super::json::{self, required};
use super::openapi::values::TopicName;
use crate::clock::UnixMillis;
use crate::rate::Rate;
use crate::store::{ListQuery, Listed, Spread, Store, Summary};
use crate::task::{Lane, State, TaskId, Topic};

/// Tasks that are looked at together.
const PAGE: usize = 500;
/// The most ids of one request.
const MAX_IDS: usize = 10_000;
/// The most of the dead that one request goes over.
const MAX_TASKS: usize = 100_000;
/// How long one request goes on beginning pages: well below the edge's own limit.
const TIME: Duration = Duration::from_secs(4);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CausesRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeadReplayRequest)]
pub(super) struct ReplayRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// These tasks; this or `all`.
    task_ids: Option<Vec<Id>>,
    /// All of the topic's dead.
    all: Option<bool>,
    /// Only those whose last outcome is exactly this.
    reason: Option<String>,
    /// Spreads their due moments.
    rate: Option<Rate>,
    /// Only count.
    dry_run: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeadPurgeRequest)]
pub(super) struct PurgeRequest {
    /// The topic.
    #[schema(value_type = TopicName)]
    topic: Option<Name<Topic>>,
    /// These tasks; this or `all`.
    task_ids: Option<Vec<Id>>,
    /// All of the topic's dead.
    all: Option<bool>,
    /// Only those whose last outcome is exactly this.
    reason: Option<String>,
    /// Only count.
    dry_run: Option<bool>,
}

/// The dead of a topic by what killed them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Causes {
    /// The commonest first.
    causes: Vec<Cause>,
    /// There are more dead than were looked at.
    more: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cause {
    reason: String,
    count: u64,
    first_ms: UnixMillis,
    last_ms: UnixMillis,
    /// One of them, to look at.
    task_id: TaskId,
}

/// What was done, or would have been.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Done {
    count: u64,
    /// The request went over as much as one may: ask again for the rest.
    more: bool,
    /// When the last replayed task falls due.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ms: Option<UnixMillis>,
}

/// Which of a topic's dead are meant.
struct Selection {
    lanes: Vec<Lane>,
    /// `None`: all.
    ids: Option<Vec<TaskId>>,
    /// Only those that died of this.
    reason: Option<String>,
}

/// `POST /delay/dead/causes`
pub(super) async fn causes(Shared(api): Shared<Arc<Api>>, JsonBody(body): JsonBody) -> Result<Success<Causes>, Error> {
    let request: CausesRequest = json::read(&body)?;
    let Name(topic) = required(request.topic, "topic")?;
    let lanes = api.topic(&topic).await?.entry.lanes().collect();
    let mut by_reason: BTreeMap<String, Cause> = BTreeMap::new();
    let mut dead = Dead::of(Selection { lanes, ids: None, reason: None });
    while let Some((_, page)) = dead.next(&api).await? {
        for task in page {
            let ended = task.finished.unwrap_or(task.due);
            let cause = by_reason.entry(task.last_outcome.clone()).or_insert_with(|| Cause {
                reason: task.last_outcome,
                count: 0,
                first_ms: ended,
                last_ms: ended,
                task_id: task.id,
            });
            cause.count += 1;
            (cause.first_ms, cause.last_ms) = (cause.first_ms.min(ended), cause.last_ms.max(ended));
        }
    }
    let mut causes: Vec<Cause> = by_reason.into_values().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    Ok(Success::of(Causes { causes, more: dead.is_cut_off }))
}

/// `POST /delay/dead/replay`
pub(super) async fn replay(Shared(api): Shared<Arc<Api>>, JsonBody(body): JsonBody) -> Result<Success<Done>, Error> {
    api.check_accepting()?;
    let request: ReplayRequest = json::read(&body)?;
    let selection = select(&api, request.topic, request.task_ids, request.all, request.reason).await?;
    let step = request.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate.per_second()));
    let dry_run = request.dry_run.unwrap_or_default();
    let mut dead = Dead::of(selection);
    let mut count = 0;
    while let Some((lane, page)) = dead.next(&api).await? {
        let ids: Vec<TaskId> = page.iter().map(|task| task.id).collect();
        count += match dry_run {
            true => ids.len(),
            // Those that were replayed meanwhile leave a gap in the rate, no more.
            false => api.store.replay(&lane, ids, Spread { first: step.mul_f64(count as f64), step }).await?,
        };
    }
    let until_ms = (count > 0 && !dry_run).then(|| api.clock.now() + step.mul_f64((count - 1) as f64));
    tracing::info!(count, dry_run, "Dead tasks replayed by hand");
    Ok(Success::of(Done { count: count as u64, more: dead.is_cut_off, until_ms }))
}

/// `POST /delay/dead/purge`
pub(super) async fn purge(Shared(api): Shared<Arc<Api>>, JsonBody(body): JsonBody) -> Result<Success<Done>, Error> {
    let request: PurgeRequest = json::read(&body)?;
    let selection = select(&api, request.topic, request.task_ids, request.all, request.reason).await?;
    let dry_run = request.dry_run.unwrap_or_default();
    let mut dead = Dead::of(selection);
    let mut count = 0;
    while let Some((lane, page)) = dead.next(&api).await? {
        let ids: Vec<TaskId> = page.iter().map(|task| task.id).collect();
        count += if dry_run { ids.len() } else { api.store.discard(&lane, State::Dead, ids).await? };
    }
    tracing::info!(count, dry_run, "Dead tasks thrown away by hand");
    Ok(Success::of(Done { count: count as u64, more: dead.is_cut_off, until_ms: None }))
}

async fn select(
    api: &Api,
    topic: Option<Name<Topic>>,
    ids: Option<Vec<Id>>,
    all: Option<bool>,
    reason: Option<String>,
) -> Result<Selection, Error> {
    let Name(topic) = required(topic, "topic")?;
    let ids = match (ids, all.unwrap_or_default()) {
        (None, true) => None,
        (Some(ids), false) if (1..=MAX_IDS).contains(&ids.len()) => {
            let ids = ids.into_iter().map(|id| required(Id::given(Some(id)), "task_ids"));
            Some(ids.collect::<Result<Vec<_>, _>>()?)
        }
        (Some(_), false) => return Err(Error::Invalid(format!("task_ids: must hold 1 to {MAX_IDS} ids"))),
        _ => return Err(Error::invalid("task_ids and all: give exactly one of the two (all must be true)")),
    };
    Ok(Selection { lanes: api.topic(&topic).await?.entry.lanes().collect(), ids, reason })
}

/// The selected dead, a page of one lane at a time.
struct Dead {
    /// The lanes that are left, the current one last.
    lanes: Vec<Lane>,
    number_of_lanes: u16,
    ids: Option<Vec<TaskId>>,
    reason: Option<String>,
    after: Option<Listed>,
    began: Instant,
    seen: usize,
    /// Time or number ran out before the end.
    is_cut_off: bool,
}

impl Dead {
    fn of(selection: Selection) -> Self {
        let Selection { mut lanes, ids, reason } = selection;
        lanes.reverse();
        let number_of_lanes = u16::try_from(lanes.len()).expect("a topic has at most 256 lanes");
        Self { lanes, number_of_lanes, ids, reason, after: None, began: Instant::now(), seen: 0, is_cut_off: false }
    }

    /// The next page; `None` at the end.
    async fn next(&mut self, api: &Api) -> Result<Option<(Lane, Vec<Summary>)>, Error> {
        while let Some(lane) = self.lanes.last().cloned() {
            if self.seen >= MAX_TASKS || self.began.elapsed() >= TIME {
                self.is_cut_off = true;
                return Ok(None);
            }
            let ids = self.next_ids(api, &lane).await?;
            if ids.is_empty() {
                self.lanes.pop();
                self.after = None;
                continue;
            }
            self.seen += ids.len();
            let found = api.store.summaries(&lane, ids).await?.into_iter().flatten();
            let is_meant = |task: &Summary| {
                task.state == State::Dead && self.reason.as_ref().is_none_or(|reason| *reason == task.last_outcome)
            };
            let page: Vec<Summary> = found.filter(is_meant).collect();
            if !page.is_empty() {
                return Ok(Some((lane, page)));
            }
        }
        Ok(None)
    }

    async fn next_ids(&mut self, api: &Api, lane: &Lane) -> Result<Vec<TaskId>, Error> {
        let Some(wanted) = &mut self.ids else {
            let (from, to) = (UnixMillis(0), UnixMillis(i64::MAX));
            let query = ListQuery { lane: lane.clone(), state: State::Dead, from, to, after: self.after, limit: PAGE };
            let page = api.store.list(query).await?;
            self.after = page.last().copied().or(self.after);
            return Ok(page.into_iter().map(|listed| listed.id).collect());
        };
        let of_lane = |id: &mut TaskId| Lane::of(lane.topic.clone(), *id, self.number_of_lanes) == *lane;
        Ok(wanted.extract_if(.., of_lane).take(PAGE).collect())
    }
}
