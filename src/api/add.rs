//! Producing: a task, or many at once, checked and put into the store.
//!
//! A 2xx means that the task is kept. Whatever else happens to a stored task happens without the caller, so a failed
//! topic or store is the only thing that can still go wrong after the checks of [`super::new_task`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::auth::Caller;
use super::body::JsonBody;
use super::envelope::{self, Success};
use super::error::Error;
use super::json::{self, required};
use super::new_task::{self, Checked};
use super::openapi::values::{Durability, Way};
use super::sameness::HeaderKey;
use crate::clock::UnixMillis;
use crate::store::{self, Added, NewTask, Novelty, Registered, Store};
use crate::task::{Destination, TaskId, Topic};

/// How often a task is placed in all, if its topic's number of shards turns out to be another one than this instance knew.
pub(super) const PLACINGS: usize = 3;

/// The answer to a stored task.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stored {
    /// The task, by which all other calls name it.
    task_id: TaskId,
    /// When it is due.
    due_ms: UnixMillis,
    /// How it leaves.
    #[schema(value_type = Way)]
    mode: &'static str,
    /// What the stored task survives.
    #[schema(value_type = Durability)]
    durability: &'static str,
    /// The task was added before, under the same idempotency key.
    #[serde(skip_serializing_if = "is_false")]
    duplicate: bool,
    /// The pending task of the same `key` was moved.
    #[serde(skip_serializing_if = "is_false")]
    replaced: bool,
}

