//! The topic registry: which topics there are and into how many lanes each is split.
//!
//! Topics come into being with their first task, or when something is asked of them. This is a
//! cache before the store's own registry. Each instance, whether it works or not, looks once a
//! second for another revision of that ([`Registry::seen`], [`Registry::take_in`]): the cache can
//! be behind, so what it says of pauses and policies holds everywhere within a second. A topic's
//! number of lanes never changes while it holds a task; an add by an old number is refused by the
//! store.

mod awaited;
mod coming;
mod error;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Notify;

pub use self::awaited::{Awaited, Outlook};
use self::coming::{Coming, Outcome};
pub use self::error::Error;
use crate::model::task::{Topic, TopicPolicy};
use crate::store::{AnyStore, Misfire, Registered, Revision, TopicEntry, Topics};

/// The settings of the registry.
#[derive(Clone, Debug)]
pub struct Params {
    /// The most topics (`limits.topics`).
    pub max_topics: usize,
}

/// The registry. Cheap to share behind an [`Arc`].
#[derive(Debug)]
pub struct Registry<S = AnyStore> {
    store: Arc<S>,
    max_topics: AtomicUsize,
    known: RwLock<BTreeMap<Topic, Registered>>,
    coming: Coming,
    /// The revision that was taken in last, and what `changes` was when it was asked for.
    revision: Mutex<Option<(Revision, u64)>>,
    /// How often something was learned that no look has brought. It may have been read before what
    /// a look has brought.
    changes: AtomicU64,
    awaited: Awaited,
    /// A topic has another number of lanes than this instance knew.
    recounted: AtomicBool,
    /// Topics that this instance knows, and that the last look did not find in the store's
    /// registry.
    missing: Mutex<Vec<TopicEntry>>,
    /// Notified when there are any.
    misses: Notify,
}

/// What is known when a look begins.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The registry of this revision need not be read again.
    pub revision: Option<Revision>,
    changes: u64,
}

impl<S> Registry<S> {
    /// An empty cache before `store`.
    pub fn new(store: Arc<S>, params: Params) -> Self {
        Self {
            store,
            max_topics: AtomicUsize::new(params.max_topics),
            known: RwLock::default(),
            coming: Coming::default(),
            revision: Mutex::default(),
            changes: AtomicU64::new(0),
            awaited: Awaited::default(),
            recounted: AtomicBool::new(false),
            missing: Mutex::default(),
            misses: Notify::new(),
        }
    }

    /// Goes by other settings from now on. Topics that are there stay.
    pub fn set_params(&self, params: &Params) {
        self.max_topics.store(params.max_topics, Ordering::Relaxed);
    }
}

/// What may ask the store.
impl<S: Topics> Registry<S> {
    /// The topic, created with one lane if there is none.
    ///
    /// # Errors
    /// [`Error::TooMany`] at the limit, or the store's failure.
    pub async fn ensure(&self, topic: &Topic) -> Result<Registered, Error> {
        self.ensure_with(topic, 1).await
    }

    /// The topic, created with so many lanes if there is none. All callers who ask for a new topic
    /// at the same time share one outcome, so the store is asked once.
    ///
    /// # Errors
    /// [`Error::TooMany`] at the limit, or the store's failure.
    pub async fn ensure_with(&self, topic: &Topic, shards: u16) -> Result<Registered, Error> {
        if let Some(entry) = self.known_entry(topic) {
            return Ok(entry);
        }
        let entry = TopicEntry { topic: topic.clone(), shards };
        let entry =
            self.coming.share(topic, |others| self.found_or_registered(entry, others)).await?;
        self.learn(std::slice::from_ref(&entry));
        Ok(entry)
    }

    /// Asks the store for a topic, and registers it if there is none and the limit allows one more.
    /// `others` are the new topics that others register at the same time.
    fn found_or_registered(
        &self,
        entry: TopicEntry,
        others: &mut dyn Iterator<Item = &Topic>,
    ) -> Outcome {
        let most = self.max_topics.load(Ordering::Relaxed);
        let (known, coming) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            (known.len(), others.filter(|topic| !known.contains_key(topic)).count())
        };
        let store = self.store.clone();
        Box::pin(async move {
            if let Some(found) = store.topic(&entry.topic).await? {
                return Ok(found);
            }
            if known + coming >= most {
                return Err(Error::TooMany(known.max(most)));
            }
            // Another instance may have created it with a policy, which the next look brings.
            Ok(Registered::plain(store.register(entry).await?))
        })
    }

    /// The topic's entry, if there is one anywhere. Only that one is asked for: whoever asks for
    /// one that is new does not pay for all the others.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn find(&self, topic: &Topic) -> Result<Option<Registered>, Error> {
        if let Some(entry) = self.known_entry(topic) {
            return Ok(Some(entry));
        }
        self.reload(topic).await
    }

    /// Reads the topic's entry again: what this instance knows of it may be a second old.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn reload(&self, topic: &Topic) -> Result<Option<Registered>, Error> {
        let found = self.store.topic(topic).await?;
        self.learn(found.as_slice());
        Ok(found)
    }

    /// Reads the store's registry again and answers all of it.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn refresh(&self) -> Result<Vec<Registered>, Error> {
        let entries = self.store.topics().await?;
        self.learn(&entries);
        Ok(entries)
    }
}

