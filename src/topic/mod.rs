//! The topic registry: which topics exist, and into how many lanes each is split.
//!
//! A topic is created with its first task, or by a call that needs it. The registry here is a cache
//! of the one in the store. Each instance polls once a second for a new revision of that
//! ([`Registry::seen`], [`Registry::take_in`]). So changes of pauses and policies take effect
//! everywhere within a second. The number of lanes of a topic never changes while it holds a task.
//! The store refuses an add that uses an old number.

mod awaited;
mod coming;
mod due_lanes;
mod error;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::awaited::{Awaited, TopicOutlook};
use self::coming::{Coming, Outcome};
pub use self::due_lanes::DueLanes;
pub use self::error::Error;
use crate::model::task::{Topic, TopicPolicy};
use crate::store::{self, AnyStore, Creator, Misfire, Registered, Revision, TopicEntry, Topics};

/// How many of the topics, given by their numbers of lanes, have together at most `most_lanes`: at
/// least one, and at most `limit`.
pub fn fitting(shards: impl Iterator<Item = u16>, limit: usize, most_lanes: usize) -> usize {
    let mut lanes = 0;
    shards
        .take(limit)
        .take_while(|shards| {
            let is_first = lanes == 0;
            lanes += usize::from(*shards);
            is_first || lanes <= most_lanes
        })
        .count()
}

/// The most topics that a token without the scope `admin` may have created, of all topics.
fn share_of(max_topics: usize) -> usize {
    max_topics.div_ceil(10)
}

/// How long a token is remembered that may create no more topics. Its share of topics is not
/// counted again within this time.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// The settings of the registry.
#[derive(Clone, Debug)]
pub struct Params {
    /// The most topics (`limits.topics`).
    pub max_topics: usize,
}

/// A cache of the store's topic registry. Share it behind an [`Arc`].
#[derive(Debug)]
pub struct Registry<S = AnyStore> {
    store: Arc<S>,
    max_topics: AtomicUsize,
    known: RwLock<BTreeMap<Topic, KnownTopic>>,
    /// Numbers the reads of the store's registry, in the order in which they begin.
    reads: AtomicU64,
    coming: Coming,
    /// The tokens that may create no more topics, and when the store said so.
    refused: Arc<Mutex<HashMap<Arc<str>, Instant>>>,
    /// The revision that was read last, and the value of `changes` when it was asked for.
    revision: Mutex<Option<(Revision, u64)>>,
    /// Counts the changes that did not come from a poll. What they brought may be older than what a
    /// poll would bring.
    changes: AtomicU64,
    awaited: Awaited,
    due_lanes: DueLanes,
    /// Whether a topic has another number of lanes than this instance knew.
    recounted: AtomicBool,
    /// Topics that this instance knows, but the last poll did not find in the store's registry.
    missing: Mutex<Vec<Registered>>,
    /// Notified when there are missing topics.
    misses: Notify,
}

/// A known entry, and the read that brought it.
#[derive(Debug)]
struct KnownTopic {
    registered: Registered,
    read: AtomicU64,
    /// The number of the last read that had begun when it became known.
    since: u64,
}

/// A read of the store's registry. What an earlier read brings does not replace what a later one
/// has brought: otherwise a poll that began before a pause would undo it for a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistryRead(u64);

/// What is known at the beginning of a poll.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// If the registry still has this revision, it need not be read again.
    pub revision: Option<Revision>,
    changes: u64,
    read: RegistryRead,
}

impl<S> Registry<S> {
    /// An empty cache of the registry of `store`.
    pub fn new(store: Arc<S>, params: Params) -> Self {
        Self {
            store,
            max_topics: AtomicUsize::new(params.max_topics),
            known: RwLock::default(),
            reads: AtomicU64::new(0),
            coming: Coming::default(),
            refused: Arc::default(),
            revision: Mutex::default(),
            changes: AtomicU64::new(0),
            awaited: Awaited::default(),
            due_lanes: DueLanes::default(),
            recounted: AtomicBool::new(false),
            missing: Mutex::default(),
            misses: Notify::new(),
        }
    }

