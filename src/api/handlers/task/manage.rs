//! `POST /delay/task/cancel` and `update`.

use std::sync::Arc;

use bytes::Bytes;
pub(crate) use delayd_wire::{CancelRequest, UpdateRequest};
use delayd_wire::{Gone, Moved};
use serde_json::value::RawValue;

use crate::api::auth::Caller;
use crate::api::handlers::task::due::{self, DueTime, Written};
use crate::api::handlers::task::named::{LOOKS, NamedTask, act_on, field_of};
use crate::api::handlers::task::new_task::{self, TaskRules};
use crate::api::middleware::call::{Json, RawBody};
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::json;
use crate::api::wire::long_body::reading;
use crate::api::wire::shown;
use crate::callback::new_target;
use crate::metrics::TaskEnd;
use crate::model::task::{Lane, Mode, TaskId};
use crate::store::{Admin, Cancelled, NewContent, Reader, Rescheduled, TaskName};
use axum::extract::State;

/// `POST /delay/task/cancel`: after a success, the task is never delivered.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    Json(request): Json<CancelRequest>,
) -> Result<Success<Gone>, Error> {
    let CancelRequest { topic, task_id, key, idempotency_key } = request;
    let name = NamedTask { task_id, key, idempotency_key }.read()?;
    let (store, tasks, only) = (&api.store, &api.metrics.tasks, name.condition());
    let only = only.as_ref();
    let field = field_of(&name);
    let cancel = |lane: Lane, id: TaskId| async move {
        match store.cancel(&lane, id, only).await? {
            Cancelled::Done => {
                tasks.ended(TaskEnd::Cancel);
                Ok(Success::of(Gone { task_id: id.into() }))
            }
            Cancelled::Pending => Err(Error::CancelPending(field)),
            Cancelled::Refused { state } => Err(Error::Conflict(field, state)),
            Cancelled::Unknown => Err(Error::no_task()),
        }
    };
    act_on(&api, &topic, &name, cancel).await
}

/// `POST /delay/task/update`
pub(crate) async fn update(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RawBody(body): RawBody,
) -> Result<Success<Moved>, Error> {
    api.check_accepting()?;
    let (topic, name, due, content) = {
        let api = api.clone();
        let read = move |body: &[u8]| {
            let request: UpdateRequest = json::read(body)?;
            let topic = request.topic;
            let UpdateRequest { task_id, key, idempotency_key, .. } = request;
            let name = NamedTask { task_id, key, idempotency_key }.read()?;
            let written = Written::of(&request.at, &request.zone);
            let due = api.checked(None, |rules| {
                due::due(request.timing_moment, request.delay, written, rules.reach())
            })?;
            Ok::<_, Error>((topic, name, due, request.content))
        };
        reading(body.clone(), read).await?
    };
    let content = content.as_deref().map(|raw| (raw, &body));
    let act = |lane: Lane, id: TaskId| reschedule(&api, lane, (id, &name), &due, content);
    let moved = act_on(&api, &topic, &name, act).await;
    moved.map(Success::of).map_err(|error| api.explained(error, &caller))
}

/// Reschedules the task. An add with the same `key` may give it another delivery mode after its
/// mode was read. Then the store refuses the new content, and it is read again for that mode.
async fn reschedule(
    api: &Arc<Api>,
    lane: Lane,
    (id, name): (TaskId, &TaskName),
    due: &DueTime,
    content: Option<(&RawValue, &Bytes)>,
) -> Result<Moved, Error> {
    let DueTime { moment, zone } = due;
    let only = name.condition();
    for _ in 0..LOOKS {
        let content = match content {
            None => None,
            Some((raw, body)) => Some(new_content(api, &lane, id, raw, body).await?),
        };
        match api.store.reschedule(&lane, id, only.as_ref(), *moment, content).await? {
            Rescheduled::Done { due } => {
                return Ok(Moved {
                    task_id: id.into(),
                    due_ms: due.into(),
                    due: shown::due(due, zone.as_ref()),
                });
            }
            Rescheduled::Refused { state } => return Err(Error::Conflict(field_of(name), state)),
            Rescheduled::Unknown => return Err(Error::no_task()),
            Rescheduled::OtherMode => {}
        }
    }
    Err(Error::Unavailable(
        "content: the task's mode changes faster than the content can be checked; repeat the call",
    ))
}

/// Checks a new content against the task's delivery mode, which stays. `raw` comes with its body,
/// because a long one is read off the runtime.
async fn new_content(
    api: &Arc<Api>,
    lane: &Lane,
    id: TaskId,
    raw: &RawValue,
    body: &Bytes,
) -> Result<NewContent, Error> {
    let task = api.store.get(Reader::Worker, lane, id).await?.ok_or_else(Error::no_task)?;
    let mode = if task.destination.is_pull() { Mode::Pull } else { Mode::Push };
    let (checking, raw) = (api.clone(), raw.to_owned());
    let read = move |rules: &TaskRules<'_>| {
        let content = new_task::content(raw, mode, rules.content_limit)?;
        let destination = new_task::destination(mode, rules.services, || new_target(&content))?;
        Ok::<_, Error>(NewContent { destination, content, keeps_mode: true })
    };
    reading(body.clone(), move |_| checking.checked(None, read)).await
}