/// What is answered and learned without asking.
impl<S> Registry<S> {
    /// What the topic asks for, as far as this instance knows; nothing special of a topic that it
    /// does not know.
    pub fn policy_of(&self, topic: &Topic) -> Arc<TopicPolicy> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).map_or_else(Arc::default, |registered| registered.policy.clone())
    }

    /// Whether nothing of the topic is to be handed out.
    pub fn is_paused(&self, topic: &Topic) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).is_some_and(|registered| registered.paused.is_some())
    }

    /// The topic's pauses whose tasks are not simply delivered late.
    pub fn misfires_of(&self, topic: &Topic) -> Vec<Misfire> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).map_or_else(Vec::new, |registered| registered.misfires.clone())
    }

    /// To be called before a look; its answer goes to [`Registry::take_in`] with this.
    pub fn seen(&self) -> Seen {
        let changes = self.changes.load(Ordering::SeqCst);
        let revision = *self.revision.lock().unwrap_or_else(PoisonError::into_inner);
        Seen {
            revision: revision.filter(|(_, then)| *then == changes).map(|(revision, _)| revision),
            changes,
        }
    }

    /// Takes in all entries of a revision. [`Registry::missing`] answers those that this instance
    /// knows and that are not among them: deleted, or lost.
    pub fn take_in(&self, seen: Seen, revision: Revision, entries: &[Registered]) {
        self.write(entries);
        *self.revision.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((revision, seen.changes));
        let registered: HashSet<&Topic> = entries.iter().map(|known| &known.entry.topic).collect();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.values().map(|known| &known.entry);
        let missing: Vec<_> =
            known.filter(|entry| !registered.contains(&entry.topic)).cloned().collect();
        if !missing.is_empty() {
            *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
            self.misses.notify_one();
        }
    }

    /// Waits until a look did not find topics that this instance knows, and answers them.
    pub async fn missing(&self) -> Vec<TopicEntry> {
        loop {
            let missing =
                std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
            if !missing.is_empty() {
                return missing;
            }
            self.misses.notified().await;
        }
    }

    /// Whether a topic has turned out to have another number of lanes than this instance knew,
    /// since this was asked last.
    pub fn take_recounted(&self) -> bool {
        self.recounted.swap(false, Ordering::Relaxed)
    }

    /// The topics whose tasks consumers wait for here.
    pub const fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    /// What this instance knows without asking.
    pub fn known(&self) -> Vec<Registered> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Forgets a topic that is gone from the registry and holds no task.
    pub fn forget(&self, topic: &Topic) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    /// Adds entries to the cache. The next look reads them once more if they are news: they may be
    /// older than what is known.
    pub fn learn(&self, entries: &[Registered]) {
        if self.write(entries) {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Answers whether anything is news. Most entries are as they were, and readers need not wait
    /// while those are looked through.
    fn write(&self, entries: &[Registered]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let news: Vec<_> =
            entries.iter().filter(|entry| known.get(&entry.entry.topic) != Some(*entry)).collect();
        drop(known);
        if news.is_empty() {
            return false;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for entry in news {
            let before = known.insert(entry.entry.topic.clone(), entry.clone());
            if before.is_some_and(|before| before.entry != entry.entry) {
                self.recounted.store(true, Ordering::Relaxed);
            }
        }
        true
    }

    /// The topic's entry, if this instance knows it without asking.
    pub fn known_entry(&self, topic: &Topic) -> Option<Registered> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::Clock;
    use crate::store::embedded;

    fn registry(folder: &tempfile::TempDir, max_topics: usize) -> Registry<embedded::Embedded> {
        let params = embedded::Params {
            path: folder.path().join("delayd.db"),
            reserve: 0,
            clock: Clock::system(),
        };
        Registry::new(Arc::new(embedded::Embedded::open(params).unwrap()), Params { max_topics })
    }

    fn topic(n: usize) -> Topic {
        format!("t{n}").parse().unwrap()
    }

    #[tokio::test]
    async fn those_who_come_together_do_not_exceed_the_limit_together() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(&folder, 3);
        let names: Vec<Topic> = (0..10).map(|n| topic(n % 5)).collect();
        let made =
            futures_util::future::join_all(names.iter().map(|topic| registry.ensure(topic))).await;
        let refused = made.iter().filter(|made| matches!(made, Err(Error::TooMany(3)))).count();
        assert_eq!((refused, registry.store.topics().await.unwrap().len()), (4, 3), "{made:?}");
        assert!(registry.coming.is_empty());
    }

    /// It was registered by another instance, and this one has not looked since.
    #[tokio::test]
    async fn a_topic_that_is_there_is_found_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(&folder, 1);
        registry.ensure(&topic(0)).await.unwrap();
        registry.forget(&topic(0));
        registry.ensure(&topic(1)).await.unwrap();
        assert_eq!(registry.ensure(&topic(0)).await.unwrap().entry.topic, topic(0));
        assert_eq!(registry.known().len(), 2);
    }
}
