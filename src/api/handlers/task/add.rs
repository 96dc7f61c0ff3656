//! `POST /delay/task/add` and `add_batch`: checks tasks and stores them.
//!
//! A 2xx means that the task is stored. After the checks of
//! [`crate::api::handlers::task::new_task`], only the topic or the store can fail.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
pub(crate) use delayd_wire::BatchRequest;
use delayd_wire::{AtMost, Batch, BatchItem, Stored, SuccessAnswer, Way};
use futures_util::future::join_all;
use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::api::auth::Caller;
use crate::api::handlers::task::new_task::{self, CheckedTask};
use crate::api::handlers::task::placing::{PLACINGS, placed};
use crate::api::middleware::call::RawRequest;
use crate::api::state::Api;
use crate::api::wire::batch::{ErrorTexts, failure_of_all};
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::idempotency;
use crate::api::wire::json;
use crate::api::wire::long_body::{LONG, reading, size};
use crate::api::wire::shown::{stored, way_of};
use crate::metrics::AddResult;
use crate::model::task::{TaskId, Topic};
use crate::model::zone::Zone;
use crate::store::{self, Intake, NewTask, Registered, Store};
use crate::trace::{AddSpan, Adding};
use axum::extract::State;

/// `POST /delay/task/add`
pub(crate) async fn add(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RawRequest { headers, body }: RawRequest,
) -> Result<Success<Stored>, Error> {
    let added = timed(&api, add_one(&api, &headers, &body, &caller)).await;
    added.map_err(|error| api.explained(error, &caller))
}

/// Measures an add for the metrics.
async fn timed<T>(api: &Api, add: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let added = add.await;
    api.metrics.api.add_took(started.elapsed());
    added
}

async fn add_one(
    api: &Arc<Api>,
    headers: &HeaderMap,
    body: &Bytes,
    caller: &Caller,
) -> Result<Success<Stored>, Error> {
    let header_key = idempotency::of_header(headers)?;
    api.check_accepting()?;
    let trace = api.tracer.adding(headers);
    let mut tries = 0;
    loop {
        let checked = read_one(api, &header_key, body).await?;
        let name = checked.topic.clone();
        let topic = api.topics.ensure_for(&name, 1, |share| caller.creator(share)).await?;
        let (mut task, way, zone) = task_of(checked, topic);
        let span = trace.begin(&name, &mut task.options);
        tries += 1;
        match api.store.add(vec![task]).await.pop().expect("a store answers every task") {
            // Nothing was stored. Reading the body again is cheaper than copying it each time.
            Err(store::Error::StaleEntry) if tries < PLACINGS => api.topics.reload(&name).await?,
            added => {
                let added = added
                    .map(|added| stored(added, way, zone.as_ref(), api.store.durability()))
                    .map_err(Error::from);
                if let Some(span) = span {
                    trace.end(span, span_result(&added));
                }
                let stored = added?;
                count(api, &stored);
                return Ok(Success::of(stored));
            }
        };
    }
}

async fn read_one(
    api: &Arc<Api>,
    header_key: &Option<String>,
    body: &Bytes,
) -> Result<CheckedTask, Error> {
    if body.len() <= LONG {
        return api.checked(header_key.as_deref(), |rules| new_task::read(body, rules));
    }
    let (api, header_key) = (api.clone(), header_key.clone());
    reading(body.clone(), move |body| {
        api.checked(header_key.as_deref(), |rules| new_task::read(body, rules))
    })
    .await
}

fn count(api: &Api, stored: &Stored) {
    api.metrics.api.added(stored.mode, result_of(stored));
}

fn result_of(stored: &Stored) -> AddResult {
    match stored {
        Stored { duplicate: true, .. } => AddResult::Duplicate,
        Stored { replaced: true, .. } => AddResult::Replaced,
        _ => AddResult::New,
    }
}

/// What the span of an add shows of its result: the task and what became of it, or the code of the
/// error.
type SpanResult = Result<(TaskId, AddResult), u16>;

fn span_result(added: &Result<Stored, Error>) -> SpanResult {
    match added {
        Ok(stored) => Ok((TaskId(stored.task_id.0), result_of(stored))),
        Err(error) => Err(error.code().number()),
    }
}

/// `POST /delay/task/add_batch`
pub(crate) async fn add_batch(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RawRequest { headers, body }: RawRequest,
) -> Result<Response, Error> {
    timed(&api, add_all(&api, &headers, body, caller)).await
}

async fn add_all(
    api: &Arc<Api>,
    headers: &HeaderMap,
    body: Bytes,
    caller: Caller,
) -> Result<Response, Error> {
    let header_key = idempotency::of_header(headers)?;
    api.check_accepting()?;
    if header_key.is_some() {
        return Err(Error::invalid(
            "Idempotency-Key: is for a single add; give each task of a batch its own \
             idempotency_key",
        ));
    }
    let read = || {
        let (api, caller) = (api.clone(), caller.clone());
        reading(body.clone(), move |body| all_checked(&api, &caller, body))
    };
    let trace = &api.tracer.adding(headers);
    let (trace, by) = (trace, &caller);
    let store = |checked| async move { Ok(store(api, by, trace, checked).await) };
    let results = placed(api, read, store, |checked: &CheckedTask| &checked.topic).await?;
    results.iter().flatten().for_each(|stored| count(api, stored));
    batch(results)
}

