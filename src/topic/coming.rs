//! New topics that are being registered. The store is asked once per topic, for all callers.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::Shared;

use super::error::Error;
use crate::model::task::Topic;
use crate::store::Registered;

/// The entry of the topic, as the store has it in the end.
pub(super) type Outcome = Pin<Box<dyn Future<Output = Result<Registered, Error>> + Send>>;

/// A topic, and the token that creates it: a refusal for one token is none for another.
pub(super) type CreationKey = (Topic, Option<Arc<str>>);

/// The topics that are being registered, each with the outcome that its callers wait for.
#[derive(Default)]
pub(super) struct Coming(Mutex<HashMap<CreationKey, Shared<Outcome>>>);

/// A caller that waits for an outcome. The last one to leave removes the topic.
struct WaitingCaller<'a> {
    coming: &'a Coming,
    key: &'a CreationKey,
    outcome: Shared<Outcome>,
}

impl Coming {
    /// Waits for the topic's outcome, together with other callers. The first caller starts it with
    /// `begin`, which gets the other topics that are being registered.
    pub(super) async fn share(
        &self,
        key: &CreationKey,
        begin: impl FnOnce(&mut dyn Iterator<Item = &Topic>) -> Outcome,
    ) -> Result<Registered, Error> {
        let outcome = {
            let mut all = self.lock();
            if let Some(outcome) = all.get(key) {
                outcome.clone()
            } else {
                let outcome = begin(&mut all.keys().map(|(topic, _)| topic)).shared();
                all.insert(key.clone(), outcome.clone());
                outcome
            }
        };
        let caller = WaitingCaller { coming: self, key, outcome };
        caller.outcome.clone().await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CreationKey, Shared<Outcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        let mut all = self.coming.lock();
        if !all.get(self.key).is_some_and(|outcome| outcome.ptr_eq(&self.outcome)) {
            return;
        }
        // Later callers need no outcome that is known already. A count of two means that only the
        // map and this caller have it.
        let is_known = self.outcome.peek().is_some();
        if is_known || self.outcome.strong_count().is_none_or(|count| count <= 2) {
            all.remove(self.key);
        }
    }
}

impl fmt::Debug for Coming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::TopicEntry;

    fn topic() -> CreationKey {
        ("t".parse().unwrap(), None)
    }

    /// An outcome that is ready once the sender is used.
    fn held() -> (oneshot::Sender<()>, Outcome) {
        let (sender, receiver) = oneshot::channel();
        let entry = Registered::plain(TopicEntry { topic: topic().0, shards: 3 });
        let outcome = async move {
            receiver.await.expect("the test sends");
            Ok(entry)
        };
        (sender, Box::pin(outcome))
    }

    fn never(_: &mut dyn Iterator<Item = &Topic>) -> Outcome {
        unreachable!("it has begun already")
    }

    /// A thousand adds to a new topic cause one registration.
    #[tokio::test]
    async fn all_callers_of_a_new_topic_share_one_outcome() {
        let (coming, topic, (go_on, outcome)) = (Coming::default(), topic(), held());
        let first = coming.share(&topic, |_| outcome);
        let others = join_all((0..1_000).map(|_| coming.share(&topic, never)));
        let release = async { go_on.send(()).unwrap() };
        let (first, others, ()) = tokio::join!(first, others, release);
        assert_eq!(first.unwrap().entry.shards, 3);
        assert!(
            others.iter().all(|other| other.as_ref().is_ok_and(|known| known.entry.shards == 3))
        );
        assert!(coming.is_empty());
    }

    /// The first caller leaves, and others wait for the outcome that it started.
    #[tokio::test]
    async fn a_caller_that_goes_takes_nothing_from_the_others() {
        let (coming, topic, (go_on, outcome)) = (Arc::new(Coming::default()), topic(), held());
        let mut first = Box::pin(coming.share(&topic, |_| outcome));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(coming.share(&topic, never));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert!(!coming.is_empty());
        go_on.send(()).unwrap();
        assert!(second.await.is_ok());
        assert!(coming.is_empty());
    }

    #[tokio::test]
    async fn nothing_stays_of_callers_that_have_all_gone() {
        let (coming, topic, (_go_on, outcome)) = (Coming::default(), topic(), held());
        let mut only = Box::pin(coming.share(&topic, |_| outcome));
        assert!(futures_util::poll!(&mut only).is_pending());
        drop(only);
        assert!(coming.is_empty());
    }
}