    /// Changes the settings. Existing topics stay.
    pub fn set_params(&self, params: &Params) {
        self.max_topics.store(params.max_topics, Ordering::Relaxed);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Methods that may ask the store.
impl<S: Topics> Registry<S> {
    /// The topic's entry. It is created with one lane and without a creator if there is none.
    ///
    /// # Errors
    /// [`Error::TooMany`] at the limit, or the store's failure.
    pub async fn ensure(&self, topic: &Topic) -> Result<Registered, Error> {
        self.ensure_for(topic, 1, |_| None).await
    }

    /// The topic's entry. It is created with `shards` lanes if there is none. `creator` gets a
    /// token's share of `limits.topics`. Concurrent callers of one creator for one new topic share
    /// one outcome, so the store is asked once.
    ///
    /// # Errors
    /// [`Error::TooMany`] and [`Error::TooManyOfToken`] at the limits, or the store's failure.
    pub async fn ensure_for(
        &self,
        topic: &Topic,
        shards: u16,
        creator: impl FnOnce(usize) -> Option<Creator>,
    ) -> Result<Registered, Error> {
        if let Some(entry) = self.known_entry(topic) {
            return Ok(entry);
        }
        let entry = TopicEntry { topic: topic.clone(), shards };
        let creator = creator(share_of(self.max_topics.load(Ordering::Relaxed)));
        let key = (topic.clone(), creator.as_ref().map(|creator| creator.token.clone()));
        let entry = self
            .coming
            .share(&key, |others| self.found_or_registered(entry, creator, others))
            .await?;
        // Another caller may have begun to read it long ago.
        self.learn(RegistryRead(0), std::slice::from_ref(&entry));
        Ok(entry)
    }

    /// Asks the store for a topic, and registers it if there is none and the limit allows it.
    /// `others` are the new topics that are being registered at the same time.
    fn found_or_registered(
        &self,
        entry: TopicEntry,
        creator: Option<Creator>,
        others: &mut dyn Iterator<Item = &Topic>,
    ) -> Outcome {
        let most = self.max_topics.load(Ordering::Relaxed);
        let (known, coming) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let others = others.filter(|other| **other != entry.topic);
            let new: HashSet<_> = others.filter(|topic| !known.contains_key(topic)).collect();
            (known.len(), new.len())
        };
        let (store, refused) = (self.store.clone(), self.refused.clone());
        Box::pin(async move {
            if let Some(found) = store.topic(&entry.topic).await? {
                return Ok(found);
            }
            if known + coming >= most {
                return Err(Error::TooMany(known.max(most)));
            }
            let refusals = || refused.lock().unwrap_or_else(PoisonError::into_inner);
            let limited = creator.as_ref().and_then(|by| Some((by.token.clone(), by.most?)));
            if let Some((token, most)) = &limited
                && refusals().get(token).is_some_and(|then| then.elapsed() < REFUSED_FOR)
            {
                return Err(Error::TooManyOfToken(*most));
            }
            // Another instance may have created it with a policy. The next poll brings that.
            match (store.create(entry, creator).await, limited) {
                (Err(store::Error::CreatorLimit), Some((token, most))) => {
                    refusals().insert(token, Instant::now());
                    Err(Error::TooManyOfToken(most))
                }
                (created, _) => Ok(Registered::plain(created?)),
            }
        })
    }

    /// The topic's entry, if the topic exists. An unknown topic costs one read, not that of all
    /// topics.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn find(&self, topic: &Topic) -> Result<Option<Registered>, Error> {
        if let Some(entry) = self.known_entry(topic) {
            return Ok(Some(entry));
        }
        self.reload(topic).await
    }

    /// Reads the topic's entry from the store: the known one may be a second old.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn reload(&self, topic: &Topic) -> Result<Option<Registered>, Error> {
        let read = self.begin_read();
        let found = self.store.topic(topic).await?;
        self.learn(read, found.as_slice());
        Ok(found)
    }

    /// Reads the whole registry from the store.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn refresh(&self) -> Result<Vec<Registered>, Error> {
        let read = self.begin_read();
        let entries = self.store.topics().await?;
        self.learn(read, &entries);
        Ok(entries)
    }
}