/// Reads and checks each task of a batch.
///
/// # Errors
/// If the body is not a batch.
pub(crate) fn all_checked(
    api: &Api,
    caller: &Caller,
    body: &[u8],
) -> Result<Vec<Result<CheckedTask, Error>>, Error> {
    let request: BatchRequest = json::read(body)?;
    let AtMost(tasks) = request.tasks;
    let (limit, longest) = (api.bounds().batch_limit, api.bounds().body_limit);
    if !(1..=limit).contains(&tasks.len()) {
        return Err(Error::Invalid(format!(
            "tasks: must hold 1 to {limit} tasks, not {}",
            tasks.len()
        )));
    }
    Ok(api.checked(None, |rules| {
        let read = |task: Box<RawValue>| {
            if task.get().len() > longest {
                return Err(Error::TooLarge(format!("the task is larger than {}", size(longest))));
            }
            let checked = new_task::read(task.get().as_bytes(), rules)?;
            caller.may_use(&checked.topic).map(|()| checked)
        };
        tasks.into_iter().map(read).collect()
    }))
}

/// Stores the tasks that passed the checks, in one call. One result per task, in order.
async fn store(
    api: &Api,
    caller: &Caller,
    trace: &Adding<'_>,
    checked: Vec<Result<CheckedTask, Error>>,
) -> Vec<Result<Stored, Error>> {
    let topics = topics(api, caller, &checked).await;
    let mut tasks = Vec::with_capacity(checked.len());
    // For each task, its failure, or its delivery mode, zone and span.
    let mut modes = Vec::with_capacity(checked.len());
    for checked in checked {
        modes.push(checked.and_then(|checked| {
            let topic =
                topics.get(&checked.topic).expect("every checked topic was asked for").clone()?;
            let (mut task, mode, zone) = task_of(checked, topic);
            let span = trace.begin(&task.topic.topic, &mut task.options);
            tasks.push(task);
            Ok((mode, zone, span))
        }));
    }
    if tasks.is_empty() {
        return modes.into_iter().map(|mode| Err(mode.expect_err("nothing passed"))).collect();
    }
    let mut added = api.store.add(tasks).await.into_iter();
    // Read after the add, because a store that was unavailable may have learnt it only now.
    let durability = api.store.durability();
    let answer = |mode: Result<(Way, Option<Zone>, Option<AddSpan>), Error>| {
        let (mode, zone, span) = mode?;
        let added = added.next().expect("a store answers every task");
        let added =
            added.map(|added| stored(added, mode, zone.as_ref(), durability)).map_err(Error::from);
        // A task that is to be placed again gets another span.
        if let Some(span) = span.filter(|_| !added.as_ref().is_err_and(Error::is_stale_entry)) {
            trace.end(span, span_result(&added));
        }
        added
    };
    modes.into_iter().map(answer).collect()
}

/// The new task, how it is delivered, and the zone in which its due time is shown.
fn task_of(checked: CheckedTask, topic: Registered) -> (NewTask, Way, Option<Zone>) {
    let CheckedTask { destination, moment, zone, options, content, idempotency, .. } = checked;
    let Registered { entry: topic, policy, .. } = topic;
    let (quota, mode) = (policy.quota_of_lane(topic.shards), way_of(&destination));
    (NewTask { topic, destination, moment, options, content, idempotency, quota }, mode, zone)
}

/// The topics' entries. Each is requested once, and all of them concurrently. So new topics cost
/// little more than one, and a store that does not respond is waited for only once.
async fn topics(
    api: &Api,
    caller: &Caller,
    checked: &[Result<CheckedTask, Error>],
) -> HashMap<Topic, Result<Registered, Error>> {
    let mut seen = HashSet::new();
    let topics =
        checked.iter().flatten().map(|checked| &checked.topic).filter(|topic| seen.insert(*topic));
    let ensure = async |topic: &Topic| {
        let known = api.topics.ensure_for(topic, 1, |share| caller.creator(share)).await;
        (topic.clone(), known.map_err(Error::from))
    };
    join_all(topics.map(ensure)).await.into_iter().collect()
}

