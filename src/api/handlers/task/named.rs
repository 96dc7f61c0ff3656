//! The task that a request names: by id, by key or by idempotency key.

use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::api::wire::fields::Id;
use crate::api::wire::idempotency::checked;
use crate::model::task::{TaskId, Topic};
use crate::store::{Admin, TaskName, TopicEntry};

/// The fields that name a task.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) task_id: Option<Id>,
    pub(crate) key: Option<String>,
    pub(crate) idempotency_key: Option<String>,
}

impl Named {
    /// The name. A `key` beside an `idempotency_key` is that of the same add.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no name, or more than one.
    pub(crate) fn read(self) -> Result<TaskName, Error> {
        let key = self.key.map(|key| checked(key, "key")).transpose()?;
        let idempotency_key =
            self.idempotency_key.map(|key| checked(key, "idempotency_key")).transpose()?;
        match (Id::given(self.task_id), key, idempotency_key) {
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

/// The id of the task of a topic. If a key is not found, this instance's entry of the topic may be
/// outdated: the entry is read again.
///
/// # Errors
/// [`Error::NotFound`] if no task has the key.
pub(crate) async fn id_of(api: &Api, topic: &Topic, name: &TaskName) -> Result<TaskId, Error> {
    let unknown = match name {
        TaskName::Id(id) => return Ok(*id),
        TaskName::Key(_) => "key: no task of this topic has it",
        TaskName::Idempotency { .. } => {
            "idempotency_key: no task of this topic was added with it, or its window has ended"
        }
    };
    let look = async |entry: &TopicEntry| -> Result<Option<TaskId>, Error> {
        let found = api.store.find(name, vec![name.lane_in(entry)]).await?;
        Ok(found.into_iter().flatten().next())
    };
    let entry = api.topic(topic).await?.entry;
    if let Some(id) = look(&entry).await? {
        return Ok(id);
    }
    let now = api.topics.reload(topic).await?.map(|known| known.entry);
    let id = match now.filter(|now| *now != entry) {
        Some(now) => look(&now).await?,
        None => None,
    };
    id.ok_or_else(|| Error::NotFound(unknown.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_one_name() {
        let check = |id: Option<&str>, key: Option<&str>, idempotency: Option<&str>, expected| {
            let named = Named {
                task_id: id.map(|id| serde_json::from_str(id).unwrap()),
                key: key.map(str::to_owned),
                idempotency_key: idempotency.map(str::to_owned),
            };
            assert_eq!(named.read().ok(), expected, "{id:?} {key:?} {idempotency:?}");
        };
        let pair = |key: Option<&str>, idempotency_key: &str| TaskName::Idempotency {
            key: key.map(str::to_owned),
            idempotency_key: idempotency_key.into(),
        };
        check(Some("\"7\""), None, None, Some(TaskName::Id(TaskId(7))));
        check(Some("\"0\""), Some("k"), None, Some(TaskName::Key("k".into())));
        check(None, Some("k"), Some("i"), Some(pair(Some("k"), "i")));
        check(None, None, Some("i"), Some(pair(None, "i")));
        check(None, None, None, None);
        check(None, Some(""), None, None);
        check(Some("\"7\""), Some("k"), None, None);
        check(Some("\"7\""), None, Some("i"), None);
    }
}
