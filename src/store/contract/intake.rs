//! How tasks come in, and whether one that is added was added before.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use delayd_wire::Durability;

use super::topics::TopicEntry;
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Options, State, TaskId};
use crate::store::Result;

/// Stores new tasks.
pub trait Intake: Send + Sync + 'static {
    /// What an accepted add survives.
    fn durability(&self) -> Durability;

    /// Stores new tasks, each at most once, and draws their ids. One answer per task, in order. A
    /// task whose answer is an error may or may not be stored
    /// ([`Error::Unavailable`](crate::store::Error::Unavailable)). One whose entry says another
    /// number of lanes than the registry is not stored
    /// ([`Error::StaleEntry`](crate::store::Error::StaleEntry)).
    fn add(&self, tasks: Vec<NewTask>) -> impl Future<Output = Vec<Result<Added>>> + Send;
}

/// What the operator should know of a durability.
pub fn warning_of(durability: Durability) -> Option<&'static str> {
    let is_lost = durability == Durability::Volatile;
    is_lost.then_some(
        "Redis keeps no append-only file: tasks are lost when it stops (durability: volatile)",
    )
}

/// When a task falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At a moment; one in the past means the store's now.
    At(UnixMillis),
    /// So long after the store's now.
    After(Duration),
}

impl Moment {
    /// When that is, if it is `now` by the store's clock.
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
    /// Who gets it.
    pub destination: Destination,
    /// When.
    pub moment: Moment,
    /// Its own settings.
    pub options: Options,
    /// The body, kept byte for byte.
    pub content: String,
    /// Refuses to store it twice.
    pub idempotency: Option<Idempotency>,
    /// The most waiting and leased tasks of its lane, itself included;
    /// [`Error::OverQuota`](crate::store::Error::OverQuota) beyond.
    pub quota: Option<u64>,
}

impl NewTask {
    /// The shard that the task has to lie in: that of its `key`, else of its idempotency key, so
    /// that the lane alone can say whether there is one already. `None`: any.
    pub fn pinned_shard(&self) -> Option<u16> {
        let idempotency_key = self.idempotency.as_ref().map(|idempotency| &*idempotency.key);
        let key = self.options.key.as_deref().or(idempotency_key)?;
        Some(Lane::shard_of_key(key, self.topic.shards))
    }

    /// The name under which its lane remembers its idempotency key.
    pub fn idempotency_name(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.idempotency.as_ref().map(|idempotency| idempotency.name(self.options.key.as_deref()))
    }
}

/// A stored task's name and due moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its id: the drawn one, or that of the task that was there.
    pub id: TaskId,
    /// The due moment by the store's clock.
    pub due: UnixMillis,
    /// Whether there was such a task already.
    pub novelty: Novelty,
}

/// Makes an add safe to repeat: the same key and fingerprint within the window answer the first
/// task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key, 1 to 256 bytes of any text.
    pub key: String,
    /// What was asked for, as a hash: another one under the same key is
    /// [`Error::KeyReused`](crate::store::Error::KeyReused).
    pub fingerprint: u128,
    /// How long the key is remembered, from the first add by the store's clock. It outlives the
    /// task.
    pub window: Duration,
}

/// What the name of an idempotency key begins with if it is not the key itself.
const MARK: char = '\u{1f}';

impl Idempotency {
    /// The name under which a lane remembers this key for an add with that `key`: an idempotency
    /// key is unique within topic and `key`, however
    /// many lanes the topic has. Without a `key` it is its own name, unless it begins as the other
    /// names do.
    pub fn name(&self, key: Option<&str>) -> Cow<'_, str> {
        match key {
            Some(key) => format!("{MARK}{}:{key}{}", key.len(), self.key).into(),
            None if self.key.starts_with(MARK) => format!("{MARK}:{}", self.key).into(),
            None => self.key.as_str().into(),
        }
    }
}

/// Whether an add made a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// A new one.
    New,
    /// None: this task was added before, under the same idempotency key. Nothing changed.
    Duplicate {
        /// Where that task stands now; `None`: it is forgotten, or cannot be read.
        state: Option<State>,
    },
    /// None: the pending task of the same `key` was moved to the new moment, with the new content
    /// and options.
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
