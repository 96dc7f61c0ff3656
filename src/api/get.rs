//! One task as it stands.

use std::sync::Arc;

use axum::extract::State as Shared;
use serde::{Deserialize, Serialize};

use super::Api;
use super::add::mode_of;
use super::body::JsonBody;
use super::envelope::Success;
use super::error::Error;
use super::fields::{Id, Name};
use super::json::{self, required};
use crate::clock::UnixMillis;
use crate::store::{self, Store};
use crate::task::{State, TaskId, Topic};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    topic: Option<Name<Topic>>,
    task_id: Option<Id>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    task: Shown,
}

#[derive(Debug, Serialize)]
struct Shown {
    task_id: TaskId,
    state: State,
    mode: &'static str,
    due_ms: UnixMillis,
    attempts: u32,
    created_ms: UnixMillis,
    finished_ms: Option<UnixMillis>,
    last_outcome: Option<String>,
    content: String,
}

impl From<store::Task> for Shown {
    fn from(task: store::Task) -> Self {
        Self {
            task_id: task.id,
            state: task.state,
            mode: mode_of(&task.destination),
            due_ms: task.due,
            attempts: task.attempts,
            created_ms: task.created,
            finished_ms: task.finished,
            last_outcome: Some(task.last_outcome).filter(|outcome| !outcome.is_empty()),
            content: task.content,
        }
    }
}

/// `POST /delay/task/get`
pub(super) async fn get(Shared(api): Shared<Arc<Api>>, JsonBody(body): JsonBody) -> Result<Success<Found>, Error> {
    let request: Request = json::read(&body)?;
    let Name(topic) = required(request.topic, "topic")?;
    let id = required(Id::given(request.task_id), "task_id")?;
    let lane = api.lane_of(&topic, id).await?;
    let task = api.store.get(&lane, id).await?.ok_or_else(Error::no_task)?;
    Ok(Success::of(Found { task: task.into() }))
}
