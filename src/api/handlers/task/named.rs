//! The task that a request names: by id, by key or by idempotency key.

use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::api::wire::idempotency::checked;
use crate::model::task::{Lane, TaskId, Topic};
use crate::store::{Admin, TaskName, TopicEntry};

/// The fields that name a task.
#[derive(Debug)]
pub(crate) struct NamedTask {
    pub(crate) task_id: Option<delayd_wire::TaskId>,
    pub(crate) key: Option<String>,
    pub(crate) idempotency_key: Option<String>,
}

impl NamedTask {
    /// The first field that is given.
    pub(crate) fn field(&self) -> Option<&'static str> {
        let given = [
            ("task_id", self.task_id.is_some()),
            ("key", self.key.is_some()),
            ("idempotency_key", self.idempotency_key.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(field, _)| field)
    }

    /// The name. A `key` beside an `idempotency_key` is that of the same add.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no name, or more than one.
    pub(crate) fn read(self) -> Result<TaskName, Error> {
        let key = self.key.map(|key| checked(key, "key")).transpose()?;
        let idempotency_key =
            self.idempotency_key.map(|key| checked(key, "idempotency_key")).transpose()?;
        match (self.task_id.map(TaskId::from), key, idempotency_key) {
            (Some(id), None, None) => Ok(TaskName::Id(id)),
            (None, Some(key), None) => Ok(TaskName::Key(key)),
            (None, key, Some(idempotency_key)) => {
                Ok(TaskName::Idempotency { key, idempotency_key })
            }
            (None, None, None) => Err(Error::invalid(
                "task_id: is missing; a task may also be named by its key or idempotency_key",
            )),
            (Some(_), ..) => Err(Error::invalid(
                "task_id: cannot be combined with key or idempotency_key; name the task by its id \
                 or by its key",
            )),
        }
    }
}

/// The most look-ups of one call. Each further one needs an add that gave the key to another task.
pub(crate) const LOOKS: usize = 8;

/// Calls `act` with the lane and the id of the task that the name has in the topic.
///
/// The key may pass to a newer task between the look-up and `act`. A change therefore brings the
/// name along ([`TaskName::condition`]), and the store compares it in the same step: a
/// cancel by key never cancels an old task while a newer one of the key waits. `act` then answers
/// [`Error::NotFound`], and the name is looked up again.
///
/// # Errors
/// [`Error::NotFound`] if no task has the name. Those of `act`.
pub(crate) async fn act_on<T, F>(
    api: &Api,
    topic: &Topic,
    name: &TaskName,
    act: impl Fn(Lane, TaskId) -> F + Send + Sync,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>> + Send,
    T: Send,
{
    if let TaskName::Id(id) = name {
        return api.in_lane(topic, *id, |lane| act(lane, *id)).await;
    }
    let look = || async { look_up(api, topic, name).await?.ok_or_else(|| unknown(topic, name)) };
    repeat(look, act).await
}

/// Looks up a task and acts on it, until it is the one that has the name.
async fn repeat<T, L, F>(
    look: impl Fn() -> L + Send + Sync,
    act: impl Fn(Lane, TaskId) -> F + Send + Sync,
) -> Result<T, Error>
where
    L: Future<Output = Result<(Lane, TaskId), Error>> + Send,
    F: Future<Output = Result<T, Error>> + Send,
{
    let mut missing = None;
    for _ in 0..LOOKS {
        let (lane, id) = look().await?;
        match act(lane, id).await {
            // The same task twice: it was removed, and only its idempotency key is remembered.
            Err(Error::NotFound(_)) if missing == Some(id) => {
                let sentence = format!("idempotency_key: its task {id} is no longer kept");
                return Err(Error::NotFound(sentence.into()));
            }
            Err(Error::NotFound(_)) => missing = Some(id),
            done => return done,
        }
    }
    Err(Error::Unavailable(
        "key: passes from task to task faster than it can be looked up; repeat the call",
    ))
}

/// The task that has the name, by one look into one lane. If there is none, this instance's entry
/// of the topic may be outdated: the entry is read again.
async fn look_up(
    api: &Api,
    topic: &Topic,
    name: &TaskName,
) -> Result<Option<(Lane, TaskId)>, Error> {
    let look = async |entry: &TopicEntry| -> Result<Option<(Lane, TaskId)>, Error> {
        let lane = name.lane_in(entry);
        let found = api.store.find(name, vec![lane.clone()]).await?;
        Ok(found.into_iter().flatten().next().map(|id| (lane, id)))
    };
    let entry = api.topic(topic).await?.entry;
    if let Some(found) = look(&entry).await? {
        return Ok(Some(found));
    }
    let now = api.topics.reload(topic).await?.map(|known| known.entry);
    match now.filter(|now| *now != entry) {
        Some(now) => look(&now).await,
        None => Ok(None),
    }
}

/// The field by which a request names a task.
pub(crate) fn field_of(name: &TaskName) -> &'static str {
    match name {
        TaskName::Id(_) => "task_id",
        TaskName::Key(_) => "key",
        TaskName::Idempotency { .. } => "idempotency_key",
    }
}

