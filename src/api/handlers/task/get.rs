//! `POST /delay/task/get`: shows one task.
//!
//! A header of the callback may be a secret, so only `admin` sees its value. Others see null, which
//! means absent in an add: if a caller adds a copy of the task, no placeholder is sent as a
//! password. A token with only the scope `view` sees no content, no headers, no answers of
//! receivers and no texts of outcomes.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{Attempt, Found, Task};
use serde_json::Value;

use super::named::{NamedTask, act_on};
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::shown::{last_outcome, sn_of, way_of};
use crate::model::task::{Lane, OnDead, Options, StoreId, TaskId, Topic};
use crate::store::{self, Admin, AttemptNote, Reader, Signals};

pub(crate) use delayd_wire::GetRequest as Request;

fn shown(
    task: store::Task,
    notes: Vec<AttemptNote>,
    store: StoreId,
    topic: &Topic,
    caller: &Caller,
) -> Task {
    let options = options(&task.options, caller);
    let content_removed = task.options.removed.is_some();
    let schedule = task.options.schedule.as_deref().map(Into::into);
    Task {
        task_id: task.id.into(),
        webhook_id: task.options.webhook_id(store, topic, task.id),
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
        last_outcome: last_outcome(task.last_outcome).and_then(|text| caller.content(text)),
        options,
        content: caller.content(task.content).filter(|_| !content_removed),
        content_removed,
        schedule,
        log: notes.into_iter().map(|note| attempt(note, caller)).collect(),
    }
}

fn attempt(note: AttemptNote, caller: &Caller) -> Attempt {
    Attempt {
        attempt: note.attempt,
        started_ms: note.started.into(),
        duration_ms: note.took.as_millis() as u64,
        wait_ms: note.wait.map(|wait| wait.as_millis() as u64),
        outcome: caller.content(note.outcome),
        answer: caller.content(note.answer),
    }
}

/// The options in the form that an add takes: without the key and the schedule, which are fields
/// of the task, without the origin, the trace, the digest, and the id of the dead-letter callback.
pub(crate) fn options(options: &Options, caller: &Caller) -> Value {
    let on_dead = options.on_dead.clone().map(|call| OnDead { task_id: None, ..call });
    let shown = Options {
        origin: None,
        key: None,
        on_dead,
        traceparent: None,
        schedule: None,
        removed: None,
        ..options.clone()
    };
    let mut shown = serde_json::to_value(shown).expect("options are plain data");
    if !caller.sees_secrets()
        && let Some(headers) = shown.get_mut("headers").and_then(Value::as_object_mut)
    {
        headers.values_mut().for_each(|value| *value = Value::Null);
    }
    if !caller.sees_content()
        && let Some(shown) = shown.as_object_mut()
    {
        shown.remove("headers");
        if let Some(url) = shown.get_mut("on_dead").and_then(|call| call.get_mut("url")) {
            *url = Value::Null;
        }
    }
    shown
}

/// `POST /delay/task/get`
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<Found>, Error> {
    let Request { topic, task_id, key, idempotency_key } = request;
    let name = NamedTask { task_id, key, idempotency_key }.read()?;
    let _place = api.place(&api.gets, &caller).await?;
    let find = |lane: Lane, id: TaskId| {
        let store = &api.store;
        async move {
            let task = store.get(Reader::Viewer, &lane, id).await?.ok_or_else(Error::no_task)?;
            Ok((lane, task))
        }
    };
    let (lane, task) = act_on(&api, &topic, &name, find).await?;
    let store = api.store.id().await?;
    // The answer is useful without the log.
    let notes = api.store.notes(&lane, task.id).await.unwrap_or_default();
    Ok(Success::of(Found { task: shown(task, notes, store, &lane.topic, &caller) }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::task::Headers;
    use crate::model::token::Scope::{self, Admin, Consume, Produce, View};

    #[test]
    fn each_scope_sees_of_the_options_what_it_may() {
        let secret = [("Authorization".to_owned(), "Bearer secret".to_owned())];
        let (sn, url) = ("a.b".parse().unwrap(), "/x?secret".into());
        let on_dead = OnDead { sn, url, task_id: None };
        let given = Options {
            max_attempts: Some(3),
            headers: Headers::new(secret).unwrap(),
            on_dead: Some(on_dead),
            ..Options::default()
        };
        let check = |scopes: &[Scope], expected: Value| {
            assert_eq!(options(&given, &Caller::with(scopes)), expected, "{scopes:?}");
        };
        let of = |headers: Value, url: Value| {
            let on_dead = json!({"sn": "a.b", "url": url});
            json!({"max_attempts": 3, "headers": headers, "on_dead": on_dead})
        };
        let (hidden, url) = (json!({"authorization": null}), json!("/x?secret"));
        check(&[Admin], of(json!({"authorization": "Bearer secret"}), url.clone()));
        check(&[Produce], of(hidden.clone(), url.clone()));
        check(&[Consume, View], of(hidden, url));
        check(&[View], json!({"max_attempts": 3, "on_dead": {"sn": "a.b", "url": null}}));
        assert_eq!(options(&Options::default(), &Caller::with(&[View])), json!({}));
    }
}
