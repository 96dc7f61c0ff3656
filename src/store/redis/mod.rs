//! The Redis store: several instances share the work of one server.
//!
//! Every transition is one Lua script over one lane (`lua/`), atomic, idempotent and bounded; `keys` lists what is kept where.
//! Time is the server's `TIME`. The lane's lock (`SET NX EX` inside the claim script) makes one instance its claimer for a
//! while; nobody's correctness rests on it.
//!
//! Two connections: adds go their own way, so that a large batch does not stand before a claim.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::Client;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use self::add::Adders;
use self::hints::Hints;
use self::ids::Ids;
use self::keys::Keys;
use self::link::Link;
use super::{
    Added, Cancelled, Claim, Claimed, Counts, Durability, Error, Hint, ListQuery, Listed, Moment, NewContent, NewTask,
    NextDue, Rescheduled, Result, Settle, Settled, Store, Task, TopicEntry, Waiting,
};
use crate::clock::{Clock, UnixMillis};
use crate::task::{Destination, Lane, Receipt, State, TaskId};

mod add;
mod claim;
mod destination;
mod fault;
mod hints;
mod ids;
mod keys;
mod link;
mod query;
mod record;
mod registry;
mod script;
mod server;
mod settle;

/// The settings of the Redis store.
#[derive(Clone)]
pub struct Params {
    /// `redis://[user:password@]host:port/db`.
    pub url: String,
    /// What every key begins with; no braces.
    pub key_prefix: String,
    /// The longest wait for a connection, and for an answer.
    pub timeout: Duration,
    /// Tests set a manual one; then its now is given to every script instead of the server's.
    pub clock: Clock,
    /// Tell other instances of adds: for an instance that does not work itself.
    pub publish_hints: bool,
}

/// The Redis store.
#[derive(Debug)]
pub struct Redis {
    inner: Arc<Inner>,
    adders: Adders,
    tasks: Vec<AbortHandle>,
}

/// What the verbs share.
#[derive(Debug)]
struct Inner {
    adding: Link,
    working: Link,
    keys: Keys,
    ids: Ids,
    hints: Hints,
    clock: Clock,
    timeout: Duration,
}

impl Redis {
    /// Prepares the store and looks at the server. A server that does not answer is no error: it is looked for again with each
    /// call, and until then the verbs answer [`Error::Unavailable`].
    ///
    /// # Errors
    /// [`Error::Misconfigured`] for a malformed URL, a refused login, or a server that would lose tasks.
    pub async fn connect(params: Params) -> Result<Self> {
        let pool = link::pool(&params.url, params.timeout)?;
        let client = Client::open(params.url.as_str()).map_err(|e| Error::Misconfigured(e.to_string()))?;
        let (hints, outward) = Hints::new(params.publish_hints);
        let inner = Arc::new(Inner {
            adding: Link::new("adds", pool.clone(), params.timeout),
            working: Link::new("work", pool, params.timeout),
            keys: Keys::new(&params.key_prefix),
            ids: Ids::default(),
            hints,
            clock: params.clock,
            timeout: params.timeout,
        });
        // Out of reach is no reason not to start: the link says so, and tries on.
        if let Err(error @ Error::Misconfigured(_)) = inner.working.live().await {
            return Err(error);
        }
        let mut tasks = vec![
            tokio::spawn(hints::listen(inner.clone(), client)).abort_handle(),
            tokio::spawn(look_after(inner.clone())).abort_handle(),
        ];
        if let Some(outward) = outward {
            tasks.push(tokio::spawn(hints::publish(inner.clone(), outward)).abort_handle());
        }
        let adders = Adders::start(&inner);
        Ok(Self { inner, adders, tasks })
    }
}

async fn look_after(inner: Arc<Inner>) {
    tokio::join!(inner.adding.look_after(), inner.working.look_after());
}

impl Drop for Redis {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Store for Redis {
    fn durability(&self) -> Durability {
        self.inner.working.durability()
    }

    async fn add(&self, tasks: Vec<NewTask>) -> Vec<Result<Added>> {
        self.adders.add(tasks, self.inner.timeout).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim::claim(&self.inner, &claim).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Result<Vec<Settled>> {
        settle::settle(&self.inner, &settles).await
    }

    async fn extend(&self, lane: &Lane, id: TaskId, receipt: &Receipt, lease: Duration) -> Result<Settled> {
        settle::extend(&self.inner, lane, id, receipt, lease).await
    }

    async fn cancel(&self, lane: &Lane, id: TaskId) -> Result<Cancelled> {
        settle::cancel(&self.inner, lane, id).await
    }

    async fn reschedule(
        &self,
        lane: &Lane,
        id: TaskId,
        moment: Moment,
        content: Option<NewContent>,
    ) -> Result<Rescheduled> {
        let moved = settle::reschedule(&self.inner, lane, id, moment, content.as_ref()).await?;
        if let Rescheduled::Done { due } = moved {
            self.inner.hints.tell(Hint { lane: lane.clone(), due });
        }
        Ok(moved)
    }

    async fn get(&self, lane: &Lane, id: TaskId) -> Result<Option<Task>> {
        query::get(&self.inner, lane, id).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        query::list(&self.inner, &query).await
    }

    async fn replay(&self, lane: &Lane, ids: Vec<TaskId>) -> Result<usize> {
        let count = settle::replay(&self.inner, lane, &ids).await?;
        if count > 0 {
            self.inner.hints.tell(Hint { lane: lane.clone(), due: self.inner.clock.now() });
        }
        Ok(count)
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        query::next_due(&self.inner, &lanes).await
    }

    async fn stats(&self, lane: &Lane) -> Result<Counts> {
        query::stats(&self.inner, lane).await
    }

    async fn purge(&self, lane: &Lane, state: State, before: UnixMillis, limit: usize) -> Result<usize> {
        settle::purge(&self.inner, lane, state, before, limit).await
    }

    async fn set_hold(&self, destination: &Destination, is_held: bool) -> Result<()> {
        destination::set_hold(&self.inner, destination, is_held).await
    }

    async fn holds(&self) -> Result<Vec<Destination>> {
        destination::holds(&self.inner).await
    }

    async fn waiting(&self, lanes: Vec<Lane>) -> Result<Vec<Waiting>> {
        destination::waiting(&self.inner, &lanes).await
    }

    async fn register(&self, entry: TopicEntry) -> Result<TopicEntry> {
        registry::assert(&self.inner, &entry).await
    }

    async fn topics(&self) -> Result<Vec<TopicEntry>> {
        registry::topics(&self.inner).await
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        registry::recover(&self.inner).await
    }

    async fn ping(&self) -> Result<UnixMillis> {
        query::ping(&self.inner).await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.inner.hints.subscribe()
    }

    async fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