fn unknown(topic: &Topic, name: &TaskName) -> Error {
    let sentence = match name {
        TaskName::Id(_) => return Error::no_task(),
        TaskName::Key(key) => format!("key: no task of the topic {topic} has the key {key:?}"),
        TaskName::Idempotency { key: None, idempotency_key } => format!(
            "idempotency_key: no task of the topic {topic} was added with {idempotency_key:?} and \
             without a key, or its window has ended"
        ),
        TaskName::Idempotency { key: Some(key), idempotency_key } => format!(
            "idempotency_key: no task of the topic {topic} was added with {idempotency_key:?} and \
             the key {key:?}, or its window has ended"
        ),
    };
    Error::NotFound(sentence.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_task_has_one_name() {
        let check = |id: Option<u64>, key: Option<&str>, idempotency: Option<&str>, expected| {
            let named = NamedTask {
                task_id: id.map(delayd_wire::TaskId),
                key: key.map(str::to_owned),
                idempotency_key: idempotency.map(str::to_owned),
            };
            assert_eq!(named.read().ok(), expected, "{id:?} {key:?} {idempotency:?}");
        };
        let pair = |key: Option<&str>, idempotency_key: &str| TaskName::Idempotency {
            key: key.map(str::to_owned),
            idempotency_key: idempotency_key.into(),
        };
        check(Some(7), None, None, Some(TaskName::Id(TaskId(7))));
        check(None, Some("k"), Some("i"), Some(pair(Some("k"), "i")));
        check(None, None, Some("i"), Some(pair(None, "i")));
        check(None, None, None, None);
        check(None, Some(""), None, None);
        check(Some(7), Some("k"), None, None);
        check(Some(7), None, Some("i"), None);
    }

    /// Acts on what the looks find, in turn. Returns the result, and the tasks that were acted on.
    async fn acted(found: &[u64], has_passed_on: &[u64]) -> (Result<u64, Error>, Vec<u64>) {
        let (looks, acted) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let look = || async {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            let id = found.get(look).or(found.last()).ok_or_else(Error::no_topic)?;
            Ok(("t:0".parse().unwrap(), TaskId(*id)))
        };
        let act = |_, id: TaskId| {
            acted.lock().unwrap().push(id.0);
            let has_passed_on = has_passed_on.contains(&id.0);
            async move { if has_passed_on { Err(Error::no_task()) } else { Ok(id.0) } }
        };
        let done = repeat(look, act).await;
        (done, acted.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_key_that_passed_on_is_looked_up_again() {
        let (done, tried) = acted(&[1, 2, 3], &[1, 2]).await;
        assert_eq!((done.unwrap(), tried), (3, vec![1, 2, 3]));
        let (done, tried) = acted(&[1], &[]).await;
        assert_eq!((done.unwrap(), tried), (1, vec![1]));
        let (done, tried) = acted(&[], &[]).await;
        assert!(matches!(done, Err(Error::NotFound(_))) && tried.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_only_an_idempotency_key_remembers_is_not_found() {
        let (done, tried) = acted(&[1], &[1]).await;
        assert_eq!(done.unwrap_err().to_string(), "idempotency_key: its task 1 is no longer kept");
        assert_eq!(tried, [1, 1]);
    }

    #[tokio::test]
    async fn a_key_that_passes_on_without_end_ends_the_call() {
        let all: Vec<u64> = (1..100).collect();
        let (done, tried) = acted(&all, &all).await;
        assert!(matches!(done, Err(Error::Unavailable(_))));
        assert_eq!(tried.len(), LOOKS);
    }
}
