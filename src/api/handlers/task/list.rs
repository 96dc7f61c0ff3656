//! `POST /delay/task/list`: pages of a topic's tasks in one state, in order of time.
//!
//! For a topic with several lanes, one page per lane is listed and merged, and only the tasks of
//! the merged page are read. The cursor is the position of the last entry, so tasks that are added
//! or end in between do not shift the next page.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use delayd_wire::{Entry, ListRequest, OneOf, Page};
use futures_util::future::try_join_all;

use crate::api::auth::Caller;
use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{Name, Number, TopicName};
use crate::api::wire::json::{self, required};
use crate::api::wire::shown::{last_outcome, sn_of, way_of};
use crate::model::clock::UnixMillis;
use crate::model::task::{InvalidName, Lane, State, TaskId};
use crate::store::{Admin, ListQuery, Listed, Summary, TopicEntry, Topics};

/// The default and the maximum of entries per page.
const LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
/// Unix seconds beyond this (the year 5138) are refused.
const FAR: f64 = 1e11;

pub(crate) type Request = ListRequest<TopicName, OneOf<State>, Number, Name<Cursor>>;

/// The position of a page's last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(Listed);

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
    Routed { request, caller, .. }: Routed,
) -> Result<Success<Page>, Error> {
    let request: Request = json::read(request.body())?;
    let Name(topic) = required(request.topic, "topic")?;
    let OneOf(state) = required(request.state, "state")?;
    let limit =
        request.limit.map_or(Ok(LIMIT), |limit| limit.whole("limit", 1..=MAX_LIMIT))? as usize;
    let from = request.from.map_or(Ok(UnixMillis(0)), |from| moment(from, "from"))?;
    let to = request.to.map_or(Ok(UnixMillis(FAR as i64 * 1000)), |to| moment(to, "to"))?;
    let after = request.cursor.map(|Name(Cursor(last))| last);
    let known = api.topic(&topic).await?;
    let listed = merged(&api, &known.entry, &Range { state, from, to, after, limit }).await?;
    let cursor =
        listed.last().filter(|_| listed.len() == limit).map(|last| Cursor(*last).to_string());
    let summaries = summaries(&api, &known.entry, &listed).await?.into_iter();
    let tasks = summaries.map(|task| entry(task, &caller)).collect();
    Ok(Success::of(Page { tasks, cursor }))
}

fn moment(Number(seconds): Number, field: &str) -> Result<UnixMillis, Error> {
    if !(0.0..=FAR).contains(&seconds) {
        return Err(Error::Invalid(format!("{field}: must be Unix seconds")));
    }
    #[allow(clippy::cast_possible_truncation, reason = "just checked to be below 10^14")]
    Ok(UnixMillis((seconds * 1000.0).round() as i64))
}

/// What a page contains.
pub(crate) struct Range {
    pub(crate) state: State,
    pub(crate) from: UnixMillis,
    pub(crate) to: UnixMillis,
    pub(crate) after: Option<Listed>,
    pub(crate) limit: usize,
}

/// The earliest entries of all lanes.
async fn merged(api: &Api, topic: &TopicEntry, range: &Range) -> Result<Vec<Listed>, Error> {
    let &Range { state, from, to, after, limit } = range;
    let pages =
        topic.lanes().map(|lane| api.store.list(ListQuery { lane, state, from, to, after, limit }));
    let mut all: Vec<Listed> = try_join_all(pages).await?.into_iter().flatten().collect();
    all.sort_unstable();
    all.truncate(limit);
    Ok(all)
}

/// The tasks of a page, in its order. A task that was purged in between is left out.
async fn summaries(
    api: &Api,
    topic: &TopicEntry,
    listed: &[Listed],
) -> Result<Vec<Summary>, Error> {
    let mut lanes: HashMap<Lane, Vec<TaskId>> = HashMap::new();
    for Listed { id, .. } in listed {
        lanes.entry(topic.lane_of(*id)).or_default().push(*id);
    }
    let asking = lanes.iter().map(|(lane, ids)| api.store.summaries(lane, ids.clone()));
    let found = try_join_all(asking).await?.into_iter().flatten().flatten();
    let mut by_id: HashMap<TaskId, Summary> = found.map(|summary| (summary.id, summary)).collect();
    Ok(listed.iter().filter_map(|Listed { id, .. }| by_id.remove(id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
