//! How tasks come in, and whether an added task is a duplicate.

use std::borrow::Cow;
use std::time::Duration;

use delayd_wire::Durability;

use super::topics::TopicEntry;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Options, State, TaskId};
use crate::store::Result;

contract! {
    /// Stores new tasks.
    pub trait Intake {
        /// Stores new tasks, each at most once, and allocates their ids. One answer per task, in
        /// order. A task whose answer is [`Error::Unavailable`](crate::store::Error::Unavailable)
        /// may or may not be stored. A task whose entry has another number of lanes than the
        /// registry is not stored ([`Error::StaleEntry`](crate::store::Error::StaleEntry)).
        async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> => Add;
    }
}

/// What an operator should know about a durability.
pub fn warning_of(durability: Durability) -> Option<&'static str> {
    let is_lost = durability == Durability::Volatile;
    is_lost.then_some(
        "Redis does not sync its tasks to disk each second, or forbids CONFIG: a crash of it may \
         lose tasks (durability: volatile)",
    )
}

/// When a task falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At this moment; a past one means the store's now.
    At(UnixMillis),
    /// This long after the store's now.
    After(Duration),
}

impl Moment {
    /// The due moment, if the store's clock shows `now`.
    pub fn due(self, now: UnixMillis) -> UnixMillis {
        match self {
            Self::At(moment) => moment.max(now),
            Self::After(wait) => now + wait,
        }
    }
}

/// A task to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTask {
    /// Its topic, as registered.
    pub topic: TopicEntry,
    /// Where it goes.
    pub destination: Destination,
    /// When it falls due.
    pub moment: Moment,
    /// Its own settings.
    pub options: Options,
    /// The content, kept byte for byte.
    pub content: String,
    /// Makes the add safe to repeat.
    pub idempotency: Option<Idempotency>,
    /// The most waiting and leased tasks of its lane, including this one. Beyond it, the add fails
    /// with [`Error::OverQuota`](crate::store::Error::OverQuota).
    pub quota: Option<u64>,
}

impl NewTask {
    /// The shard of the task's `key` or, without one, of its idempotency key, so that the lane
    /// alone can tell a duplicate. `None`: any shard.
    pub fn pinned_shard(&self) -> Option<u16> {
        let idempotency_key = self.idempotency.as_ref().map(|idempotency| &*idempotency.key);
        let key = self.options.key.as_deref().or(idempotency_key)?;
        Some(Lane::shard_of_key(key, self.topic.shards))
    }

    /// The name under which the lane remembers the idempotency key.
    pub fn idempotency_name(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.idempotency.as_ref().map(|idempotency| idempotency.name(self.options.key.as_deref()))
    }
}

/// The id and the due moment of an added task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its id: a new one, or that of the earlier task.
    pub id: TaskId,
    /// The due moment by the store's clock. Of a duplicate: the present one.
    pub due: UnixMillis,
    /// Whether the add created a task.
    pub novelty: Novelty,
}

/// Makes an add safe to repeat: the same key and fingerprint within the window answer the first
/// task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key, 1 to 256 bytes of any text.
    pub key: String,
    /// A hash of the request. Another one under the same key is
    /// [`Error::KeyReused`](crate::store::Error::KeyReused).
    pub fingerprint: u128,
    /// How long the key is remembered, from the first add, by the store's clock. The key outlives
    /// the task.
    pub window: Duration,
}

/// The first character of an idempotency key's name, unless the name is the key itself.
const MARK: char = '\u{1f}';

impl Idempotency {
    /// The name under which a lane remembers this key for an add with that `key`.
    pub fn name(&self, key: Option<&str>) -> Cow<'_, str> {
        idempotency_name(key, &self.key)
    }
}

/// The name under which a lane remembers an idempotency key for an add with that `key`. An
/// idempotency key is unique within a topic and `key`, whatever the topic's number of lanes.
/// Without a `key` the name is the idempotency key, unless that begins with the mark.
pub(super) fn idempotency_name<'a>(key: Option<&str>, idempotency_key: &'a str) -> Cow<'a, str> {
    match key {
        Some(key) => format!("{MARK}{}:{key}{idempotency_key}", key.len()).into(),
        None if idempotency_key.starts_with(MARK) => format!("{MARK}:{idempotency_key}").into(),
        None => idempotency_key.into(),
    }
}

/// Whether an add created a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// It did.
    New,
    /// It did not: the task was added before, under the same idempotency key. Nothing changed.
    Duplicate {
        /// The state of that task now. `None` if it is forgotten, or cannot be read.
        state: Option<State>,
    },
    /// It did not: the pending task with the same `key` got the new moment, content and options.
    Replaced,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pairs_of_keys_have_one_name() {
        let pairs = [
            (None, "ab"),
            (Some("a"), "b"),
            (Some("ab"), ""),
            (Some(""), "ab"),
            (None, "1:ab"),
            (None, "\u{1f}1:ab"),
            (None, "\u{1f}:ab"),
            (None, "\u{1f}:\u{1f}1:ab"),
            (Some("1:a"), "b"),
            (Some("11:"), "ab"),
        ];
        let name = |(key, idempotency_key): (Option<&str>, &str)| {
            let window = Duration::ZERO;
            Idempotency { key: idempotency_key.into(), fingerprint: 0, window }
                .name(key)
                .into_owned()
        };
        let names: std::collections::HashSet<String> = pairs.into_iter().map(name).collect();
        assert_eq!(names.len(), pairs.len(), "{names:?}");
        assert_eq!(name((None, "order-7")), "order-7");
    }
}
