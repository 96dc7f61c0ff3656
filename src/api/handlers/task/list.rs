//! `POST /delay/task/list`: pages of a topic's tasks in one state, in order of time, or back.
//!
//! The cursor is the position of the last entry, so tasks that are added or end in between do not
//! shift the next page. With a filter, the page is the result of a bounded [`Scan`], and the cursor
//! is the position of the last task that was looked at.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use delayd_wire::{Entry, Number, Page};

use super::scan::{FAR, Filter, Range, Scan, moment, summaries};
use crate::api::auth::Caller;
use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::cursor;
use crate::api::wire::json;
use crate::api::wire::shown::{last_outcome, sn_of, way_of};
use crate::model::clock::UnixMillis;
use crate::model::task::InvalidName;
use crate::store::{Listed, Summary};

/// The default and the maximum of entries per page.
const LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

pub(crate) use delayd_wire::ListRequest as Request;

/// The position of a page's last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(pub(super) Listed);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.moment.0, self.0.id)
    }
}

impl FromStr for Cursor {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let read = || {
            let (moment, id) = text.split_once('-')?;
            Some(Self(Listed { moment: UnixMillis(moment.parse().ok()?), id: id.parse().ok()? }))
        };
        read()
            .ok_or_else(|| InvalidName("must be the cursor of the previous page, unchanged".into()))
    }
}

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
    api: Arc<Api>,
    Routed { request, caller, route, .. }: Routed,
) -> Result<Success<Page>, Error> {
    let request: Request = json::read(request.body())?;
    let topic = request.topic;
    let state = request.state;
    let limit = page_limit(request.limit)?;
    let from = request.from.map_or(Ok(UnixMillis(0)), |from| moment(from, "from"))?;
    let to = request.to.map_or(Ok(FAR), |to| moment(to, "to"))?;
    let order = request.order.unwrap_or_default();
    let filter = Filter::read(request.sn, request.outcome, request.due_from, request.due_to)?;
    filter.check(&caller)?;
    let after = cursor(request.cursor)?.map(|Cursor(last)| last);
    let topic = api.topic(&topic).await?.entry;
    let range = filter.narrow(Range { state, from, to, order });
    if !filter.is_empty() {
        let place = api.place(&api.scans, &caller, route.access).await?;
        let mut scan = Scan::begin(place, topic, range, after);
        let mut tasks = Vec::new();
        'scan: while let Some(page) = scan.next(&api).await? {
            for (listed, task) in page {
                scan.saw(listed);
                tasks.extend(task.filter(|task| filter.selects(task)));
                if tasks.len() == limit {
                    break 'scan;
                }
            }
        }
        return Ok(Success::of(page(tasks, &scan, &caller)));
    }
    let _place = api.reading(&caller, route.access).await?;
    let (listed, is_all) = range.merged(&api, &topic, after, limit).await?;
    let cursor = listed.last().filter(|_| !is_all).map(|last| Cursor(*last).to_string());
    let summaries = summaries(&api, &topic, &listed).await?.into_iter().flatten();
    let tasks = summaries.map(|task| entry(task, &caller)).collect();
    Ok(Success::of(Page { tasks, cursor, seen: None }))
}

/// The page that a scan has found.
pub(super) fn page(tasks: Vec<Summary>, scan: &Scan, caller: &Caller) -> Page {
    Page {
        tasks: tasks.into_iter().map(|task| entry(task, caller)).collect(),
        cursor: scan.rest().map(|last| Cursor(last).to_string()),
        seen: Some(scan.seen()),
    }
}

/// The field `limit`.
pub(super) fn page_limit(limit: Option<Number>) -> Result<usize, Error> {
    Ok(limit.map_or(Ok(LIMIT), |limit| limit.whole("limit", 1..=MAX_LIMIT))? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::TaskId;

    #[test]
    fn a_cursor_reads_back_what_it_writes() {
        let last = Cursor(Listed {
            moment: UnixMillis(1_795_236_367_000),
            id: TaskId(1_795_234_567_000_042),
        });
        assert_eq!(last.to_string().parse(), Ok(last));
        for text in ["", "-", "1", "1-", "-1", "a-1", "1-0", "1-a"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