impl Stored {
    fn of(added: Added, mode: &'static str, durability: store::Durability) -> Self {
        let (duplicate, replaced) = (added.novelty == Novelty::Duplicate, added.novelty == Novelty::Replaced);
        Self { task_id: added.id, due_ms: added.due, mode, durability: durability.as_str(), duplicate, replaced }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The answer to a single add, as [`Success`] would write it: it is the one that is given most, and a serializer's way costs three times as much.
#[derive(Debug)]
pub(super) struct One(Stored);

impl IntoResponse for One {
    fn into_response(self) -> Response {
        let Stored { task_id, due_ms, mode, durability, duplicate, replaced } = self.0;
        let (mut id, mut due) = (itoa::Buffer::new(), itoa::Buffer::new());
        let text = [
            envelope::BEGIN,
            r#","task_id":"#,
            id.format(task_id.0),
            r#","due_ms":"#,
            due.format(due_ms.0),
            r#","mode":""#,
            mode,
            r#"","durability":""#,
            durability,
            if duplicate { r#"","duplicate":true"# } else { "\"" },
            if replaced { r#","replaced":true}"# } else { "}" },
        ];
        envelope::json(text.concat().into())
    }
}

/// The answer to a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Batch {
    /// How many were not stored.
    failed: usize,
    /// Each task's answer, in order.
    results: Vec<Item>,
}

/// By this name the derive need not look into generics.
type StoredInPlace = Success<Stored>;

/// One task of a batch, answered in its place.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = BatchItem)]
pub(super) enum Item {
    Stored(StoredInPlace),
    Failed {
        #[schema(minimum = 1000)]
        dm_error: u16,
        error_msg: String,
    },
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest<'a> {
    // Each is read on its own, so that one bad task does not spoil the others.
    /// Each as in a single add; one bad task does not spoil the others.
    #[serde(borrow)]
    #[schema(value_type = Vec<new_task::Request<'_>>, min_items = 1)]
    pub(super) tasks: Option<Vec<&'a RawValue>>,
}

/// How a task leaves, as the wire names it.
pub(super) fn mode_of(destination: &Destination) -> &'static str {
    if destination.is_pull() { "pull" } else { "push" }
}

/// `POST /delay/task/add`
pub(super) async fn add(
    State(api): State<Arc<Api>>,
    HeaderKey(header_key): HeaderKey,
    JsonBody(body): JsonBody,
) -> Result<One, Error> {
    api.check_accepting()?;
    let mut tries = 0;
    loop {
        let checked = api.checked(header_key.as_deref(), |rules| new_task::read(&body, rules))?;
        let name = checked.topic.clone();
        let topic = api.topics.ensure(&name).await?;
        let (task, mode) = task_of(checked, topic);
        tries += 1;
        match api.store.add(vec![task]).await.pop().expect("a store answers every task") {
            // Nothing was stored. The body is read once more instead of being copied each time.
            Err(store::Error::StaleEntry) if tries < PLACINGS => api.topics.reload(&name).await?,
            added => return Ok(One(Stored::of(added?, mode, api.store.durability()))),
        };
    }
}

/// `POST /delay/task/add_batch`
pub(super) async fn add_batch(
    State(api): State<Arc<Api>>,
    caller: Caller,
    HeaderKey(header_key): HeaderKey,
    JsonBody(body): JsonBody,
) -> Result<Success<Batch>, Error> {
    api.check_accepting()?;
    if header_key.is_some() {
        return Err(Error::invalid(
            "Idempotency-Key: is for a single add; give each task of a batch its own idempotency_key",
        ));
    }
    let request: BatchRequest<'_> = json::read(&body)?;
    let tasks = required(request.tasks, "tasks")?;
    let limit = api.bounds().batch_limit;
    if !(1..=limit).contains(&tasks.len()) {
        return Err(Error::Invalid(format!("tasks: must hold 1 to {limit} tasks, not {}", tasks.len())));
    }
    let read = |tasks: &[&RawValue]| -> Vec<Result<Checked, Error>> {
        api.checked(None, |rules| {
            let read = |task: &&RawValue| {
                let checked = new_task::read(task.get().as_bytes(), rules)?;
                caller.may_use(&checked.topic).map(|()| checked)
            };
            tasks.iter().map(read).collect()
        })
    };
    let mut results = store(&api, read(&tasks)).await;
    for _ in 1..PLACINGS {
        // Nothing was stored of these, for their topics' entries were old ones.
        let stale: Vec<usize> =
            (0..tasks.len()).filter(|&i| results[i].as_ref().is_err_and(Error::is_stale_entry)).collect();
        if stale.is_empty() {
            break;
        }
        let again = read(&stale.iter().map(|&i| tasks[i]).collect::<Vec<_>>());
        reload(&api, again.iter().flatten().map(|checked| &checked.topic)).await?;
        stale.into_iter().zip(store(&api, again).await).for_each(|(i, result)| results[i] = result);
    }
    batch(results).map(Success::of)
}

/// Reads the entries of topics again, each once.
pub(super) async fn reload(api: &Api, topics: impl Iterator<Item = &Topic>) -> Result<(), Error> {
    let topics: HashSet<&Topic> = topics.collect();
    join_all(topics.into_iter().map(|topic| api.topics.reload(topic))).await.into_iter().try_for_each(|read| {
        read?;
        Ok(())
    })
}

/// Stores what passed the checks of a batch, in one call. One answer per task, in order.
async fn store(api: &Api, checked: Vec<Result<Checked, Error>>) -> Vec<Result<Stored, Error>> {
    let topics = topics(api, &checked).await;
    let mut tasks = Vec::with_capacity(checked.len());
    // What is known before the store is asked: a failure, or how the task will leave.
    let mut modes = Vec::with_capacity(checked.len());
    for checked in checked {
        modes.push(checked.and_then(|checked| {
            let topic = topics.get(&checked.topic).expect("every checked topic was asked for").clone()?;
            let (task, mode) = task_of(checked, topic);
            tasks.push(task);
            Ok(mode)
        }));
    }
    if tasks.is_empty() {
        return modes.into_iter().map(|mode| Err(mode.expect_err("nothing passed"))).collect();
    }
    let mut added = api.store.add(tasks).await.into_iter();
    // Asked only now: a store that was out of reach has just learnt it.
    let durability = api.store.durability();
    let answer = |mode: Result<&'static str, Error>| {
        let mode = mode?;
        let added = added.next().expect("a store answers every task")?;
        Ok(Stored::of(added, mode, durability))
    };
    modes.into_iter().map(answer).collect()
}

/// What the store is asked to keep, and how it will leave.
fn task_of(checked: Checked, topic: Registered) -> (NewTask, &'static str) {
    let Checked { destination, moment, options, content, idempotency, .. } = checked;
    let Registered { entry: topic, policy, .. } = topic;
    let (quota, mode) = (policy.quota_of_lane(topic.shards), mode_of(&destination));
    (NewTask { topic, destination, moment, options, content, idempotency, quota }, mode)
}

/// The entries of the checked tasks' topics, each asked for once, and all at the same time: the new ones of a batch cost little more than
/// one, and a store that does not answer is not waited for more than once.
async fn topics(api: &Api, checked: &[Result<Checked, Error>]) -> HashMap<Topic, Result<Registered, Error>> {
    let mut seen = HashSet::new();
    let topics = checked.iter().flatten().map(|checked| &checked.topic).filter(|topic| seen.insert(*topic));
    let ensure = async |topic: &Topic| (topic.clone(), api.topics.ensure(topic).await.map_err(Error::from));
    join_all(topics.map(ensure)).await.into_iter().collect()
}

/// Puts the results side by side. If the store took none of those that got as far as the store, the whole batch is
/// as unconfirmed as a single task would be.
fn batch(results: Vec<Result<Stored, Error>>) -> Result<Batch, Error> {
    let reached = || results.iter().filter(|result| matches!(result, Ok(_) | Err(Error::Store(_))));
    let first_failure = results.iter().find_map(|result| match result {
        Err(error @ Error::Store(_)) => Some(error.clone()),
        _ => None,
    });
    if let Some(error) = first_failure {
        if reached().all(|result| result.as_ref().is_err_and(Error::is_unavailable)) {
            return Err(error);
        }
        error.log();
    }
    let failed = results.iter().filter(|result| result.is_err()).count();
    let item = |result: Result<Stored, Error>| match result {
        Ok(stored) => Item::Stored(Success::of(stored)),
        Err(error) => Item::Failed { dm_error: error.dm_error(), error_msg: error.message() },
    };
    Ok(Batch { failed, results: results.into_iter().map(item).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;

    fn stored() -> Result<Stored, Error> {
        Ok(Stored {
            task_id: TaskId(7),
            due_ms: UnixMillis(1),
            mode: "pull",
            durability: "fsynced",
            duplicate: false,
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
    fn a_batch_answers_each_task_in_its_place() {
        let answer = batch(vec![stored(), bad(), unreachable()]).unwrap();
        let text = serde_json::to_value(Success::of(answer)).unwrap();
        assert_eq!(text["dm_error"], 0);
        assert_eq!(text["failed"], 2);
        assert_eq!(text["results"][0]["task_id"], 7);
        assert_eq!(text["results"][0]["dm_error"], 0);
        assert_eq!(text["results"][1]["dm_error"], 1000);
        assert_eq!(text["results"][1]["error_msg"], "topic: is missing");
        assert_eq!(text["results"][2]["dm_error"], 2003);
        assert!(!text.to_string().contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn a_single_add_is_answered_in_the_words_of_every_success() {
        for (duplicate, replaced) in [(false, false), (true, false), (false, true), (true, true)] {
            let stored = || Stored { duplicate, replaced, ..stored().unwrap() };
            let (one, usual) = (One(stored()).into_response(), Success::of(stored()).into_response());
            assert_eq!(one.headers(), usual.headers());
            let text = |response: Response| axum::body::to_bytes(response.into_body(), usize::MAX);
            assert_eq!(text(one).await.unwrap(), text(usual).await.unwrap());
        }
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
}
