//! `POST /delay/task/cancel` and `update`.

use std::sync::Arc;

use bytes::Bytes;
use delayd_wire::{Gone, Moved, Span};
use serde_json::value::RawValue;

use crate::api::handlers::task::new_task::{self, Rules};
use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{Id, Name, Number, TopicName};
use crate::api::wire::json::{self, required};
use crate::api::wire::long_body::reading;
use crate::callback::target_of_object;
use crate::metrics::End;
use crate::model::task::{Lane, Mode, TaskId};
use crate::store::{Admin, Cancelled, Moment, NewContent, Rescheduled};

pub(crate) type CancelRequest = delayd_wire::CancelRequest<TopicName, Id>;

pub(crate) type UpdateRequest<'a> =
    delayd_wire::UpdateRequest<TopicName, Id, Number, Span, &'a RawValue>;

/// `POST /delay/task/cancel`: after a success, the task is never delivered.
pub(crate) async fn cancel(
    api: Arc<Api>,
    Routed { request, .. }: Routed,
) -> Result<Success<Gone>, Error> {
    let request: CancelRequest = json::read(request.body())?;
    let Name(topic) = required(request.topic, "topic")?;
    let task_id = required(Id::given(request.task_id), "task_id")?;
    let (store, tasks) = (&api.store, &api.metrics.tasks);
    let cancel = |lane: Lane| async move {
        match store.cancel(&lane, task_id).await? {
            Cancelled::Done => {
                tasks.ended(End::Cancel);
                Ok(Success::of(Gone { task_id: task_id.into() }))
            }
            Cancelled::Pending => Err(Error::CancelPending),
            Cancelled::Refused { state } => Err(Error::Conflict(state)),
            Cancelled::Unknown => Err(Error::no_task()),
        }
    };
    api.in_lane(&topic, task_id, cancel).await
}

/// `POST /delay/task/update`
pub(crate) async fn update(
    api: Arc<Api>,
    Routed { request, .. }: Routed,
) -> Result<Success<Moved>, Error> {
    api.check_accepting()?;
    let (topic, task_id, moment, content) = {
        let api = api.clone();
        let read = move |body: &[u8]| {
            let request: UpdateRequest<'_> = json::read(body)?;
            let Name(topic) = required(request.topic, "topic")?;
            let task_id = required(Id::given(request.task_id), "task_id")?;
            let moment = api.checked(None, |rules| {
                new_task::moment(request.timing_moment, request.delay, rules)
            })?;
            Ok::<_, Error>((topic, task_id, moment, request.content.map(ToOwned::to_owned)))
        };
        reading(request.body().clone(), read).await?
    };
    let content = content.as_deref().map(|raw| (raw, request.body()));
    let moved = api
        .in_lane(&topic, task_id, |lane| reschedule(&api, lane, task_id, moment, content))
        .await?;
    Ok(Success::of(moved))
}

/// Reschedules the task. `content` comes with its body, because a long one is read off the runtime.
async fn reschedule(
    api: &Arc<Api>,
    lane: Lane,
    task_id: TaskId,
    moment: Moment,
    content: Option<(&RawValue, &Bytes)>,
) -> Result<Moved, Error> {
    let content = match content {
        None => None,
        Some((raw, body)) => {
            // Its delivery mode stays.
            let task = api.store.get(&lane, task_id).await?.ok_or_else(Error::no_task)?;
            let mode = if task.destination.is_pull() { Mode::Pull } else { Mode::Push };
            let content = {
                let (api, raw) = (api.clone(), raw.to_owned());
                let read = move |rules: &Rules<'_>| {
                    let content = new_task::content(&raw, mode, rules.content_limit)?;
                    let destination =
                        new_task::destination(mode, rules.services, || target_of_object(&content))?;
                    Ok::<_, Error>(NewContent { destination, content })
                };
                reading(body.clone(), move |_| api.checked(None, read)).await?
            };
            Some(content)
        }
    };
    match api.store.reschedule(&lane, task_id, moment, content).await? {
        Rescheduled::Done { due } => {
            Ok(Moved { task_id: task_id.into(), due_ms: due.into(), due: due.into() })
        }
        Rescheduled::Refused { state } => Err(Error::Conflict(state)),
        Rescheduled::Unknown => Err(Error::no_task()),
    }
}
