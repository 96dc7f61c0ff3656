//! `POST /delay/task/get`: shows one task.
//!
//! A header of the callback may be a secret, so only `admin` sees its value. Others see null, which
//! means absent in an add: if a caller adds a copy of the task, no placeholder is sent as a
//! password.

use std::sync::Arc;

use delayd_wire::{Found, GetRequest, Task};
use serde_json::Value;

use crate::api::middleware::route::Routed;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::{Id, Name, TopicName};
use crate::api::wire::json::{self, required};
use crate::api::wire::shown::{last_outcome, sn_of, way_of};
use crate::model::task::{Lane, OnDead, Options, StoreId};
use crate::store::{self, Admin, AttemptNote, Delivery};

pub(crate) type Request = GetRequest<TopicName, Id>;

fn shown(
    task: store::Task,
    notes: Vec<AttemptNote>,
    store: StoreId,
    with_secrets: bool,
) -> Task<Value> {
    let options = options(&task.options, with_secrets);
    Task {
        task_id: task.id.into(),
        webhook_id: task.options.origin.unwrap_or(store).webhook_id(task.id),
        state: task.state,
        mode: way_of(&task.destination),
        sn: sn_of(&task.destination),
        key: task.options.key,
        due_ms: task.due.into(),
        due: task.due.into(),
        attempts: task.attempts,
        created_ms: task.created.into(),
        finished_ms: task.finished.map(Into::into),
        lease: task.lease.map(Into::into),
        last_outcome: last_outcome(task.last_outcome),
        options,
        content: task.content,
        log: notes.into_iter().map(Into::into).collect(),
    }
}

/// The options in the form that an add takes: without the key, which is a field of the task,
/// without the origin, and without the id of the dead-letter callback.
fn options(options: &Options, with_secrets: bool) -> Value {
    let on_dead = options.on_dead.clone().map(|call| OnDead { task_id: None, ..call });
    let shown = Options { origin: None, key: None, on_dead, ..options.clone() };
    let mut shown = serde_json::to_value(shown).expect("options are plain data");
    if !with_secrets && let Some(headers) = shown.get_mut("headers").and_then(Value::as_object_mut)
    {
        headers.values_mut().for_each(|value| *value = Value::Null);
    }
    shown
}

/// `POST /delay/task/get`
pub(crate) async fn get(
    api: Arc<Api>,
    Routed { request, caller, .. }: Routed,
) -> Result<Success<Found<Value>>, Error> {
    let request: Request = json::read(request.body())?;
    let Name(topic) = required(request.topic, "topic")?;
    let id = required(Id::given(request.task_id), "task_id")?;
    let find = |lane: Lane| {
        let store = &api.store;
        async move {
            let task = store.get(&lane, id).await?.ok_or_else(Error::no_task)?;
            Ok((lane, task))
        }
    };
    let (lane, task) = api.in_lane(&topic, id, find).await?;
    let store = api.store.id().await?;
    // The answer is useful without the log.
    let notes = api.store.notes(&lane, id).await.unwrap_or_default();
    Ok(Success::of(Found { task: shown(task, notes, store, caller.sees_secrets()) }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::task::Headers;

    #[test]
    fn a_headers_name_is_shown_to_all_and_its_value_to_few() {
        let secret = [("Authorization".to_owned(), "Bearer secret".to_owned())];
        let given = Options {
            max_attempts: Some(3),
            headers: Headers::new(secret).unwrap(),
            ..Options::default()
        };
        let check = |with_secrets: bool, expected: Value| {
            assert_eq!(options(&given, with_secrets), expected)
        };
        check(true, json!({"max_attempts": 3, "headers": {"authorization": "Bearer secret"}}));
        check(false, json!({"max_attempts": 3, "headers": {"authorization": null}}));
        assert_eq!(options(&Options::default(), false), json!({}));
    }
}
