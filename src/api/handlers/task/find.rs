//! `POST /delay/task/find`: looks for a task in all topics, by its id or a key.
//!
//! No index leads from an id to its topic, because each add would have to write it. But the id
//! says which lane of a topic would have the task, and so does a key. So one lookup per topic is
//! enough, and one script makes many of them.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{FoundTask, FoundTasks};
use futures_util::future::try_join_all;

use super::list::entry;
use super::named::NamedTask;
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{self, LastTopic};
use crate::model::task::{Lane, TaskId};
use crate::store::Admin;

/// The most topics of one call: some milliseconds of a Redis server.
const MOST_TOPICS: usize = 5_000;
/// The most tasks of one answer. Many topics may have a task of one key.
const MOST_TASKS: usize = 100;

pub(crate) use delayd_wire::FindRequest as Request;

/// `POST /delay/task/find`
pub(crate) async fn find(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<FoundTasks>, Error> {
    let Request { task_id, key, idempotency_key, cursor } = request;
    let name = NamedTask { task_id, key, idempotency_key }.read()?;
    let after = fields::cursor(cursor)?;
    let _place = api.reading(&caller).await?;
    let mut topics = api.topics.refresh().await?;
    topics.sort_unstable_by(|a, b| a.entry.topic.cmp(&b.entry.topic));
    if let Some(LastTopic(last)) = after {
        topics.retain(|known| known.entry.topic > last);
    }
    let mut is_last = topics.len() <= MOST_TOPICS;
    topics.truncate(MOST_TOPICS);
    let mut lanes: Vec<Lane> = topics.iter().map(|known| name.lane_in(&known.entry)).collect();
    let found = api.store.find(&name, lanes.clone()).await?;
    let places = found.iter().enumerate().filter_map(|(place, id)| Some((place, (*id)?)));
    let mut hits: Vec<(usize, TaskId)> = places.take(MOST_TASKS + 1).collect();
    if let Some((beyond, _)) = hits.get(MOST_TASKS) {
        lanes.truncate(*beyond);
        hits.truncate(MOST_TASKS);
        is_last = false;
    }
    let shown = hits.into_iter().map(async |(place, id)| {
        let lane = &lanes[place];
        // The task of an idempotency key may have been purged.
        let summary = api.store.summaries(lane, vec![id]).await?.into_iter().flatten().next();
        let found =
            |summary| FoundTask { topic: lane.topic.clone(), task: entry(summary, &caller) };
        Ok::<_, Error>(summary.map(found))
    });
    let tasks = try_join_all(shown).await?.into_iter().flatten().collect();
    let last = lanes.last().filter(|_| !is_last);
    Ok(Success::of(FoundTasks {
        tasks,
        topics_seen: lanes.len() as u64,
        cursor: last.map(|lane| lane.topic.to_string()),
    }))
}