/// Methods that use only what is known.
impl<S> Registry<S> {
    /// The topic's policy, as far as this instance knows; the default for an unknown topic.
    pub fn policy_of(&self, topic: &Topic) -> Arc<TopicPolicy> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).map_or_else(Arc::default, |known| known.registered.policy.clone())
    }

    /// Whether the topic may have recurring schedules.
    pub fn may_have_schedules(&self, topic: &Topic) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).is_some_and(|known| known.registered.has_schedules)
    }

    /// Whether the topic is paused.
    pub fn is_paused(&self, topic: &Topic) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).is_some_and(|known| known.registered.paused.is_some())
    }

    /// The topic's past pauses whose tasks have a misfire policy. Tasks of other pauses are
    /// delivered late.
    pub fn misfires_of(&self, topic: &Topic) -> Vec<Misfire> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).map_or_else(Vec::new, |known| known.registered.misfires.clone())
    }

    /// Whether the whole registry has been read by a poll.
    pub fn is_read(&self) -> bool {
        self.revision.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Call this before a poll, and pass the result to [`Registry::take_in`].
    pub fn seen(&self) -> Seen {
        let changes = self.changes.load(Ordering::SeqCst);
        let revision = *self.revision.lock().unwrap_or_else(PoisonError::into_inner);
        Seen {
            revision: revision.filter(|(_, then)| *then == changes).map(|(revision, _)| revision),
            changes,
            read: self.begin_read(),
        }
    }

    /// Call this before a read of the store's registry, and pass the result to
    /// [`Registry::learn`].
    pub fn begin_read(&self) -> RegistryRead {
        RegistryRead(self.reads.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Stores all entries of a revision. [`Registry::missing`] then returns the known topics that
    /// are not among them: they were deleted, or lost.
    pub fn take_in(&self, seen: Seen, revision: Revision, entries: &[Registered]) {
        self.write(seen.read, entries);
        *self.revision.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((revision, seen.changes));
        let missing = self.not_among(seen.read, entries);
        if !missing.is_empty() {
            *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
            self.misses.notify_one();
        }
    }

    /// The topics that were known when this read of the whole registry began, and are not among
    /// what it found.
    pub fn not_among(&self, read: RegistryRead, entries: &[Registered]) -> Vec<Registered> {
        let registered: HashSet<&Topic> = entries.iter().map(|known| &known.entry.topic).collect();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let earlier = known.values().filter(|known| known.since < read.0);
        let earlier = earlier.map(|known| &known.registered);
        earlier.filter(|known| !registered.contains(&known.entry.topic)).cloned().collect()
    }

    /// Waits until a poll did not find known topics, and returns them.
    pub async fn missing(&self) -> Vec<Registered> {
        loop {
            let missing =
                std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
            if !missing.is_empty() {
                return missing;
            }
            self.misses.notified().await;
        }
    }

    /// Whether a topic has another number of lanes than this instance knew, since the last call.
    pub fn take_recounted(&self) -> bool {
        self.recounted.swap(false, Ordering::Relaxed)
    }

    /// The lanes whose recurring schedules are to be planned.
    pub const fn due_lanes(&self) -> &DueLanes {
        &self.due_lanes
    }

    /// The topics whose tasks consumers wait for on this instance.
    pub const fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    /// All entries that this instance knows.
    pub fn known(&self) -> Vec<Registered> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|known| known.registered.clone()).collect()
    }

    /// Removes a topic that is not in the store's registry and holds no task.
    pub fn forget(&self, topic: &Topic) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
        // Its creator may create another one.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Adds entries to the cache. If they are new, the next poll reads the registry again, because
    /// they may be older than what was known.
    pub fn learn(&self, read: RegistryRead, entries: &[Registered]) {
        if self.write(read, entries) {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns whether there was anything new. Most entries are not, and readers need not wait
    /// while they are compared.
    fn write(&self, read: RegistryRead, entries: &[Registered]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let news: Vec<_> = entries
            .iter()
            .filter(|entry| {
                let before = known.get(&entry.entry.topic);
                let same = before.filter(|known| known.registered == **entry);
                // What was read before this must not replace it either.
                same.map(|known| known.read.fetch_max(read.0, Ordering::SeqCst)).is_none()
            })
            .collect();
        drop(known);
        let mut is_new = false;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for entry in news {
            let before = known.get(&entry.entry.topic);
            if before.is_some_and(|before| before.read.load(Ordering::SeqCst) > read.0) {
                continue;
            }
            if before.is_some_and(|before| before.registered.entry != entry.entry) {
                self.recounted.store(true, Ordering::Relaxed);
            }
            let since = self.reads.load(Ordering::SeqCst);
            let news =
                KnownTopic { registered: entry.clone(), read: AtomicU64::new(read.0), since };
            known.insert(entry.entry.topic.clone(), news);
            is_new = true;
        }
        is_new
    }

    /// The topic's entry, if this instance knows it.
    pub fn known_entry(&self, topic: &Topic) -> Option<Registered> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).map(|known| known.registered.clone())
    }
}

#[cfg(test)]
mod tests;
