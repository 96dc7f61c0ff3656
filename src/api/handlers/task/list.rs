//! `POST /delay/task/list`: pages of a topic's tasks in one state, in order of time, or back.
//!
//! The cursor is the position of the last task that was looked at. So tasks that are added or end
//! in between do not shift the next page.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{Entry, Number, Page};

use super::scan::{BOUNDS, FAR, Scan, ScanBounds, Selection, TaskFilter, TaskRange, moment};
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields;
use crate::api::wire::shown::{last_outcome, sn_of, way_of};
use crate::model::clock::UnixMillis;
use crate::store::Summary;

/// The default and the maximum of entries per page.
const LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

pub(crate) use delayd_wire::ListRequest as Request;

pub(super) fn entry(task: Summary, caller: &Caller) -> Entry {
    Entry {
        task_id: task.id.into(),
        state: task.state,
        mode: way_of(&task.destination),
        sn: sn_of(&task.destination),
        due_ms: task.due.into(),
        due: task.due.into(),
        attempts: task.attempts,
        created_ms: task.created.into(),
        finished_ms: task.finished.map(Into::into),
        lease: task.lease.map(Into::into),
        last_outcome: last_outcome(task.last_outcome).and_then(|text| caller.content(text)),
        key: task.key,
    }
}

/// `POST /delay/task/list`
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<Page>, Error> {
    let topic = request.topic;
    let state = request.state;
    let limit = page_limit(request.limit)?;
    let from = request.from.map_or(Ok(UnixMillis(0)), |from| moment(from, "from"))?;
    let to = request.to.map_or(Ok(FAR), |to| moment(to, "to"))?;
    let order = request.order.unwrap_or_default();
    let filter = TaskFilter::read(request.sn, request.outcome, request.due_from, request.due_to)?;
    filter.check(&caller)?;
    let cursor = fields::cursor(request.cursor)?;
    let topic = api.topic(&topic).await?.entry;
    let range = filter.narrow(TaskRange { state, from, to, order });
    let is_filtered = !filter.is_empty();
    let (place, bounds) = match is_filtered {
        true => (api.place(&api.scans, &caller).await?, BOUNDS),
        false => (api.reading(&caller).await?, ScanBounds { tasks: limit, ..BOUNDS }),
    };
    let mut scan = Scan::begin(Some(place), Selection::merged(topic, range), bounds, cursor)?;
    let mut tasks = Vec::new();
    while tasks.len() < limit
        && let Some((_, task)) = scan.next_one(&api).await?
    {
        tasks.extend(task.filter(|task| filter.selects(task)));
    }
    let page = page(tasks, &scan, &caller);
    Ok(Success::of(Page { seen: page.seen.filter(|_| is_filtered), ..page }))
}

/// The page that a scan has found.
pub(super) fn page(tasks: Vec<Summary>, scan: &Scan, caller: &Caller) -> Page {
    Page {
        tasks: tasks.into_iter().map(|task| entry(task, caller)).collect(),
        cursor: scan.cursor(),
        seen: Some(scan.seen()),
    }
}

/// The field `limit`.
pub(super) fn page_limit(limit: Option<Number>) -> Result<usize, Error> {
    Ok(limit.map_or(Ok(LIMIT), |limit| limit.whole("limit", 1..=MAX_LIMIT))? as usize)
}