/// The answer to a batch. If the store confirmed none of the tasks that reached it, the whole batch
/// is unconfirmed. If every task failed, the answer is a failure with the highest code.
fn batch(results: Vec<Result<Stored, Error>>) -> Result<Response, Error> {
    let reached = || results.iter().filter(|result| matches!(result, Ok(_) | Err(Error::Store(_))));
    let failures = results.iter().filter_map(|result| match result {
        Err(error @ Error::Store(_)) => Some(error.clone()),
        _ => None,
    });
    // If one task may have been stored, the batch may have been.
    if let Some(error) = failures.max_by_key(Error::was_stored) {
        if reached().all(|result| result.as_ref().is_err_and(Error::is_unavailable)) {
            return Err(error);
        }
        error.log();
    }
    if let Some(failure) = failure_of_all("tasks", &results) {
        return Ok(failure);
    }
    let failed = results.iter().filter(|result| result.is_err()).count();
    let mut texts = ErrorTexts::default();
    let item = |result: Result<Stored, Error>| match result {
        Ok(stored) => BatchItem::Stored(SuccessAnswer::of(stored)),
        Err(error) => BatchItem::Failed { dm_error: error.code(), error_msg: texts.of(&error) },
    };
    let results = results.into_iter().map(item).collect();
    Ok(Success::of(Batch { failed, results }).into_response())
}

#[cfg(test)]
mod tests {
    use delayd_wire::{Durability, Rfc3339, TaskId, UnixMillis};

    use super::*;
    use crate::api::testing::json_of;
    use crate::store;

    fn stored() -> Result<Stored, Error> {
        Ok(Stored {
            task_id: TaskId(7),
            due_ms: UnixMillis(1),
            due: Rfc3339("1970-01-01T00:00:00.001Z".into()),
            mode: Way::Pull,
            durability: Durability::Fsynced,
            duplicate: false,
            state: None,
            replaced: false,
        })
    }

    fn unreachable() -> Result<Stored, Error> {
        Err(store::Error::Unavailable("redis://secret".into()).into())
    }

    fn bad() -> Result<Stored, Error> {
        Err(Error::invalid("topic: is missing"))
    }

    #[test]
    fn a_batch_of_which_one_task_may_be_stored_may_be_stored() {
        let full = || Err(store::Error::Full("x".into()).into());
        for results in [vec![full(), unreachable()], vec![unreachable(), full(), bad()]] {
            let refused = batch(results).unwrap_err();
            assert_eq!(refused.was_stored(), Some(delayd_wire::WasStored::Unknown));
        }
        assert_eq!(
            batch(vec![full(), full()]).unwrap_err().was_stored(),
            Some(delayd_wire::WasStored::No)
        );
    }

    #[tokio::test]
    async fn a_batch_answers_each_task_in_its_place() {
        let text = json_of(batch(vec![stored(), bad(), unreachable()]).unwrap()).await;
        assert_eq!(text["dm_error"], 0);
        assert_eq!(text["failed"], 2);
        assert_eq!(text["results"][0]["task_id"], 7);
        assert_eq!(text["results"][0]["dm_error"], 0);
        assert_eq!(text["results"][1]["dm_error"], 1000);
        assert_eq!(text["results"][1]["error_msg"], "topic: is missing");
        assert_eq!(text["results"][2]["dm_error"], 2003);
        assert!(!text.to_string().contains("secret"), "{text}");
    }

    #[test]
    fn a_batch_of_which_the_store_took_nothing_is_unconfirmed_as_a_whole() {
        let check = |results: Vec<Result<Stored, Error>>, whole: bool| {
            let said = format!("{results:?}");
            assert_eq!(batch(results).is_err(), whole, "{said}");
        };
        check(vec![unreachable(), unreachable()], true);
        check(vec![bad(), unreachable()], true);
        check(vec![stored(), unreachable()], false);
        check(vec![bad(), bad()], false);
        check(vec![Err(Error::TooManyTopics(1)), bad()], false);
    }

    /// It once answered `dm_error` 0, and a caller that looked only at this believed that its tasks
    /// were stored.
    #[tokio::test]
    async fn a_batch_of_which_every_task_failed_is_a_failure() {
        let check = async |results: Vec<Result<Stored, Error>>, status: u16, dm_error: u16| {
            let (said, count) = (format!("{results:?}"), results.len());
            let response = batch(results).unwrap();
            assert_eq!(response.status().as_u16(), status, "{said}");
            assert_eq!(response.headers().contains_key("retry-after"), status == 429, "{said}");
            let answer = json_of(response).await;
            assert_eq!(
                (&answer["dm_error"], answer["results"].as_array().unwrap().len()),
                (&dm_error.into(), count)
            );
            assert_eq!(answer["failed"], if dm_error == 0 { 1 } else { count }, "{said}");
            assert!(
                dm_error == 0 || answer["error_msg"].as_str().unwrap().contains("none of the"),
                "{answer}"
            );
        };
        let over_quota = || Err(store::Error::OverQuota.into());
        check(vec![bad()], 400, 1000).await;
        check(vec![bad(), bad()], 400, 1000).await;
        check(vec![Err(store::Error::KeyReused.into())], 422, 1022).await;
        check(vec![over_quota(), bad()], 429, 1029).await;
        check(vec![bad(), Err(Error::TooManyTopics(1))], 429, 1029).await;
        check(vec![bad(), stored()], 200, 0).await;
    }
}
