//! The nouns of sameness: whether a task that is added is one that was added before.

use std::borrow::Cow;
use std::time::Duration;

use crate::task::State;

/// Makes an add safe to repeat: the same key and fingerprint within the window answer the first task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key, 1 to 256 bytes of any text.
    pub key: String,
    /// What was asked for, as a hash: another one under the same key is [`Error::KeyReused`](super::super::Error::KeyReused).
    pub fingerprint: u128,
    /// How long the key is remembered, from the first add by the store's clock. It outlives the task.
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
    /// None: the pending task of the same `key` was moved to the new moment, with the new content and options.
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
            Idempotency { key: idempotency_key.into(), fingerprint: 0, window }.name(key).into_owned()
        };
        let names: std::collections::HashSet<String> = pairs.into_iter().map(name).collect();
        assert_eq!(names.len(), pairs.len(), "{names:?}");
        assert_eq!(name((None, "order-7")), "order-7");
    }
}
